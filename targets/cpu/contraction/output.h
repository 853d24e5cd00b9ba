// How the tile of a contraction leaves the registers.
#pragma once

#include "targets/cpu/contraction/plan.h"

namespace tw::cpu {

// The block's results within `tile` in registers, set to zero in front of the loop `first_k`, and the epilogue or a
// copy on vectors of them.  Tiles of a unit, those of matrices, and those that code generation transposes because
// results are contiguous along their columns, go through memory that stays in the first cache.  Gives the blocks that
// write the results.
std::vector<BlockRef> write_tile(Schedule& schedule, const BlockRef& block, const Plan& plan, const LoopRef& tile,
                                 const LoopRef& first_k, const Target& target);

// Steps along k of one iteration, of a loop of so many steps that are so many multiply-adds of vectors each: a divisor,
// or of a long loop any few, whose rest is code of its own where `has_rest`.  The decision "k_unroll".
int64_t decide_k_unroll(Schedule& schedule, int64_t extent, int64_t multiply_adds, int64_t analytic, bool has_rest,
                        const Target& target);

// A product that is a stage of something: computed within `tile`, its results in registers, with vectors along spatial
// axis number `vector_axis`, or the last, which their layout then has last.  The loops of the sum, its last ones, come
// first, a few steps of the innermost unrolled.  Gives that loop.
LoopRef tile_in_registers(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes,
                          const Target& target, std::optional<size_t> vector_axis = {});

}  // namespace tw::cpu
