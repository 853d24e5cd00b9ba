// Contractions whose atom is a multiply-add in each lane: matrix products and convolutions of every kind that
// multiplies one operand without the vector axis by one with it.
//
// Of grouped convolutions, C[…, o, i] += A[…, o // g, k, i] * B[o, k], each group is a product of its own.  One that is
// no multiple of the vector (24 = 16 + 8 lanes) has vectors as wide as its panels.
#include <algorithm>
#include <cmath>

#include "runtime/rounding.h"
#include "targets/cpu/contraction/packing.h"
#include "targets/cpu/contraction/window_padding.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

// Cycles of one core with the best of tiles.
double predict(const Contraction& c, int lanes, const Target& target) {
  constexpr double cycles_to_transpose = 7;  // a vector
  const BlockAnalysis& analysis = c.analysis;
  const int64_t m = c.m(), n_vectors = divide_up(analysis.extent(c.vector_axis), lanes), k = c.k_count();
  // Of an open axis as many, be it of rows or of vectors.
  const int64_t inner = c.has_rows() && analysis.is_open(c.rows.back()) ? m : 1;
  const auto times =
      static_cast<double>(count_iterations(analysis, c.batch) * count_iterations(analysis, c.rows) * inner);
  const double product = least_cost({.m = m, .n_vectors = n_vectors, .k = k}, target);
  const double across = c.is_across ? cycles_to_transpose * static_cast<double>(n_vectors) : 0;
  return times * (product / static_cast<double>(m) + across);
}

// Window positions outside, the channels of the group innermost: there the data is contiguous.
void order_reduction(Contraction& c) {
  const auto channel = std::ranges::find_if(c.reduce, [&](const Var& k) {
    const auto extent = static_cast<int>(std::max<int64_t>(1, c.analysis.extent(k)));
    return unit_stride(c.read_a(), k, c.analysis.iters, extent) == 1;
  });
  if (channel != c.reduce.end()) std::rotate(channel, channel + 1, c.reduce.end());
}

// Groups: of weights that are those of one image and all of its positions.
std::optional<Contraction> match_groups(const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                        int lanes) {
  auto c = match_contraction(schedule, block, analysis, lanes, [&](const Contraction& found) {
    return found.is_grouped() && found.batch.empty() && !found.parts.is_defined() &&
           found.read_b().buffer->is_constant && has_plain_indices(found.read_b());
  });
  if (c) order_reduction(*c);
  return c;
}

std::optional<Contraction> match(const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                 int lanes, const Target& target) {
  const auto along = match_contraction(schedule, block, analysis, lanes),
             across = match_across(schedule, block, analysis);
  if (!along && !across) return lanes > 1 ? match_groups(schedule, block, analysis, lanes) : std::nullopt;
  if (!along || !across) return along ? along : across;
  // Vectors of a strided operand would be gathered.
  if (unit_stride(along->read_b(), along->vector_axis, analysis.iters, lanes) != 1 &&
      !along->read_b().buffer->is_constant)
    return across;
  return predict(*across, lanes, target) < predict(*along, lanes, target) ? across : along;
}

}  // namespace

std::optional<Plan> plan_of_multiply_adds(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                          const Target& target) {
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  const auto matched = match(schedule, block, analysis, lanes, target);
  if (!matched) return std::nullopt;
  Plan c;
  static_cast<Contraction&>(c) = *matched;
  c.atom.n = lanes;
  c.is_scattered = c.reduce.size() == 1 && unit_stride(c.read_a(), c.reduce[0], analysis.iters,
                                                       static_cast<int>(std::max<int64_t>(1, c.k_count()))) == 1;
  c.is_memory_bound = is_memory_bound(c.read_b().buffer, count_most_iterations(analysis, c.rows), target);
  const Product product = product_of(c, target);
  decide_tile_and_skipped_padding(schedule, block, product, c, target);
  if (c.is_grouped() && c.group % lanes != 0) c.atom.n = panel_width(product, c.tile.vectors), c.tile.vectors = 1;
  c.split = find_blocked(c, lanes);
  c.row_packing = decide_row_packing(schedule, block, c, target);
  const auto packing = choose_packing(schedule, c, target);
  if (!packing) return std::nullopt;
  c.packing = *packing;
  return c;
}

std::optional<EqualParts> decide_parts(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                       const Target& target) {
  const auto parts = find_equal_parts(schedule, block);
  if (!parts) return std::nullopt;
  const Var axis = analysis.spatial().at(parts->axis);
  const auto c = contraction_along(analysis, axis);
  if (!c || c->is_grouped() || !is_weight(schedule, c->read_b()) || !has_plain_indices(c->read_b()))
    return std::nullopt;
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  const int64_t m = c->m(), k = c->k_count(), columns = analysis.extent(axis), count = columns / parts->extent;
  const auto product = [&](int64_t n_vectors, int64_t together) {
    return least_cost({.m = m, .n_vectors = n_vectors, .k = k, .parts = together}, target);
  };
  const double joined = product(count * divide_up(parts->extent, lanes), count);
  if (!std::isfinite(joined)) return std::nullopt;
  // The other pass waits for this one, and reads what it has written.
  constexpr double cycles_to_wait = 1000, bytes_a_cycle = 32;
  const bool is_open = c->has_rows() && analysis.is_open(c->rows.back());
  const double rows = is_open ? 1 : static_cast<double>(count_iterations(analysis, c->rows)) / static_cast<double>(m);
  const double times = rows * static_cast<double>(count_iterations(analysis, c->batch));
  const double moved = 2.0 * static_cast<double>(m * columns * analysis.write.buffer->dtype.bytes());
  const double together = times * joined,
               apart = times * (product(divide_up(columns, lanes), 1) + moved / bytes_a_cycle) + cycles_to_wait;
  const Choice analytic{
      together <= apart || is_memory_bound(c->read_b().buffer, count_most_iterations(analysis, c->rows), target) ? 1
                                                                                                                 : 0};
  const bool is_joined = schedule.decide("join_parts", {{{0}, apart}, {{1}, together}}, analytic)[0] == 1;
  return is_joined ? parts : std::nullopt;
}

}  // namespace tw::cpu
