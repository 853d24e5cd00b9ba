// out[i] = f(in[g(i)], …): loops in the order of the output's memory, neighbours merged where every access allows it,
// the inner one vectorised, the others shared out.
#include <algorithm>
#include <numeric>

#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

constexpr int64_t elements_a_task = 4096;  // enough to outweigh handing out a task

// Fuses the last two loops for as long as every access moves through both as through one.
void merge_inner_loops(Schedule& schedule, const BlockRef& block, std::vector<LoopRef>& loops) {
  while (loops.size() > 1) {
    const LoopRef outer = loops[loops.size() - 2], inner = loops.back();
    const int64_t inner_extent = extent_of(schedule, inner);
    const BlockAnalysis analysis = analyse(schedule.node(block));
    const auto is_mergeable = [&](const Access& access) {
      const auto outer_stride = loop_stride(schedule, block, access, outer);
      const auto inner_stride = loop_stride(schedule, block, access, inner);
      return outer_stride && inner_stride && *outer_stride == *inner_stride * inner_extent;
    };
    if (inner_extent == 0 || !is_mergeable(analysis.write) ||
        !std::all_of(analysis.reads.begin(), analysis.reads.end(), is_mergeable)) {
      return;
    }
    loops.pop_back();
    loops.back() = schedule.fuse({outer, inner});
  }
}

}  // namespace

void schedule_elementwise(Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (schedule.loops(block).empty()) return;
  const int lanes = compute_lanes(analysis.write.buffer->dtype, target);

  // An axis that the output stores in blocks is walked as two loops; as three where what is read has other blocks.
  const auto is_linear = [&](const Access& access, const Var& v, int64_t granule) {
    return unit_stride(access, v, analysis.iters, static_cast<int>(granule)).has_value();
  };
  const auto block_size = as_int(analysis.write.buffer->shape.back()).value_or(0);
  for (const Var& v : analysis.spatial()) {
    const int64_t extent = analysis.extent(v);
    if (extent <= 1 || is_linear(analysis.write, v, extent)) continue;
    for (const int64_t granule : {block_size, int64_t{lanes}, int64_t{16}, int64_t{8}, int64_t{4}, int64_t{32}}) {
      if (granule < 2 || !is_linear(analysis.write, v, granule)) continue;
      const auto loops = loops_of(schedule, block, v);
      if (loops.size() != 1) break;
      const int64_t piece = std::gcd<int64_t>(granule, lanes);
      const bool is_split =
          piece > 1 && piece < granule && granule % piece == 0 && granule % lanes != 0 &&
          std::any_of(
              analysis.reads.begin(), analysis.reads.end(),
              [&](const Access& read) { return !is_linear(read, v, granule) && is_linear(read, v, piece); });
      if (is_split) {
        schedule.split(loops[0], {std::nullopt, granule / piece, piece});
      } else {
        schedule.split(loops[0], {std::nullopt, granule});
      }
      break;
    }
  }

  // In the order of the output's strides, largest first.
  std::vector<LoopRef> loops = schedule.loops(block);
  const Access write = analyse(schedule.node(block)).write;
  std::vector<std::pair<int64_t, LoopRef>> by_stride;
  bool has_order = true;
  for (const LoopRef& loop : loops) {
    const auto stride = loop_stride(schedule, block, write, loop);
    has_order &= stride.has_value();
    by_stride.emplace_back(stride.value_or(0), loop);
  }
  if (has_order && loops.size() > 1) {
    std::stable_sort(by_stride.begin(), by_stride.end(),
                     [](const auto& x, const auto& y) { return x.first > y.first; });
    for (size_t i = 0; i < loops.size(); ++i) loops[i] = by_stride[i].second;
    schedule.reorder(loops);
  }
  merge_inner_loops(schedule, block, loops);

  const LoopRef inner = loops.back();
  const int64_t inner_extent = extent_of(schedule, inner);
  loops.pop_back();
  int64_t outer_count = 1;
  for (const LoopRef& loop : loops) outer_count *= std::max<int64_t>(1, extent_of(schedule, loop));
  const bool is_vector = has_order && loop_stride(schedule, block, write, inner) == 1 && inner_extent >= 2;

  LoopRef rest = inner;  // what is left of the inner loop outside its vectors
  if (is_vector && inner_extent > lanes) {
    const auto halves = schedule.split(inner, {std::nullopt, lanes});
    schedule.vectorize(halves[1]);
    rest = halves[0];
  } else if (is_vector) {
    schedule.vectorize(inner);
  }
  const bool has_rest = !(rest == inner) || !is_vector;
  const int64_t rest_extent = has_rest ? extent_of(schedule, rest) : 1;
  if (loops.empty() && !has_rest) return;  // one vector
  if (outer_count < 4 * target.threads && has_rest && rest_extent > 1) {
    // A count that divides, so that no task has a guard.
    int64_t vectors_a_task = std::max<int64_t>(1, elements_a_task / lanes);
    while (rest_extent % vectors_a_task != 0) --vectors_a_task;
    if (rest_extent > 2 * vectors_a_task && vectors_a_task > 1) {
      const auto halves = schedule.split(rest, {std::nullopt, vectors_a_task});
      rest = halves[0];
    }
    loops.push_back(rest);
  }
  if (loops.empty()) return;
  const LoopRef shared = loops.size() > 1 ? schedule.fuse(loops) : loops[0];
  int64_t total = outer_count * std::max<int64_t>(1, inner_extent);
  if (total >= elements_a_task) share_out(schedule, shared);
}

}  // namespace tw::cpu
