// Shared by the primitives that round extents of a block up.
#pragma once

#include "schedule/edit.h"

namespace tw {

// An iteration variable whose extent is no multiple of what is given for it, and the loop of its own that it is bound
// to.
struct PaddedIteration {
  const IterVar* iter;
  const For* loop;
  Expr extent;  // that both are to have
};
// One multiple for each of the block's variables, 1 leaves it.  Refused where the variable's loop holds anything else.
std::vector<PaddedIteration> iterations_to_pad(const ScheduleEdit& edit, const BlockRef& ref,
                                               const std::vector<int64_t>& multiples);
// The body with the loop as long; other loops may have changed around it, or in it.
Stmt with_extent(const Stmt& body, const Var& loop, const Expr& extent);

}  // namespace tw
