// How the tile of a contraction leaves the registers.
#pragma once

#include "targets/cpu/contraction_match.h"

namespace tw::cpu {

// A tile that goes through memory, which stays in the first cache.
struct StackTile {
  BlockRef copy;              // of the registers to memory
  std::vector<BlockRef> out;  // what is made of it: the epilogue, or a copy
  Buffer in_registers;        // both are still stored as the result is
  std::string in_memory;
};
StackTile keep_on_stack(Schedule& schedule, const BlockRef& block, const LoopRef& tile);

// The block's results within `tile` in registers, set to zero in front of the loop `first_k`, and the epilogue or a
// copy on vectors of them; across, on columns of the tile, which code generation transposes.  Gives the blocks that
// write the results.
std::vector<BlockRef> write_tile(Schedule& schedule, const BlockRef& block, const Contraction& c, const LoopRef& tile,
                                 const LoopRef& first_k, int lanes);

// Vectors of a tile in memory along its rows, for some of its columns at a time.
void vectorize_columns(Schedule& schedule, const BlockRef& out, const Contraction& c, const LoopRef& tile, int lanes);

}  // namespace tw::cpu
