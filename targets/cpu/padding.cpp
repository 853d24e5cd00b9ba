// The padded copy of a convolution's or pool's input, made where it is used: a strip of rows of one block of channels
// stays in the core's caches, and no pass over the whole input goes before.
//
//   for c, h parallel { P[c, h] = pad(X) }                 for c, strips of h parallel {
//   for c, h parallel { Y[c, h] = Σ P[c, h + …] }    ⇒       for h { P'[h] = pad(X) }
//                                                            for h { Y[c, h] = Σ P'[h + …] } }
#include <algorithm>

#include "targets/cpu/default_schedule.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/passes/skip_iterations.h"

namespace tw::cpu {
namespace {

constexpr int64_t strip_bytes = 128 << 10;  // of the copy: well within a core's second cache

// Along one dimension of the padded copy: how much of what a window sums is padding, in tiles that see nothing else.
struct WindowPadding {
  Var axis;  // of the window
  double share = 0;
};

std::vector<WindowPadding> find_window_padding(const Schedule& schedule, const BlockRef& block, const BlockRef& padding,
                                               const std::map<const ExprNode*, int64_t>& together) {
  constexpr int64_t usual_extent = 32;  // of what is open
  const BlockAnalysis reader = analyse(schedule.node(block)), copy = analyse(schedule.node(padding));
  const std::vector<Var> spatial = reader.spatial(), reduce = reader.reduce(), axes = copy.spatial();
  const Access& source = copy.reads.at(0);
  std::vector<WindowPadding> found;
  for (const Access& read : reader.reads) {
    if (read.buffer != copy.write.buffer) continue;
    for (size_t d = 0; d < read.indices.size(); ++d) {
      const auto uses = [&](const Var& v) { return uses_var(read.indices[d], v); };
      const auto result = std::ranges::find_if(spatial, uses), step = std::ranges::find_if(reduce, uses);
      const auto axis = std::ranges::find_if(axes, [&](const Var& v) { return copy.write.indices[d].is_same(v); });
      if (result == spatial.end() || step == reduce.end() || axis == axes.end()) continue;
      const auto from = std::ranges::find_if(source.indices, [&](const Expr& index) { return uses_var(index, *axis); });
      if (from == source.indices.end()) continue;
      const Expr extent = source.buffer->shape[static_cast<size_t>(from - source.indices.begin())];
      const auto around = as_int(simplify(copy.iter(*axis).extent - extent));
      const auto steps = static_cast<double>(reader.extent(*step));
      if (!around) continue;
      const auto neighbours = together.find(result->get());
      const int64_t seen = neighbours == together.end() ? 0 : 2 * (neighbours->second - 1);
      const double terms = steps * static_cast<double>(as_int(extent).value_or(usual_extent));
      const double share = static_cast<double>(std::max<int64_t>(0, *around - seen)) / terms;
      found.push_back({*step, std::min(share, (steps - 1) / steps)});
    }
  }
  return found;
}

}  // namespace

std::vector<Var> decide_skipped_window(Schedule& schedule, const BlockRef& block,
                                       const std::map<const ExprNode*, int64_t>& together) {
  constexpr double worth = 0.15, cost_of_asking = 0.05;
  const auto padding = find_padding(schedule, block);
  if (!padding || !schedule.has_padding(block)) return {};
  double left = 1;  // of the terms
  std::vector<Var> axes;
  for (const WindowPadding& window : find_window_padding(schedule, block, *padding, together)) {
    left *= 1 - window.share;
    axes.push_back(window.axis);
  }
  if (left > 1 - worth) return {};
  return schedule.decide("skip_padding", {{{0}, 1}, {{1}, left + cost_of_asking}}, {1})[0] == 1 ? axes
                                                                                                : std::vector<Var>();
}

int64_t decide_strip(Schedule& schedule, const BlockRef& padding, const BlockAnalysis& sum, const Var& axis,
                     int64_t blocks, const Target& target) {
  constexpr int64_t fewest_rows = 4, most_open_rows = 32;
  const BlockAnalysis copy = analyse(schedule.node(padding));
  const std::vector<Var> axes = copy.spatial();
  const int64_t rows = sum.typical_extent(axis);
  int64_t bytes = copy.write.buffer->dtype.bytes();  // of what a vector of channels needs
  for (size_t d = 2; d < axes.size(); ++d) bytes *= copy.typical_extent(axes[d]);
  if (const auto lanes = as_int(copy.write.buffer->shape.back()); copy.write.buffer->shape.size() > axes.size())
    bytes *= std::min<int64_t>(lanes.value_or(1), target.lanes(sum.write.buffer->dtype));
  int64_t best = 0;
  // A pass of its own goes through memory; a strip copies its borders once more.
  std::vector<Candidate> candidates{{{0}, 1.4}};
  const auto consider = [&](int64_t strip) {
    const int64_t strips = divide_up(rows, strip);
    const bool has_tasks = blocks * strips >= 2 * target.threads;
    const bool is_near = bytes * strip / rows <= strip_bytes;
    if (has_tasks && is_near) best = strip;
    const double borders = strips > 1 ? 1.0 / static_cast<double>(strip) : 0;
    candidates.push_back({{strip}, 1 + borders + (has_tasks ? 0 : 0.5) + (is_near ? 0 : 0.25)});
  };
  if (sum.is_open(axis)) {
    for (int64_t strip = fewest_rows; strip <= most_open_rows; strip *= 2) consider(strip);
  } else {
    for (int64_t strip = 1; strip <= rows; ++strip)
      if (rows % strip == 0 && (strip >= fewest_rows || strip == rows)) consider(strip);
  }
  return schedule.decide("strip", candidates, {best})[0];
}

void skip_beyond(Schedule& schedule, const std::vector<LoopRef>& loops) {
  for (const LoopRef& loop : loops)
    if (!is_open(schedule, loop)) schedule.annotate(loop, skip_iterations_attribute, int64_t{1});
}

void compute_padding_at(Schedule& schedule, const BlockRef& padding, const LoopRef& loop, int64_t vector_lanes) {
  schedule.compute_at(padding, loop);
  const BlockAnalysis copy = analyse(schedule.node(padding));
  const int lanes = static_cast<int>(as_int(copy.write.buffer->shape.back()).value_or(0));
  std::vector<LoopRef> order = loops_below(schedule, padding, loop);
  for (const Var& v : copy.spatial())
    if (copy.is_open(v)) skip_beyond(schedule, loops_below(schedule, padding, loop, v));
  for (const Var& v : copy.spatial()) {
    if (lanes < 2 || unit_stride(copy.write, v, copy.iters, lanes) != 1) continue;
    for (const LoopRef& vector : loops_below(schedule, padding, loop, v)) {
      if (extent_of(schedule, vector) < 2 || extent_of(schedule, vector) > lanes) continue;
      std::erase(order, vector);
      order.push_back(vector);
      if (order.size() > 1) schedule.reorder(order);
      const bool is_long = extent_of(schedule, order.back()) > vector_lanes;
      schedule.vectorize(is_long ? schedule.split(order.back(), {std::nullopt, vector_lanes})[1] : order.back());
      return;
    }
  }
}

}  // namespace tw::cpu
