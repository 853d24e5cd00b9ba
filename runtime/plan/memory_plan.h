// Offsets in the arena: tensors that are never alive together share memory.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/size.h"

namespace tw {

struct ArenaTensor {
  Size bytes = 0;
  int first = 0, last = 0;  // steps (or phases of steps) that it must survive, both included
  int64_t offset = -1;      // the answer
  // Of one that is placed again and again, as a loop's steps give it another size, in memory of its own: the tensor
  // that takes what was in it when that one is placed, by turns, or itself, where it stays; -1: what was in it is lost.
  int32_t before = -1;
};

// Fills in the offsets of tensors of known sizes, multiples of 64, and returns the size of the arena.  Larger tensors
// choose first, each the lowest gap that fits: close to the lower bound on networks (Pisarchyk and Lee, 2020, "greedy
// by size").
int64_t plan_memory(std::vector<ArenaTensor>& tensors);

}  // namespace tw
