// Terms of a window's sum that are padding, which tiles of few neighbours need not add: those of a window that is
// spread over a small map see little else.
#pragma once

#include "targets/cpu/contraction/plan.h"

namespace tw::cpu {

// Decides the plan's tile, by the time that sums take where it leaves out what is nothing but padding for it, and
// whether it does so (the decision "skip_padding"): then axes of the window are the first of k.
void decide_tile_and_skipped_padding(Schedule& schedule, const BlockRef& block, Product product, Plan& plan,
                                     const Target& target);

}  // namespace tw::cpu
