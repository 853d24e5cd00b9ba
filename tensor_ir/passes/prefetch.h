// What a schedule asks of insert_prefetches and prefetch_pieces.
#pragma once

#include "tensor_ir/ir.h"

namespace tw {

enum class Cache { first, second, third };

// A loop with prefetch_l1 = {B: 1024} asks for what its body reads of B, 1024 bytes later, to come to the first cache;
// with prefetch_l2 to the second, with prefetch_l3 to the third.
const char* prefetch_attribute(Cache cache);

// A buffer that is read in pieces, each by several iterations of loops with `prefetch_parts` (so many of the loop's,
// one after the other; of a loop of open extent all, if they are as many): within them the loop with
// prefetch_next = {B: bytes of a piece} asks for the next piece meanwhile, an equal part in each iteration.
inline constexpr const char* prefetch_parts_attribute = "prefetch_parts";
inline constexpr const char* prefetch_next_attribute = "prefetch_next";

// Of what an index names: an element, a vector of them or a tile.
Expr first_element(const Expr& index);

}  // namespace tw
