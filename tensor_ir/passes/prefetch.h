// What a schedule asks of insert_prefetches and prefetch_pieces.
#pragma once

#include "tensor_ir/ir.h"

namespace tw {

// A serial loop with these names a buffer that its body streams from memory, and how many bytes ahead to ask for it.
inline constexpr const char* prefetch_attribute = "prefetch";
inline constexpr const char* prefetch_bytes_attribute = "prefetch_bytes";

// A buffer that is read in pieces of `prefetch_bytes`, each by several iterations of loops with `prefetch_parts` (so
// many of the loop's, one after the other): the loop with `prefetch_next`, within them, asks for the next piece
// meanwhile, an equal part in each iteration.
inline constexpr const char* prefetch_next_attribute = "prefetch_next";
inline constexpr const char* prefetch_parts_attribute = "prefetch_parts";

// Of what an index names: an element, a vector of them or a tile.
Expr first_element(const Expr& index);

}  // namespace tw
