// What operators that are loops rather than tensor expressions are written with: loops, in vectors and in parallel.
#pragma once

#include <functional>
#include <string>

#include "relay_ir/op.h"

namespace tw::relay {

// for each index tuple of `extents`: body(tuple)
Stmt loops_over(const std::vector<Expr>& extents, const std::function<Stmt(const te::Indices&)>& body);

// body(i) for i in 0 … extent, in vectors as far as these are full.
Stmt in_vectors(const Expr& extent, const std::function<Stmt(const Expr& i)>& body);

// body(i) for each index tuple, in vectors along the last axis.
Stmt rows_in_vectors(const std::vector<Expr>& shape, const std::function<Stmt(const te::Indices&)>& body);

// body(row) for each index tuple of `rows`, shared out among the cores where there is enough to do; `elements`: of a
// row.  As an operator's only statement.
Stmt rows_in_parallel(const std::vector<Expr>& rows, const Expr& elements,
                      const std::function<Stmt(const te::Indices& row)>& body);

// A buffer for numbers that loops hand on.
Buffer scratch(const char* name, DType dtype, std::vector<Expr> shape);

// The mathematics of an operator whose result is its first input but for some elements: that copied, then updated.
decltype(OpDef::compute) copied_and_updated(std::string name, UpdateFunction update);

}  // namespace tw::relay
