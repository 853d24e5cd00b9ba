// Contractions of small elements whose atom is a product of tiles by the target's unit:
//
//   alloc Cr: f32[…, R·16] in register         one tile for each i and j
//   Cr = 0                                     tile_zero
//   for k … {
//     for i in 0..I unrolled { for j in 0..J unrolled {
//       for m in 0..R tensorized { for n in 0..16 { for l in 0..K { for t in 0..g {        tile_dot
//         Cr[i, j, m, n] += A[… i·R + m, k·K·g + l·g + t] * B_packed[panel, k, j, l, n, t]
//   }}}}}}
//   S = Cr                                     tile_store: to memory that stays in the first cache
//   C[…] = epilogue(S)
//
// Rows of A are read as they lie in memory.  B is packed: the words of one tile are 1 KiB without gaps, and those that
// a step multiplies stand one after the other.  A last tile of rows is a smaller one; where the number of rows is open,
// a copy of A fills it up instead, since a tile's size is in the code.  The last columns are computed whole and left
// out when C is written.
#include <algorithm>

#include "runtime/rounding.h"
#include "targets/cpu/contraction/packing.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::cpu {
namespace {

// The most words that a product can take so that all products of a granule take as many; 0: less than two.
int64_t words_of_product(int64_t granule, const Atom& atom) {
  const int64_t words = granule / atom.steps.back();
  for (int64_t taken = std::min(words, atom.steps[0]); taken >= 2; --taken)
    if (words % taken == 0) return taken;
  return 0;
}

bool has_whole_tiles(const Contraction& c, const Atom& atom) {
  return is_known_equal(floor_mod(c.analysis.iter(c.rows.back()).extent, atom.m), 0);
}

// Of rows that lie one after the other, not of a window's: all that a tile reads is copied once.  Where most of a tile
// is usually filled up, as for a batch of one, vectors do as well.
bool may_fill_rows(const Contraction& c, const Atom& atom) {
  constexpr double least_share = 0.6;
  const int64_t typical = c.analysis.typical_extent(c.rows.back());
  const double share = static_cast<double>(typical) / static_cast<double>(round_up(typical, atom.m));
  return c.reduce.size() == 1 && dimension_of(c.read_a(), c.rows.back()) >= 0 && share >= least_share;
}

// Whether tiles can and should do it.
bool is_for_tiles(const Schedule& schedule, const BlockRef& block, const Contraction& c, const Atom& atom) {
  const BlockAnalysis& analysis = c.analysis;
  if (!c.has_rows()) return false;
  if (analysis.is_open(c.rows.back())) {
    if (!has_whole_tiles(c, atom) && !may_fill_rows(c, atom)) return false;
  } else if (c.m() < 4 || count_most_iterations(analysis, c.rows) < 5) {
    return false;  // few rows leave the unit idle: vectors do as well
  }
  // A tile reads whole columns; those that a copy pads hold nothing.
  if (!is_weight(schedule, c.read_b()) && analysis.extent(c.vector_axis) % atom.n != 0) return false;
  return !find_epilogues(schedule, block).blocks.empty() || has_identity_write(analysis);
}

// Rows up to a multiple of the atom's, in a copy of A by a pass before; what is made of them is left out.
void fill_rows(Schedule& schedule, const BlockRef& block, const Contraction& c, const Atom& atom,
               const Target& target) {
  std::vector<int64_t> multiples;
  for (const IterVar& iter : c.analysis.iters) multiples.push_back(iter.var == c.rows.back() ? atom.m : 1);
  const Buffer result = c.analysis.write.buffer;
  const bool has_epilogue = !find_epilogues(schedule, block).blocks.empty();
  schedule.pad_operands(block, multiples);
  const Buffer filled = analyse(schedule.node(block)).reads[static_cast<size_t>(c.a)].buffer;
  schedule_elementwise(schedule, writer_of(schedule, filled).value(), target);
  if (has_epilogue) schedule.compute_inline(writer_of(schedule, result).value());
}

// Elements of a block of the layout along k, [… k // block … k % block], if the last block is not full.
std::optional<int64_t> partial_block(const Access& a, const Var& k, int64_t extent) {
  std::optional<int64_t> block, blocks = 1;
  for (size_t d = 0; d < a.indices.size(); ++d) {
    const Expr& index = a.indices[d];
    if (!uses_var(index, k)) continue;
    const auto* digit = index.as<Binary>();
    const auto length = as_int(a.buffer->shape[d]);
    const bool is_of_k = digit && digit->a.get() == k.get();
    if (index.get() == k.get() || (is_of_k && digit->op == BinaryOp::floor_mod && as_int(digit->b) == length))
      block = length;
    else if (is_of_k && digit->op == BinaryOp::floor_div)
      blocks = length;
    else
      return std::nullopt;
  }
  const bool has_room = block && blocks && *block > 0 && divide_up(extent, *block) <= *blocks;
  return has_room && extent % *block != 0 ? block : std::nullopt;
}

// Products take whole blocks of A's layout, where the last one is not full as well: B's layout has zeros there.
bool fill_blocks(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis) {
  if (!analysis.write.buffer->dtype.is_integer() || analysis.reads.size() != 2) return false;
  for (size_t i = 0; i < analysis.iters.size(); ++i) {
    const Var& k = analysis.iters[i].var;
    if (analysis.iters[i].kind != IterKind::reduce || analysis.is_open(k)) continue;
    for (const size_t a : {0, 1}) {
      const Access& b = analysis.reads[1 - a];
      const int along = dimension_of(b, k);
      const auto whole = partial_block(analysis.reads[a], k, analysis.extent(k));
      if (!whole || along < 0 || !is_weight(schedule, b)) continue;
      IndexMap map = layout_of(b.indices.size());
      map.to.assign(map.from.begin(), map.from.end());
      const auto padded = map.to.begin() + along;
      const Expr index = *padded, extent(divide_up(analysis.extent(k), *whole) * *whole);
      *padded = floor_mod(index, extent);
      map.to.insert(padded, floor_div(index, extent));
      schedule.transform_layout(b.buffer->name, map);
      std::vector<int64_t> multiples(analysis.iters.size(), 1);
      multiples[i] = *whole;
      schedule.pad_terms(block, multiples);
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Plan> plan_on_tile_unit(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                      const Target& target) {
  if (target.tiles.products.empty()) return std::nullopt;
  if (fill_blocks(schedule, block, analysis))
    return plan_on_tile_unit(schedule, block, analyse(schedule.node(block)), target);
  const DType sum = analysis.write.buffer->dtype;
  const int lanes = target.lanes(sum);
  Plan found;
  const auto has_words = [&](const Contraction& c) {
    const auto atom = tile_product_of(c.read_a().buffer->dtype, c.read_b().buffer->dtype, sum, target);
    if (!atom || (c.is_grouped() && c.group % atom->n != 0)) return false;
    const auto words = find_words(c, atom->steps.back(), lanes);
    if (!words || !has_plain_indices(c.read_b())) return false;
    found.atom = *atom;
    found.atom.steps[0] = words_of_product(words->granule, *atom);
    if (found.atom.steps[0] == 0) return false;
    found.split = {words->split(found.atom.steps)};
    return true;
  };
  auto matched = match_contraction(schedule, block, analysis, lanes, has_words);
  if (!matched) matched = match_across(schedule, block, analysis, has_words);
  if (!matched || !is_for_tiles(schedule, block, *matched, found.atom)) return std::nullopt;
  static_cast<Contraction&>(found) = *matched;
  const bool is_open = analysis.is_open(found.rows.back());
  if (is_open && !has_whole_tiles(found, found.atom)) {
    fill_rows(schedule, block, found, found.atom, target);
    return plan_on_tile_unit(schedule, block, analyse(schedule.node(block)), target);
  }
  // Tiles of a row are as equal as they can be.
  if (!is_open) found.atom.m = divide_up(found.m(), divide_up(found.m(), found.atom.m));
  found.packing = choose_packing(schedule, found, target).value();
  found.tile = decide_tile(schedule, product_of(found, target), target);
  return found;
}

}  // namespace tw::cpu
