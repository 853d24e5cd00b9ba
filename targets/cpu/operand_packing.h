// Operands of a contraction in the order in which register tiles read them, copied by the worker that uses them: what
// it has packed is in its own caches when its tiles come to it, and no pass over the operand goes before.
//
//   for panel parallel {                          P: on the worker's stack
//     for k { for v { P[k, v] = B[k, panel·N + v] } }
//     for rows, k { Cr[…] += A[…] * P[k, …] }
//   }
#pragma once

#include "schedule/schedule.h"
#include "targets/cpu/contraction_match.h"
#include "targets/cpu/tile_model.h"

namespace tw::cpu {

// Makes the part of the copy that one iteration of `loop` needs, with vectors along the copy's dimension `axis`.
void pack_at(Schedule& schedule, const BlockRef& copy, const LoopRef& loop, int axis, int lanes);

// Whether the schedule may store the operand otherwise: weights of this block alone.
bool is_weight(const Schedule& schedule, const Access& operand);
// A copy of the operand that is stored by `map`; it has no place yet.
BlockRef pack_copy(Schedule& schedule, const BlockRef& block, const Access& operand, Scope scope, const IndexMap& map);

enum class Packing {
  none,      // B stays as it is
  constant,  // weights are stored in panels
  ahead,     // a pass over B goes before
  panel,     // the worker that uses a panel packs it, and it stays in that worker's caches
};

// How B gets into panels, which pays when they are used often; nothing: it does not, and cannot be read as vectors.
std::optional<Packing> choose_packing(const Schedule& schedule, const Contraction& c, const RegisterTile& tile,
                                      int64_t n_vectors, int lanes, bool packs_a, const Target& target);

// The layout of a packed operand, dimension by dimension, after those of one element.
class PackedLayout {
 public:
  explicit PackedLayout(const Access& operand);
  // The operand's dimension that is this iteration; not defined where there is none of more than one element.
  Expr dimension(const Var& iteration) const;
  void add(const Expr& dimension) { map_.to.push_back(dimension); }
  void add(const std::vector<Var>& iterations);  // those that the operand has
  // The axes of k, that of words by the loops it is split into (split_words), the last of which are left to the
  // caller: as many as there are steps.
  std::vector<Expr> add_words(const Contraction& c, const Words& words, const std::vector<int64_t>& steps);
  const IndexMap& map() const { return map_; }

 private:
  const Access& operand_;
  IndexMap map_;
};

// The loops along k, those over the steps of words apart.
struct WordLoops {
  std::vector<LoopRef> reduce, steps;
};
WordLoops split_words(Schedule& schedule, const BlockRef& block, const Contraction& c, const Words& words,
                      const std::vector<int64_t>& steps);
// Stores B by `map`, which has words of g elements: weights when they are compiled, other operands by a copy in front
// of the block, whose vectors run along `lanes` columns.
void pack_words(Schedule& schedule, const BlockRef& block, const Contraction& c, const Words& words, int64_t g,
                const IndexMap& map, int lanes);

// B as [batch …, panel, k …, element of the panel], k in the order of the loops; a blocked k as its two loops are.
// Likewise A, whose panels are rows of tiles, with other axes of rows in front: `axis` is what panels are cut from.
IndexMap packing_map(const Access& b, const Contraction& c, const Var& axis, int64_t panel,
                     const std::vector<Var>& blocked, int granule);

// The axis of rows next to the innermost, of more than one element: image rows of a convolution.  None where their
// number or length is known only when the kernel runs.
std::optional<Var> axis_around_rows(const Contraction& c);

// The block of rows whose A is packed, where A is contiguous along the rows: there each step along k reads another line
// and another page.  So many tiles, or with an axis around the rows so many of its elements, with all their tiles.
// 0: A stays as it is.  The decision "row_packing", where both are possible: what packing takes for each line once
// against what each panel takes for it.
int64_t decide_row_packing(Schedule& schedule, const BlockRef& block, const Contraction& c, const RegisterTile& tile,
                           int64_t n_vectors, const Target& target);

}  // namespace tw::cpu
