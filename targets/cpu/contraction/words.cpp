// Contractions of small elements whose atom is an instruction on vectors of words: g neighbours along k, which lie side
// by side in A's memory and are put so in B's panels.  It is a dot product in each lane, or, where that takes less
// time, a product of matrices: of neighbouring rows, the last of which may be missing.
#include <functional>

#include "targets/cpu/contraction/packing.h"
#include "targets/cpu/contraction/window_padding.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

using AtomOf = std::function<std::optional<Atom>(const Contraction&)>;

// With everything but packing and the tile.
std::optional<Plan> match_words(const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                const AtomOf& atom_of, const Target& target) {
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  Plan c;
  const auto has_words = [&](const Contraction& found) {
    if (found.is_grouped() && found.group % lanes != 0) return false;
    const auto atom = atom_of(found);
    const auto words = atom ? find_words(found, atom->k(), lanes) : std::nullopt;
    if (!words) return false;
    c.atom = *atom;
    c.split = {words->split(atom->steps)};
    return true;
  };
  auto matched = match_contraction(schedule, block, analysis, lanes, has_words);
  // Words of data would be put together in a pass of their own.
  if (!matched || !is_weight(schedule, matched->read_b()))
    if (const auto across = match_across(schedule, block, analysis, has_words)) matched = across;
  if (!matched) return std::nullopt;
  static_cast<Contraction&>(c) = *matched;
  c.is_scattered = c.reduce.size() == 1;
  c.is_memory_bound = is_memory_bound(c.read_b().buffer, count_most_iterations(analysis, c.rows), target);
  return c;
}

// Whether sums of several rows in a vector can be those of the block.
bool may_be_matrices(const Schedule& schedule, const BlockRef& block, const Contraction& c, const Atom& atom) {
  const BlockAnalysis& analysis = c.analysis;
  if (!c.has_rows() || analysis.is_open(c.rows.back()) || c.m() < atom.m) return false;
  if (c.is_grouped() || c.parts.is_defined()) return false;
  // Rows lie one stride apart.
  if (!unit_stride(c.read_a(), c.rows.back(), analysis.iters, static_cast<int>(c.m()))) return false;
  // Whole columns are read; those that a copy pads hold nothing.
  if (!is_weight(schedule, c.read_b()) && analysis.extent(c.vector_axis) % atom.n != 0) return false;
  return !find_epilogues(schedule, block).blocks.empty() || has_identity_write(analysis);
}

// Sums of matrices are written row by row, and read again.
double cycles_to_leave(const Product& product) {
  constexpr double cycles_a_vector = 2;
  return cycles_a_vector * static_cast<double>(product.batches * product.m * product.n_vectors);
}

}  // namespace

std::optional<Plan> plan_of_words(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                  const Target& target) {
  const DType sum = analysis.write.buffer->dtype;
  const auto dot = dot_of(analysis.reads[0].buffer->dtype, analysis.reads[1].buffer->dtype, sum, target);
  const auto dot_for = [&](const Contraction&) { return dot; };
  const auto matrix_for = [&](const Contraction& c) {
    const auto atom = matrix_product_of(c.read_a().buffer->dtype, c.read_b().buffer->dtype, sum, target);
    return atom && may_be_matrices(schedule, block, c, *atom) ? atom : std::nullopt;
  };
  auto plan = dot ? match_words(schedule, block, analysis, dot_for, target) : std::nullopt;
  if (const auto matrices = match_words(schedule, block, analysis, matrix_for, target)) {
    const Product product = product_of(*matrices, target);
    if (!plan || least_cost(product, target) + cycles_to_leave(product) < least_cost(product_of(*plan, target), target))
      plan = matrices;
  }
  if (!plan) return std::nullopt;
  const auto packing = choose_packing(schedule, *plan, target);
  if (!packing) return std::nullopt;
  plan->packing = *packing;
  decide_tile_and_skipped_padding(schedule, block, product_of(*plan, target), *plan, target);
  return plan;
}

}  // namespace tw::cpu
