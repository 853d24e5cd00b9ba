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

te::Indices joined(std::initializer_list<te::Indices> parts) {
  te::Indices all;
  for (const te::Indices& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

te::Indices TileCount::extents() const {
  return is_by_image() ? te::Indices{images_, tiles_} : te::Indices{images_ * tiles_};
}

te::Indices TileCount::number(const Expr& image, const Expr& tile) const {
  return is_by_image() ? te::Indices{image, tile} : te::Indices{image * tiles_ + tile};
}

te::Indices TileCount::number(const te::Indices& stage, size_t first) const {
  const auto begin = stage.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(axes())};
}

std::pair<Expr, Expr> TileCount::place(const te::Indices& stage, size_t first) const {
  if (is_by_image()) return {stage[first], stage[first + 1]};
  return {floor_div(stage[first], tiles_), floor_mod(stage[first], tiles_)};
}

}  // namespace tw::relay
