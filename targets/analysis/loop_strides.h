// How accesses of a block move through memory with the loops around it.
#pragma once

#include <optional>
#include <vector>

#include "targets/analysis/block_analysis.h"

namespace tw::analysis {

// Elements that an access moves when the loop advances by one; nothing when that is not constant.
std::optional<int64_t> loop_stride(const Schedule& schedule, const BlockRef& block, const Access& access,
                                   const LoopRef& loop);
// The same where it may be of the Func's parameters; not defined when it depends on anything else.
Expr loop_step(const Schedule& schedule, const BlockRef& block, const Access& access, const LoopRef& loop);
// Fuses neighbouring loops, outermost first, wherever every access moves through both as through one.
void merge_loops(Schedule& schedule, const BlockRef& block, std::vector<LoopRef>& loops);

}  // namespace tw::analysis
