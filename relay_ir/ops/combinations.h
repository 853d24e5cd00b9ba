// Sums of few terms with known coefficients: what the stages of a bilinear algorithm compute (Winograd's, Strassen's).
#pragma once

#include <functional>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw::relay {

// The row with this number of matrix · x, where term(i) is x[i]: a choice that is none when the row's loop is unrolled.
Expr row_times(const std::vector<std::vector<double>>& matrix, const Expr& row,
               const std::function<Expr(size_t)>& term);

}  // namespace tw::relay
