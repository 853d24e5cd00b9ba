// Operands of a contraction in the order in which register tiles read them, copied by the worker that uses them: what
// it has packed is in its own caches when its tiles come to it, and no pass over the operand goes before.
//
//   for panel parallel {                          P: on the worker's stack
//     for k { for v { P[k, v] = B[k, panel·N + v] } }
//     for rows, k { Cr[…] += A[…] * P[k, …] }
//   }
#pragma once

#include "schedule/schedule.h"
#include "targets/cpu/block_analysis.h"

namespace tw::cpu {

// Whether so many equal tasks leave no worker without work for long.
bool is_even_share(int64_t tasks, int threads);

// Makes the part of the copy that one iteration of `loop` needs, with vectors along the copy's dimension `axis`.
void pack_at(Schedule& schedule, const BlockRef& copy, const LoopRef& loop, int axis, int lanes);

}  // namespace tw::cpu
