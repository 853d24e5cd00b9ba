// Shared by the primitives that move blocks.
#pragma once

#include "schedule/edit.h"

namespace tw {

// Where the paths to two nodes part: a Seq (or nothing, when one is on the path to the other).
struct Parting {
  const Seq* list = nullptr;
  size_t first = 0, second = 0;    // the children of the list that hold the two nodes
  std::vector<const For*> common;  // loops around both
};
Parting parting_of(const Path& first, const Path& second);

// A block that is to run in another loop, and what is around that loop.  Refused: lanes, and blocks whose loops never
// covered their iterations plainly.
struct Move {
  Move(const ScheduleEdit& edit, const BlockRef& block, const LoopRef& loop);
  Path block_path, loop_path;
  Stmt here;  // the block
  const Block& block;
  const For& loop;
  std::vector<const For*> around;  // the loop itself included
  std::vector<Var> outer;          // their variables
  Assumptions ranges;
};
// In the new body the block stands where all that it uses exists.
void check_in_scope(const ScheduleEdit& edit, const Move& move, const Stmt& body, const std::string& help);

// The iterations that the block runs in one iteration of the `outer` loops, over its `own` loops inside of them, and
// what part of its predicate speaks of the outer loops only.  Refused when they are not a box: then the block cannot be
// given loops anew.
struct OwnIterations {
  std::vector<SymbolicRange> ranges;
  Expr guard;  // not defined: none
};
OwnIterations own_iterations(const ScheduleEdit& edit, const Block& block, const std::vector<const For*>& outer,
                             const std::vector<const For*>& own);
bool is_whole(const SymbolicRange& range, const Expr& extent);
bool is_within(const SymbolicRange& inner, const SymbolicRange& outer, const Assumptions& assumptions);

// One loop for each iteration variable with the range of values given in terms of loops around, and the block bound to
// them; where a value may fall outside of 0 ≤ v < extent, or of its `limits`, the block's predicate says so.  Ranges of
// reduce iterations are whole.
Stmt block_over(const Block& block, const std::vector<SymbolicRange>& ranges, const Assumptions& assumptions,
                const OwnIterations& limits = {});

// For each iteration variable the values that are needed for the elements `region` of a buffer that the block accesses
// at `indices`.  `is_exact`: no others touch the region.
struct NeededIterations {
  std::vector<SymbolicRange> ranges;
  bool is_exact = true;
};
NeededIterations iterations_for(const Block& block, const std::vector<Expr>& indices, const Buffer& buffer,
                                const std::vector<SymbolicRange>& region, const Assumptions& assumptions);

// The only block that writes a buffer; refused when there are others, or when something that is no block does.
const Block& only_writer(const ScheduleEdit& edit, const Buffer& buffer);

// The child of a loop's body before (after) which a block goes: the first that reads (the last that writes) one of the
// buffers.
Stmt insert_before_use(const Stmt& body, const std::vector<Buffer>& read, const Stmt& block);
Stmt insert_after_writers(const Stmt& body, const std::vector<Buffer>& written, const Stmt& block);

bool reads_any(const Stmt& s, const std::vector<Buffer>& buffers);
bool writes_any(const Stmt& s, const std::vector<Buffer>& buffers);
// Buffers whose allocation is not around the last node of the path although the buffer is not a parameter.
std::vector<Buffer> out_of_scope(const Func& f, const Stmt& user, const Path& path);

}  // namespace tw
