// Sorting as loops, and rows that are worked on in parallel, for operators that are loops.
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

// body(row) for each index tuple of `rows`, shared out among the cores where there is enough to do; `elements`: of a
// row.  As an operator's only statement.
Stmt rows_in_parallel(const std::vector<Expr>& rows, const Expr& elements,
                      const std::function<Stmt(const te::Indices& row)>& body);

// body(i) for i in 0 … extent, in vectors as far as these are full.
Stmt in_vectors(const Expr& extent, const std::function<Stmt(const Expr& i)>& body);

// A buffer for that, or for numbers that loops hand on.
Buffer scratch(const char* name, DType dtype, std::vector<Expr> shape);

}  // namespace tw::relay
