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

namespace tw::cpu {
namespace {

// B: weights that have the axis of results as a dimension, and no other of the results' axes.
std::optional<Contraction> match_grouped(const Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (analysis.block_class != BlockClass::contraction) return std::nullopt;
  for (const Var& v : analysis.spatial()) {
    const auto c = contraction_along(analysis, v);
    if (!c || !c->is_grouped() || !c->batch.empty()) continue;
    const Access& b = c->read_b();
    const auto is_dimension = [&](const Var& axis) { return !b.uses(axis) || dimension_of(b, axis) >= 0; };
    if (b.buffer->is_constant && is_dimension(v) && std::all_of(c->reduce.begin(), c->reduce.end(), is_dimension))
      return c;
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
      const RegisterTile tile{rows, vectors};
      if (!fits_registers(tile, target)) break;
      const double loads = static_cast<double>(rows + vectors) / (rows * vectors);
      const double cycles = static_cast<double>(group / width) * predict_cycles(tile, m, vectors, k, target) *
                            (1 + 0.02 * loads + (m % rows ? 0.02 : 0.0));
      if (best_cycles < 0 || cycles < best_cycles) best = {tile, width}, best_cycles = cycles;
    }
  }
  return best;
}

// Weights as [panel, k …, result of the panel], k in the given order.
void pack_weights(Schedule& schedule, const Contraction& c, int64_t width, const std::vector<Var>& order) {
  const Access& b = c.read_b();
  IndexMap map = layout_of(b.indices.size());
  const Var& channel = map.from[dimension_of(b, c.vector_axis)];
  map.to.push_back(floor_div(channel, width));
  std::vector<bool> is_used(b.indices.size(), false);
  is_used[dimension_of(b, c.vector_axis)] = true;
  for (const Var& k : order) {
    if (const int d = dimension_of(b, k); d >= 0) map.to.push_back(map.from[d]), is_used[d] = true;
  }
  for (size_t d = 0; d < is_used.size(); ++d)
    if (!is_used[d]) map.to.push_back(map.from[d]);  // of one element
  map.to.push_back(floor_mod(channel, width));
  schedule.transform_layout(b.buffer->name, map);
}

// Window positions outside, the channels of the group innermost: there the data is contiguous.
std::vector<Var> reduction_order(const Contraction& c) {
  std::vector<Var> window, channels;
  for (const Var& k : c.reduce) {
    const auto extent = static_cast<int>(std::max<int64_t>(1, c.analysis.extent(k)));
    const auto stride = unit_stride(c.read_a(), k, c.analysis.iters, extent);
    (stride == 1 && window.empty() && channels.empty() ? channels : window).push_back(k);
  }
  window.insert(window.end(), channels.begin(), channels.end());
  return window;
}

}  // namespace

bool schedule_grouped(Schedule& schedule, const BlockRef& block, const Target& target) {
  const auto matched = match_grouped(schedule, block);
  if (!matched) return false;
  const Contraction& c = *matched;
  const BlockAnalysis& analysis = c.analysis;
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  const int64_t piece = std::gcd<int64_t>(c.group, lanes);
  if (lanes < 2 || result_stride(schedule, block, c.vector_axis, static_cast<int>(piece)) != 1) return false;
  const int64_t m = std::max<int64_t>(1, c.m());
  const GroupTile choice = choose_group_tile(c.group, piece, m, c.k_count(), lanes, target);
  const std::vector<Var> k_order = reduction_order(c);
  pack_weights(schedule, c, choice.width, k_order);

  const auto loop_of = [&](const Var& v) { return loops_of(schedule, block, v).at(0); };
  const auto channel = schedule.split(loop_of(c.vector_axis), {std::nullopt, c.group / choice.width, choice.width});
  std::vector<LoopRef> shared, reduce;
  for (const Var& v : k_order) reduce.push_back(loop_of(v));
  std::optional<LoopRef> row;
  bool is_in_group = false;  // batches stay outside of the groups
  for (const Var& v : analysis.spatial()) {
    if (v == c.vector_axis) {
      shared = in_order(shared, channel[0], channel[1]);
      is_in_group = true;
    } else if (is_in_group && m > 1 && v == c.rows.back()) {
      const auto halves = schedule.split(loop_of(v), {std::nullopt, choice.tile.rows});
      shared.push_back(halves[0]), row = halves[1];
    } else {
      shared.push_back(loop_of(v));
    }
  }
  schedule.reorder(in_order(shared, reduce, row, channel[2]));

  // A row's last tile may be partial: then the loop over its tiles stays its own.
  LoopRef tile = shared.back();
  const bool is_own = row && m % choice.tile.rows != 0 && shared.size() > 1;
  if (is_own) shared.pop_back();
  const LoopRef parallel = as_one(schedule, shared);
  if (!is_own) tile = parallel;

  const size_t axis = position_of(analysis, c.vector_axis);
  const std::vector<BlockRef> out = keep_in_registers(schedule, block, tile, axis);
  const BlockRef init = schedule.decompose_reduction(block, reduce[0]);
  vectorize_below(schedule, init, tile, axis, static_cast<int>(choice.width));
  for (const BlockRef& last : out) vectorize_below(schedule, last, tile, axis, static_cast<int>(piece));
  if (row) schedule.unroll(*row);
  schedule.vectorize(channel[2]);
  share_out(schedule, parallel);
  return true;
}

}  // namespace tw::cpu
