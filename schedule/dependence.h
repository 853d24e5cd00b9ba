// Dependences: which accesses may touch the same element, and in which iterations.
//
// Regions are derived from the bodies of blocks, never stored.  Two accesses conflict when they may touch one element
// and one of them writes.  A loop *carries* a conflict when it may happen between two different iterations of it. The
// test proves, dimension by dimension, that equal indices imply equal loop variables: from
//   c·(v - v') + rest = 0 with |rest| < |c|   follows   v = v'
// What both accesses' blocks ask for (in a tail: 16·i + j < 24) bounds the rest, too.
// Quotients and remainders count as variables of their own; when both of `e // k` and `e % k` agree, so does e.
#pragma once

#include <optional>
#include <vector>

#include "schedule/tree.h"
#include "tensor_ir/arith/region.h"
#include "tensor_ir/ir.h"

namespace tw {

struct Access {
  Buffer buffer;
  std::vector<Expr> indices;  // in terms of loops: iteration variables are replaced by their bindings
  bool is_write = false;
  std::vector<const For*> loops;        // around it, outermost first, those inside blocks included
  const Block* block = nullptr;         // null: a statement in no block
  const StmtNode* statement = nullptr;  // the block, or the Store
  int position = 0;                     // in the order of the text
};

// Every Load and Store under `root`; `outer`: loops around the root itself.
std::vector<Access> accesses_in(const Stmt& root, const std::vector<const For*>& outer = {});

// Ranges of loop variables.
Assumptions ranges_of(const std::vector<const For*>& loops);
InnerExtents extents_of(const std::vector<const For*>& loops);

// The loops that both accesses are in, from the outside.
std::vector<const For*> common_loops(const Access& a, const Access& b);

// Of the loops in `common`, with the variables in `fixed` taken to be equal: those whose variables are proven equal
// whenever a and b touch the same element.  Other loops of a and b vary freely.
std::vector<Var> proven_equal(const Access& a, const Access& b, const std::vector<const For*>& common,
                              const std::vector<Var>& fixed);

struct Conflict {
  Access first, second;
};
// A conflict that `loop` (a loop in root) may carry, between accesses to buffers that are not allocated inside of it.
// are_threads: those of one thread block, which share what is not local; different statements may meet in shared
// memory.
std::optional<Conflict> carried_conflict(const Stmt& root, const For& loop, bool are_threads = false);

// The combiner of a reduction block: body is  B[i] = combine(B[i], value), value does not read B.
struct Reduction {
  Buffer buffer;
  std::vector<Expr> indices;
  Expr value;
  Expr identity;  // value of init; not defined when the block has none
  std::function<Expr(Expr, Expr)> combine;
};
std::optional<Reduction> as_reduction(const Block& block);
// Of one that as_reduction takes.
bool is_maximum(const Block& reduction);
bool is_addition(const Block& reduction);
// What is multiplied, without conversions; nothing when the block is no sum of products of two loads.
std::vector<const Load*> factors_of(const Block& block);

// Loops that the reduce (spatial) iterations of the block are bound to.
bool is_reduce_loop(const Block& block, const Var& loop);
bool is_spatial_loop(const Block& block, const Var& loop);

// What a block's accesses of a buffer touch while the loops in `inner` run: a range for each dimension; the whole
// dimension where that is not understood.
std::vector<SymbolicRange> region_of(const std::vector<Access>& accesses, const Buffer& buffer,
                                     const std::vector<Var>& outer, const Assumptions& assumptions);

// One loop for each iteration variable, with its extent and no predicate: how Funcs begin.
bool covers_domain(const Block& block, const std::vector<const For*>& loops);

}  // namespace tw
