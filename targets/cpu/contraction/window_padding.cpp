#include "targets/cpu/contraction/window_padding.h"

#include <algorithm>
#include <map>

#include "targets/analysis/block_relations.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::cpu {
namespace {

// Along one axis of the results.
struct WindowPadding {
  Var results, window;  // axes of the block
  int64_t around = 0;   // elements of padding, on both sides together
  int64_t steps = 1;    // of the window
  int64_t data = 1;     // elements, of an open axis as many as usual
};

// Neighbours in a tile, along those axes of the results that it has several of.
using Neighbours = std::map<const ExprNode*, int64_t>;

Neighbours neighbours_in(const RegisterTile& tile, const Plan& c) {
  Neighbours result;
  if (const auto around = c.axis_around()) result[around->get()] = tile.around;
  if (c.has_rows()) result[c.rows.back().get()] = c.atom.m * tile.rows;
  return result;
}

// Along all axes of the block's window, if it reads a copy with padding that it can do without.
std::vector<WindowPadding> find_window_padding(const Schedule& schedule, const BlockRef& block,
                                               const BlockAnalysis& analysis) {
  constexpr int64_t usual_extent = 32;  // of what is open
  const auto padding = find_padding(schedule, block);
  if (!padding || !schedule.has_padding(block)) return {};
  const BlockAnalysis copy = analyse(schedule.node(*padding));
  const std::vector<Var> spatial = analysis.spatial(), reduce = analysis.reduce(), axes = copy.spatial();
  const Access& source = copy.reads.at(0);
  std::vector<WindowPadding> found;
  for (const Access& read : analysis.reads) {
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
      if (!around) continue;
      const int64_t data = copy.typical_extent(*axis) - *around;
      found.push_back({*result, *step, *around, analysis.extent(*step), data > 0 ? data : usual_extent});
    }
  }
  return found;
}

// The time that the sum takes where such tiles leave out what is nothing but padding for them, by that of all terms:
// 1 where it is not worth asking.
double share_of_work(const std::vector<WindowPadding>& padding, const Neighbours& tile) {
  constexpr double worth = 0.15, cost_of_asking = 0.05;
  double left = 1;  // of the terms
  for (const WindowPadding& axis : padding) {
    const auto found = tile.find(axis.results.get());
    const int64_t seen = found == tile.end() ? 0 : 2 * (found->second - 1);
    const auto steps = static_cast<double>(axis.steps),
               outside = static_cast<double>(std::max<int64_t>(0, axis.around - seen));
    left *= 1 - std::min(outside / (steps * static_cast<double>(axis.data)), (steps - 1) / steps);
  }
  return left > 1 - worth ? 1 : left + cost_of_asking;
}

}  // namespace

void decide_tile_and_skipped_padding(Schedule& schedule, const BlockRef& block, Product product, Plan& c,
                                     const Target& target) {
  const std::vector<WindowPadding> padding = find_window_padding(schedule, block, c.analysis);
  product.share_of_work = [&](const RegisterTile& tile) { return share_of_work(padding, neighbours_in(tile, c)); };
  c.tile = decide_tile(schedule, product, target);
  const double share = product.share_of_work(c.tile);
  if (share == 1 || schedule.decide("skip_padding", {{{0}, 1}, {{1}, share}}, {1})[0] == 0) return;
  const auto is_window = [&](const Var& k) {
    return std::ranges::any_of(padding, [&](const WindowPadding& axis) { return axis.window == k; });
  };
  c.skipped =
      static_cast<size_t>(std::stable_partition(c.reduce.begin(), c.reduce.end(), is_window) - c.reduce.begin());
}

}  // namespace tw::cpu
