// How accesses of a block move through memory with the loops around it.
#pragma once

#include <optional>
#include <vector>

#include "targets/analysis/block_analysis.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::analysis {

// Where an access is in its buffer, in elements, by the loops around its block; and what is known of these.
struct PlaceInLoops {
  Expr offset;
  Assumptions ranges;
};
PlaceInLoops place_in_loops(const Schedule& schedule, const BlockRef& block, const Access& access);
// Elements that an access moves when the loop advances by one; nothing when that is not constant.
std::optional<int64_t> loop_stride(const Schedule& schedule, const BlockRef& block, const Access& access,
                                   const LoopRef& loop);
// The same where it may be of the Func's parameters; not defined when it depends on anything else.
Expr loop_step(const Schedule& schedule, const BlockRef& block, const Access& access, const LoopRef& loop);
// Fuses neighbouring loops, outermost first, wherever every access moves through both as through one.
void merge_loops(Schedule& schedule, const BlockRef& block, std::vector<LoopRef>& loops);

}  // namespace tw::analysis
