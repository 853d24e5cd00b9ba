// A contraction's plan: what a template decided, from which one function makes the schedule.
//
//   for panel, rows … parallel {            panels of B outermost: a worker streams its weights once
//     for k … {
//       for around { for i in 0..R { for v in 0..V unrolled {                           the register tile, of atoms:
//         Cr[…] += A[…] * B_packed[panel, k, …]
//     }}}}
//     C[…] = epilogue(Cr)                   still in registers
//   }
//
// Its templates are a matcher and a source of candidates each: multiply_adds.cpp (f32, one element of k at a time, also
// of groups), words.cpp (dot products and matrices of small elements), tile_unit.cpp (a unit for products of tiles).
// All of them ask the same chooser for the tile.
//
// Weights are stored in panels.  Another B is packed by the worker that uses a panel, or by a pass before; A, where it
// is contiguous along the rows instead of k, by blocks of rows, which are outermost then (packing.h).
//
// Where what is made of C takes elements of several equal parts of it along j (gates, the two halves of a GLU), the
// tile has as many vectors of each part, which lie beside each other in a panel.
//
// A tile's rows are of A's innermost axis, or several whole rows of it where they are short (maps of 7 × 7).  Where C
// is contiguous along the rows instead of j, the tile is transposed on its way out (output.h).
#pragma once

#include <functional>

#include "runtime/rounding.h"
#include "targets/analysis/block_relations.h"
#include "targets/cpu/contraction/atom.h"
#include "targets/cpu/contraction/match.h"
#include "targets/cpu/contraction/tile_model.h"

namespace tw::cpu {

enum class Packing {
  none,      // B stays as it is
  constant,  // weights are stored in panels
  ahead,     // a pass over B goes before
  panel,     // the worker that uses a panel packs it, and it stays in that worker's caches
};

// A block of rows whose A is packed (packing.h): so many tiles, or so many whole rows of the axis around the innermost.
struct RowPacking {
  int64_t together = 0;  // 0: A stays as it is
  bool has_whole_rows = false;
};

struct Plan : Contraction {
  Atom atom;
  RegisterTile tile;             // atoms along the rows, along the axis around them, and along the columns
  std::vector<SplitAxis> split;  // axes of k that are several loops
  size_t skipped = 0;            // so many axes of k come first, those of a window: what is padding there is left out
  bool is_scattered = false;     // each row of A is contiguous along k, and rows lie apart
  bool is_memory_bound = false;  // B comes from memory, and takes the time
  RowPacking row_packing;
  Packing packing = Packing::none;

  // Where their number is open, those that tiles should be good for, fewest first.
  std::vector<int64_t> usual_rows() const;
  bool packs_a() const { return row_packing.together > 0; }
  bool is_packed_at_use() const { return packing == Packing::panel || packs_a(); }
  int64_t tile_rows() const { return atom.m * tile.rows * tile.around; }
  int64_t panel() const { return atom.n * tile.vectors; }
  int64_t panel_of_part() const { return panel() / n_parts(); }
  int64_t panels() const { return divide_up(analysis.extent(vector_axis), panel_of_part()); }
  int64_t k_steps() const { return k_count() / atom.k(); }
  // A tile has all of the innermost rows, several times.
  bool has_whole_rows() const { return tile.around > 1 && !atom.is_on_tiles(); }
  // The axis of rows next to the innermost, where tiles may reach.
  std::optional<Var> axis_around() const;
  const SplitAxis* find_split(const Var& k) const;
};

// Plans of the block, which is `analysis`; nothing where the template does not apply.
std::optional<Plan> plan_on_tile_unit(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                      const Target& target);
std::optional<Plan> plan_of_words(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                  const Target& target);
std::optional<Plan> plan_of_multiply_adds(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                          const Target& target);
// The decision "join_parts": whether a tile has vectors of each of the equal parts along the columns of weights, so
// that what is made of the parts is made in registers; otherwise another pass makes it.  Tiles of many parts are less
// even.
std::optional<EqualParts> decide_parts(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                       const Target& target);

// A product as its register tile sees it: of `batches`, each m × n_vectors × k, where rows, vectors and steps of k are
// of the atom.  Costs are cycles of one core.
struct Product {
  int64_t m = 1, n_vectors = 1, k = 1;
  std::vector<int64_t> usual_m = {};  // of an open m: what tiles are compared by
  int64_t around = 1;                 // …and so many m rows, of which a tile may have several
  std::function<double(const RegisterTile&)> share_of_work = {};  // of tiles that leave something out
  Sweep sweep = {};
  int64_t batches = 1;
  bool is_memory_bound = false;
  int64_t group = 0;  // of so many columns, which panels divide: a batch ends with them
  int64_t parts = 1;  // of the n vectors, of each of which a tile has as many
  Atom atom = {};     // columns a vector are its n
};
// Columns of a panel of so many vectors: 0 where such panels do not divide the group.
int64_t panel_width(const Product& product, int vectors);
// The decision "tile", "matrices" for these, or "tiles" of the unit for these: what is predicted to take the fewest
// cycles, and panels for all workers where B is a stream from memory.
RegisterTile decide_tile(Schedule& schedule, const Product& product, const Target& target);
// The cycles that the best tile is predicted to take; infinite where no registers hold one.
double least_cost(const Product& product, const Target& target);
// The product of a plan that has no tile yet.
Product product_of(const Plan& plan, const Target& target);

// Schedules the block by the plan.
void apply_plan(Schedule& schedule, const BlockRef& block, const Plan& plan, const Target& target);

}  // namespace tw::cpu
