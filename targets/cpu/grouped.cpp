// Grouped convolutions: C[…, o, i] += A[…, o // g, k, i] * B[o, k], where results o of one group of g share the
// broadcast operand.
//
// Each group is a product of its own: a register tile of rows × (the group's results as vectors).  A group that is no
// multiple of the vector (24 = 16 + 8 lanes) ends in a shorter one.  Its results are stored in
// pieces of gcd(g, lanes), which never cross a block of the channels' layout.
#include <algorithm>
#include <numeric>

#include "targets/cpu/contraction_match.h"
#include "targets/cpu/default_schedule.h"
#include "targets/cpu/tile_model.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::cpu {
namespace {

struct Grouped {
  BlockAnalysis analysis;
  Var channel;  // o
  int data = 0, weight = 1;
  int64_t group = 0;      // results that share the data
  std::vector<Var> rows;  // in the data only
};

std::optional<Grouped> match(const Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (analysis.block_class != BlockClass::contraction) return std::nullopt;
  for (const int weight : {1, 0}) {
    const Access &b = analysis.reads[weight], &a = analysis.reads[1 - weight];
    if (!b.buffer->is_constant) continue;
    for (const Var& v : analysis.spatial()) {
      if (!a.uses(v) || dimension_of(b, v) < 0) continue;
      Grouped g{analysis, v, 1 - weight, weight, group_along(a, v, analysis), {}};
      if (g.group < 2) return std::nullopt;
      for (const Var& r : analysis.reduce())
        if (b.uses(r) && dimension_of(b, r) < 0) return std::nullopt;
      for (const Var& row : analysis.spatial()) {
        if (row == v) continue;
        if (b.uses(row)) return std::nullopt;
        g.rows.push_back(row);
      }
      return g;
    }
  }
  return std::nullopt;
}

struct GroupTile {
  RegisterTile tile;
  int64_t width = 0;  // results of a panel: a divisor of the group
};

// Panels of equal width that are stored in whole pieces, and rows, with the least predicted cycles.
GroupTile choose_group_tile(int64_t group, int64_t piece, int64_t m, int64_t k, int lanes, const Target& target) {
  GroupTile best;
  double best_cycles = -1;
  for (int64_t width = piece; width <= group; width += piece) {
    if (group % width != 0) continue;
    const int vectors = static_cast<int>((width + lanes - 1) / lanes);
    for (int rows = 1; rows <= std::min<int64_t>(m, 28); ++rows) {
      if (rows * vectors + vectors + 1 > target.vector_registers - 1) break;
      const RegisterTile tile{rows, vectors};
      const double loads = static_cast<double>(rows + vectors) / (rows * vectors);
      const double cycles = static_cast<double>(group / width) * predict_cycles(tile, m, vectors, k, target) *
                            (1 + 0.02 * loads + (m % rows ? 0.02 : 0.0));
      if (best_cycles < 0 || cycles < best_cycles) best = {tile, width}, best_cycles = cycles;
    }
  }
  return best;
}

// Weights as [panel, k …, result of the panel], k in the given order.
void pack_weights(Schedule& schedule, const Grouped& g, int64_t width, const std::vector<Var>& order) {
  const Access& b = g.analysis.reads[g.weight];
  IndexMap map;
  for (size_t d = 0; d < b.indices.size(); ++d) map.from.push_back(Var("d" + std::to_string(d)));
  const Var& channel = map.from[dimension_of(b, g.channel)];
  map.to.push_back(floor_div(channel, width));
  std::vector<bool> is_used(b.indices.size(), false);
  is_used[dimension_of(b, g.channel)] = true;
  for (const Var& k : order) {
    if (const int d = dimension_of(b, k); d >= 0) map.to.push_back(map.from[d]), is_used[d] = true;
  }
  for (size_t d = 0; d < is_used.size(); ++d)
    if (!is_used[d]) map.to.push_back(map.from[d]);  // of one element
  map.to.push_back(floor_mod(channel, width));
  schedule.transform_layout(b.buffer->name, map);
}

// Window positions outside, the channels of the group innermost: there the data is contiguous.
std::vector<Var> reduction_order(const Grouped& g) {
  const Access& data = g.analysis.reads[g.data];
  std::vector<Var> window, channels;
  for (const Var& k : g.analysis.reduce()) {
    const auto stride =
        unit_stride(data, k, g.analysis.iters, static_cast<int>(std::max<int64_t>(1, g.analysis.extent(k))));
    (stride == 1 && window.empty() && channels.empty() ? channels : window).push_back(k);
  }
  window.insert(window.end(), channels.begin(), channels.end());
  return window;
}

bool schedule_wide(Schedule& schedule, const BlockRef& block, const Grouped& g, int lanes, const Target& target) {
  const BlockAnalysis& analysis = g.analysis;
  const int64_t piece = std::gcd<int64_t>(g.group, lanes);
  if (result_stride(schedule, block, g.channel, static_cast<int>(piece)) != 1) return false;
  const bool has_rows = !g.rows.empty() && analysis.extent(g.rows.back()) > 1;
  const int64_t m = has_rows ? analysis.extent(g.rows.back()) : 1;
  const GroupTile choice =
      choose_group_tile(g.group, piece, m, count_iterations(analysis, analysis.reduce()), lanes, target);
  const std::vector<Var> k_order = reduction_order(g);
  pack_weights(schedule, g, choice.width, k_order);

  const auto loop_of = [&](const Var& v) { return loops_of(schedule, block, v).at(0); };
  std::vector<LoopRef> order, reduce;
  for (const Var& v : k_order) reduce.push_back(loop_of(v));
  const auto channel = schedule.split(loop_of(g.channel), {std::nullopt, g.group / choice.width, choice.width});
  std::vector<LoopRef> rows;
  for (const Var& v : g.rows) rows.push_back(loop_of(v));
  // Batches stay outside of the groups.
  size_t batches = 0;
  while (batches < rows.size() && position_of(analysis, g.rows[batches]) < position_of(analysis, g.channel)) ++batches;
  order.assign(rows.begin(), rows.begin() + batches);
  order.push_back(channel[0]), order.push_back(channel[1]);
  std::optional<LoopRef> row;
  for (size_t i = batches; i < rows.size(); ++i) {
    if (i + 1 == rows.size() && has_rows) {
      const auto halves = schedule.split(rows[i], {std::nullopt, choice.tile.rows});
      order.push_back(halves[0]), row = halves[1];
    } else {
      order.push_back(rows[i]);
    }
  }
  const size_t outer_count = order.size();
  order.insert(order.end(), reduce.begin(), reduce.end());
  if (row) order.push_back(*row);
  order.push_back(channel[2]);
  schedule.reorder(order);

  // A row's last tile may be partial: then the loop over its tiles stays its own.
  std::vector<LoopRef> shared(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(outer_count));
  LoopRef tile = shared.back();
  const bool is_own = row && m % choice.tile.rows != 0 && shared.size() > 1;
  if (is_own) shared.pop_back();
  const LoopRef parallel = shared.size() > 1 ? schedule.fuse(shared) : shared[0];
  if (!is_own) tile = parallel;

  const size_t axis = position_of(analysis, g.channel);
  const BlockRef out = keep_in_registers(schedule, block, tile, axis);
  const BlockRef init = schedule.decompose_reduction(block, reduce[0]);
  vectorize_below(schedule, init, tile, axis, static_cast<int>(choice.width));
  vectorize_below(schedule, out, tile, axis, static_cast<int>(piece));
  if (row) schedule.unroll(*row);
  schedule.vectorize(channel[2]);
  share_out(schedule, parallel);
  return true;
}

}  // namespace

bool schedule_grouped(Schedule& schedule, const BlockRef& block, const Target& target) {
  const auto g = match(schedule, block);
  if (!g) return false;
  const int lanes = target.lanes(g->analysis.write.buffer->dtype);
  if (lanes < 2) return false;
  return schedule_wide(schedule, block, *g, lanes, target);
}

}  // namespace tw::cpu
