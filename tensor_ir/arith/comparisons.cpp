// Comparisons, min and max of index expressions, by the range of their difference.
#include <algorithm>
#include <numeric>

#include "tensor_ir/arith/simplifier.h"

namespace tw::arith {
namespace {

int64_t gcd_of_factors(const Linear& sum) {
  int64_t g = 0;
  for (const auto& [atom, factor] : sum.terms) g = std::gcd(g, factor);
  return g;
}

}  // namespace

Linear Simplifier::difference(TermId a, TermId b) {
  Linear result;
  add_term(result, a, 1);
  add_term(result, b, -1);
  normalise(result);
  return result;
}

bool Simplifier::is_equal(TermId a, TermId b) {
  if (a == b) return true;
  if (!is_index(a) || !is_index(b)) return false;
  const Linear gap = difference(a, b);
  if (gap.terms.empty()) return gap.constant == 0;
  Linear opposite = gap;
  for (auto& term : opposite.terms) term.second = -term.second;
  opposite.constant = -opposite.constant;
  return prove_nonnegative(gap) && prove_nonnegative(opposite);
}

// a op b with op in lt, le, eq, ne: decided by the range of b − a and by facts; otherwise terms with a plus go to their
// side, constants to the right, and common factors out.
TermId Simplifier::make_index_comparison(BinaryOp op, TermId a, TermId b) {
  const bool is_order = op == BinaryOp::lt || op == BinaryOp::le;
  if (a == b) return truth(op == BinaryOp::le || op == BinaryOp::eq);
  const Linear left_sum = linear_of(a), right_sum = linear_of(b);
  auto as_is = [&](BinaryOp final_op, TermId x, TermId y) {
    const TermId operands[] = {x, y};
    const TermId rewritten = apply_rows(NodeKind::Binary, static_cast<uint16_t>(final_op), operands);
    if (rewritten >= 0) return rewritten;
    return intern(NodeKind::Binary, static_cast<uint16_t>(final_op), boolean, 0, {x, y}, nullptr);
  };
  if (!is_exact(left_sum) || !is_exact(right_sum) || !is_moderate(left_sum) || !is_moderate(right_sum)) {
    const Range x = range(a), y = range(b);
    if (is_order && (x.high < y.low || (op == BinaryOp::le && x.high == y.low && x.is_bounded()))) return truth(true);
    if (is_order && (x.low > y.high || (op == BinaryOp::lt && x.low == y.high && x.is_bounded()))) return truth(false);
    if (!is_order && (x.high < y.low || y.high < x.low)) return truth(op == BinaryOp::ne);
    return as_is(op, a, b);
  }
  Linear gap = difference(b, a);
  if (!is_exact(gap)) return as_is(op, a, b);
  if (op == BinaryOp::le) gap.constant += 1;
  auto negated = [](Linear sum, int64_t offset) {
    sum.constant = offset - sum.constant;
    for (auto& term : sum.terms) term.second = -term.second;
    return sum;
  };
  if (is_order) {  // gap > 0
    if (gap.terms.empty()) return truth(gap.constant > 0);
    if (prove_positive(gap)) return truth(true);
    if (prove_nonnegative(negated(gap, 0))) return truth(false);
    int64_t g = 0;
    std::vector<int64_t> candidates;
    for (const auto& [atom, factor] : gap.terms) candidates.push_back(std::abs(factor)), g = std::gcd(g, factor);
    std::sort(candidates.rbegin(), candidates.rend());
    candidates.push_back(g);
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    for (const int64_t factor : candidates) {  // factor·multiple − rest > 0 with 0 ≤ rest < factor ⇔ multiple > 0
      Linear multiple, rest;
      if (factor <= 1 || !factor_out(negated(gap, 0), factor, multiple, rest)) continue;
      gap = negated(std::move(multiple), 0);
      break;
    }
  } else {
    if (gap.terms.empty()) return truth((gap.constant == 0) == (op == BinaryOp::eq));
    const Range r = range(gap);
    if (r.low > 0 || r.high < 0) return truth(op == BinaryOp::ne);
    if (!facts_.empty()) {
      if (prove_positive(gap) || prove_positive(negated(gap, 0))) return truth(op == BinaryOp::ne);
      if (prove_nonnegative(gap) && prove_nonnegative(negated(gap, 0))) return truth(op == BinaryOp::eq);
    }
    const int64_t g = gcd_of_factors(gap);
    if (gap.constant % g != 0) return truth(op == BinaryOp::ne);
    for (auto& term : gap.terms) term.second /= g;
    gap.constant /= g;
    if (gap.terms[0].second > 0) gap = negated(std::move(gap), 0);
  }
  Linear left, right;
  for (const auto& [atom, factor] : gap.terms) {
    if (factor < 0)
      left.terms.emplace_back(atom, -factor);
    else
      right.terms.emplace_back(atom, factor);
  }
  (left.terms.empty() ? left.constant : right.constant) = left.terms.empty() ? -gap.constant : gap.constant;
  if (is_order && right.constant == 1 && !left.terms.empty() && !right.terms.empty()) {  // a < b + 1: a <= b
    right.constant = 0;
    op = BinaryOp::le;
  } else if (is_order) {
    op = BinaryOp::lt;
  }
  const TermId x = make_linear(std::move(left)), y = make_linear(std::move(right));
  return as_is(op, x, y);
}

TermId Simplifier::make_index_min_max(BinaryOp op, TermId a, TermId b) {
  if (a == b) return a;
  const bool is_min = op == BinaryOp::min;
  Linear x = linear_of(a), y = linear_of(b), gap = difference(b, a);
  const bool exact = is_exact(x) && is_exact(y) && is_exact(gap) && is_moderate(x) && is_moderate(y);
  if (exact) {
    if (prove_nonnegative(gap)) return is_min ? a : b;
    Linear opposite = difference(a, b);
    if (prove_nonnegative(opposite)) return is_min ? b : a;
    Linear common;
    for (const auto& term : x.terms) {
      if (y.coefficient(term.first) == term.second) common.terms.push_back(term);
    }
    if (!common.terms.empty()) {
      for (const auto& [atom, factor] : common.terms) {
        x.terms.emplace_back(atom, -factor);
        y.terms.emplace_back(atom, -factor);
      }
      const TermId inner = make_binary(op, make_linear(std::move(x)), make_linear(std::move(y)));
      add_term(common, inner, 1);
      return make_linear(std::move(common));
    }
  }
  const bool swap = int_value(a) || (!int_value(b) && a > b);
  if (swap) std::swap(a, b);
  const TermId operands[] = {a, b};
  const TermId rewritten = apply_rows(NodeKind::Binary, static_cast<uint16_t>(op), operands);
  if (rewritten >= 0) return rewritten;
  return intern(NodeKind::Binary, static_cast<uint16_t>(op), i64, 0, {a, b}, nullptr);
}

}  // namespace tw::arith
