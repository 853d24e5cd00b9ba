// Operands of a contraction in the order in which register tiles read them, copied by the worker that uses them: what
// it has packed is in its own caches when its tiles come to it, and no pass over the operand goes before.
//
//   for panel parallel {                          P: on the worker's stack
//     for k { for v { P[k, v] = B[k, panel·N + v] } }
//     for rows, k { Cr[…] += A[…] * P[k, …] }
//   }
#pragma once

#include "schedule/schedule.h"
#include "targets/cpu/contraction/plan.h"

namespace tw::cpu {

// Makes the part of the copy that one iteration of `loop` needs, with vectors along the copy's dimension `axis`.
void pack_at(Schedule& schedule, const BlockRef& copy, const LoopRef& loop, int axis, int lanes);

// Whether the schedule may store the operand otherwise: weights of this block alone.
bool is_weight(const Schedule& schedule, const Access& operand);
// A copy of the operand that is stored by `map`; it has no place yet.
BlockRef pack_copy(Schedule& schedule, const BlockRef& block, const Access& operand, Scope scope, const IndexMap& map);

// How B gets into panels, which pays when they are used often; nothing: it does not, and cannot be read as vectors.
std::optional<Packing> choose_packing(const Schedule& schedule, const Plan& plan, const Target& target);

// An operand as [batch …, other rows …, panel, k …, element of the panel, word], k in the order of the loops: panels
// are cut from `axis`.
IndexMap packing_map(const Plan& plan, const Access& operand, const Var& axis, int64_t panel);

// Stores the operands as the plan says.
struct PackedOperands {
  std::optional<BlockRef> a, b;  // copies; those that are made where they are used have no place yet
  Access panels;                 // what the block reads of B then
};
PackedOperands pack_operands(Schedule& schedule, const BlockRef& block, const Plan& plan, const Target& target);

// The block of rows whose A is packed, where A is contiguous along the rows: there each step along k reads another line
// and another page.  It has several tiles, or where rows are short and have an axis around them whole rows.  The
// decision "row_packing", where packing and none are possible: what packing takes for each line once against what each
// panel takes for it.
RowPacking decide_row_packing(Schedule& schedule, const BlockRef& block, const Plan& plan, const Target& target);

}  // namespace tw::cpu
