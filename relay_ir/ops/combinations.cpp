#include "relay_ir/ops/combinations.h"

#include <cmath>

namespace tw::relay {
namespace {

// Σ coefficient · term, without the terms that have none.
Expr combination(const std::vector<double>& coefficients, const std::function<Expr(size_t)>& term) {
  Expr sum;
  for (size_t i = 0; i < coefficients.size(); ++i) {
    const double factor = coefficients[i];
    if (factor == 0) continue;
    const Expr x = term(i);
    const Expr part = std::abs(factor) == 1 ? x : float_imm(x.dtype(), std::abs(factor)) * x;
    sum = !sum.is_defined() ? (factor < 0 ? -part : part) : (factor < 0 ? sum - part : sum + part);
  }
  return sum;
}

}  // namespace

Expr row_times(const std::vector<std::vector<double>>& matrix, const Expr& row,
               const std::function<Expr(size_t)>& term) {
  Expr result = combination(matrix.back(), term);
  for (size_t r = matrix.size() - 1; r-- > 0;)
    result = select(equal(row, static_cast<int64_t>(r)), combination(matrix[r], term), result);
  return result;
}

}  // namespace tw::relay
