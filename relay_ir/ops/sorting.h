// Sorting as loops.
#pragma once

#include <functional>

#include "tensor_ir/te.h"

namespace tw::relay {

// Puts the positions 0 … count - 1 into `order`, an i64[2, count], so that its first row has them in order: stably, by
// merging runs of 1, 2, 4 … positions (Knuth, The Art of Computer Programming, volume 3, 5.2.4).  `is_before`: whether
// what is at position a comes strictly before what is at b.
Stmt merge_sort(const Buffer& order, const Expr& count,
                const std::function<Expr(const Expr& a, const Expr& b)>& is_before);

// Whether a comes strictly before b, from the smallest number up, NaN last.
Expr comes_before(const Expr& a, const Expr& b);

}  // namespace tw::relay
