// Ranges of terms, and proofs from ranges and facts.
#include <algorithm>
#include <bit>
#include <numeric>

#include "tensor_ir/arith/simplifier.h"
#include "tensor_ir/dimension.h"

namespace tw::arith {
namespace {

using Wide = __int128;

int64_t saturate(Wide value) {
  if (value >= plus_infinity) return plus_infinity;
  if (value <= minus_infinity) return minus_infinity;
  return static_cast<int64_t>(value);
}

bool is_infinite(int64_t end) {
  return end == minus_infinity || end == plus_infinity;
}

// Products of two are exact.
bool is_small(int64_t value) {
  return value > -(int64_t{1} << 30) && value < int64_t{1} << 30;
}
bool is_small(const Linear& sum) {
  return is_small(sum.constant) &&
         std::all_of(sum.terms.begin(), sum.terms.end(), [](const auto& term) { return is_small(term.second); });
}

// Ends multiply, where 0·∞ = 0.
int64_t multiply_ends(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (is_infinite(a) || is_infinite(b)) return (a < 0) != (b < 0) ? minus_infinity : plus_infinity;
  return saturate(static_cast<Wide>(a) * b);
}

}  // namespace

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}

int64_t floor_modulo(int64_t a, int64_t b) {
  return a - floor_divide(a, b) * b;
}

Range add(Range a, Range b) {
  Range r;
  r.low = is_infinite(a.low) || is_infinite(b.low) ? minus_infinity : saturate(static_cast<Wide>(a.low) + b.low);
  r.high = is_infinite(a.high) || is_infinite(b.high) ? plus_infinity : saturate(static_cast<Wide>(a.high) + b.high);
  r.may_wrap = a.may_wrap || b.may_wrap;
  return r;
}

Range multiply(Range a, Range b) {
  const int64_t ends[] = {multiply_ends(a.low, b.low), multiply_ends(a.low, b.high), multiply_ends(a.high, b.low),
                          multiply_ends(a.high, b.high)};
  return {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4), a.may_wrap || b.may_wrap};
}

Range scale(Range a, int64_t factor) {
  return multiply(a, {factor, factor, false});
}

Range unite(Range a, Range b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), a.may_wrap || b.may_wrap};
}

Range intersect(Range a, Range b) {
  Range r{std::max(a.low, b.low), std::min(a.high, b.high), a.may_wrap};
  // Contradicting facts: the code is never reached, and any range is right.
  return r.low > r.high ? a : r;
}

Range range_of_type(DType dtype) {
  if (dtype.is_bool()) return {0, 1};
  if (!dtype.is_integer() || dtype.bits == 64) return {minus_infinity, plus_infinity, true};
  if (dtype.is_unsigned_integer()) return {0, (int64_t{1} << dtype.bits) - 1};
  return {-(int64_t{1} << (dtype.bits - 1)), (int64_t{1} << (dtype.bits - 1)) - 1};
}

const Range& Simplifier::range(TermId id) {
  if (terms_[id].range_epoch != epoch_) {
    Range r = compute_range(id);
    if (!overrides_.empty()) {
      if (const auto found = overrides_.find(id); found != overrides_.end()) r = intersect(r, found->second);
    }
    terms_[id].range = r;
    terms_[id].range_epoch = epoch_;
  }
  return terms_[id].range;
}

Range Simplifier::range(const Linear& sum) {
  Range total{sum.constant, sum.constant};
  for (const auto& [atom, factor] : sum.terms) total = add(total, scale(range(atom), factor));
  return total;
}

bool Simplifier::is_exact(const Linear& sum) {
  Range wrapping{0, 0};
  bool any = false;
  for (const auto& [atom, factor] : sum.terms) {
    const Range& r = range(atom);
    if (!r.may_wrap) continue;
    any = true;
    wrapping = add(wrapping, scale(r, factor));
  }
  return !any || wrapping.is_within(-(int64_t{1} << 62), int64_t{1} << 62);
}

Range Simplifier::compute_range(TermId id) {
  const Term& term = terms_[id];
  const DType dtype = term.dtype;
  if (dtype.is_float()) return {};
  const Range type = range_of_type(dtype);
  if (term.linear >= 0) {
    const Linear& sum = linears_[term.linear];
    if (!is_exact(sum)) return type;
    Range r = range(sum);
    r.may_wrap = false;
    for (const auto& [atom, factor] : sum.terms) r.may_wrap |= range(atom).may_wrap;
    return r;
  }
  // Within the type, or anything of the type: then it may have wrapped.
  auto fit = [&](Range r) {
    if (dtype.element() == i64) {
      if (r.may_wrap && !r.is_bounded()) return type;
      return r;
    }
    return r.is_within(type.low, type.high) && !(dtype.bits == 64 && r.low < 0) ? Range{r.low, r.high, type.may_wrap}
                                                                                : type;
  };
  auto child = [&](int i) { return range(terms_[id].children[i]); };
  switch (term.kind) {
    case NodeKind::IntImm: {
      const auto value = static_cast<int64_t>(term.extra);
      if (dtype == u64 && value < 0) return type;
      return {value, value};
    }
    case NodeKind::Var: {
      const auto found = variables_.find(term.expr.get());
      if (found != variables_.end()) return intersect(found->second, dtype == i64 ? Range{} : type);
      const DimensionBounds bounds = dimension_bounds(*term.expr);
      return dtype == i64 ? Range{bounds.low, bounds.high} : type;
    }
    case NodeKind::Broadcast:
      return child(0);
    case NodeKind::Ramp:
      return fit(add(child(0), multiply(child(1), {0, dtype.lanes - 1})));
    case NodeKind::Unary:
      if (static_cast<UnaryOp>(term.op) == UnaryOp::negate) return fit(scale(child(0), -1));
      return type;
    case NodeKind::Select:
      return unite(child(1), child(2));
    case NodeKind::Cast: {
      const DType from = terms_[term.children[0]].dtype;
      if (from.is_bool()) return {0, 1};
      if (!from.is_integer()) return type;
      const Range value = child(0);
      if (!value.is_bounded() || (from.element() == u64 && value.low < 0)) return type;
      return dtype.element() == i64 || value.is_within(type.low, type.high) ? value : type;
    }
    case NodeKind::VectorReduce: {
      const auto op = static_cast<BinaryOp>(term.op);
      return op == BinaryOp::min || op == BinaryOp::max ? child(0) : type;
    }
    case NodeKind::Binary:
      break;
    default:
      return type;
  }
  const auto op = static_cast<BinaryOp>(term.op);
  if (dtype.is_bool()) return type;
  const Range a = child(0), b = term.children.size() > 1 ? child(1) : Range{};
  switch (op) {
    case BinaryOp::add:
      return fit(add(a, b));
    case BinaryOp::sub:
      return fit(add(a, scale(b, -1)));
    case BinaryOp::mul: {  // also a product of several atoms
      Range product = a;
      for (size_t i = 1; i < terms_[id].children.size(); ++i) product = multiply(product, child(static_cast<int>(i)));
      return fit(product);
    }
    case BinaryOp::floor_div: {
      if (b.low < 0 || b.high <= 0) return type.may_wrap && !a.may_wrap && !b.may_wrap ? Range{} : type;
      auto end = [&](int64_t x, bool is_low) {  // the extreme quotient of a dividend end; none is by 0
        if (is_infinite(x)) return x;
        const int64_t divisor = (x >= 0) == is_low ? b.high : std::max<int64_t>(b.low, 1);
        return is_infinite(divisor) ? (x >= 0 ? int64_t{0} : int64_t{-1}) : floor_divide(x, divisor);
      };
      return fit({end(a.low, true), end(a.high, false), a.may_wrap || b.may_wrap});
    }
    case BinaryOp::floor_mod: {
      if (b.low <= 0) return type.may_wrap && !a.may_wrap && !b.may_wrap ? Range{} : type;
      if (a.low >= 0 && a.high < b.low) return a;
      Range r{0, is_infinite(b.high) ? plus_infinity : b.high - 1, b.may_wrap};
      if (a.low >= 0) r.high = std::min(r.high, a.high);
      return r;
    }
    case BinaryOp::div:
      if (a.low < 0 || b.low <= 0) return type;
      return {is_infinite(b.high) ? 0 : a.low / b.high, is_infinite(a.high) ? plus_infinity : a.high / b.low, true};
    case BinaryOp::mod:
      if (a.low < 0 || b.low <= 0) return type;
      return {0, std::min(a.high, is_infinite(b.high) ? plus_infinity : b.high - 1), true};
    case BinaryOp::min:
      return {std::min(a.low, b.low), std::min(a.high, b.high), a.may_wrap || b.may_wrap};
    case BinaryOp::max:
      return {std::max(a.low, b.low), std::max(a.high, b.high), a.may_wrap || b.may_wrap};
    case BinaryOp::bit_and:
      if (a.low >= 0 && b.low >= 0) return {0, std::min(a.high, b.high), true};
      if (b.low >= 0) return {0, b.high, true};
      if (a.low >= 0) return {0, a.high, true};
      return type;
    case BinaryOp::shift_right:
      if (a.low >= 0) return {0, a.high, true};
      return type;
    default:
      return type;
  }
}

// Ranges first; then facts: sum ≥ 0 follows from sum − k·fact ≥ 0 with k > 0.  Facts that share an atom of the same
// sign are tried.  min and max are opened.
bool Simplifier::prove_nonnegative(const Linear& sum, int depth) {
  if (!is_exact(sum)) return false;
  if (range(sum).low >= 0) return true;
  if (depth == 0 || sum.terms.empty()) return false;
  for (const auto& [atom, factor] : sum.terms) {
    const Term& term = terms_[atom];
    if (term.kind != NodeKind::Binary || term.children.size() != 2) continue;
    const auto op = static_cast<BinaryOp>(term.op);
    if (op != BinaryOp::min && op != BinaryOp::max) continue;
    const bool is_both = (op == BinaryOp::min) == (factor > 0);
    int proved = 0;
    for (int side = 0; side < 2; ++side) {
      Linear opened = sum;
      add_term(opened, atom, -factor);
      add_term(opened, term.children[side], factor);
      normalise(opened);
      proved += prove_nonnegative(opened, depth - 1);
      if (is_both ? proved == side : proved == 1) break;
    }
    if (proved == (is_both ? 2 : 1)) return true;
  }
  int64_t unit = 0;  // of all factors
  for (const auto& [atom, factor] : sum.terms) unit = std::gcd(unit, factor);
  // rest ≥ x // c follows from rest·c + c − 1 ≥ x, and x // c + rest ≥ 0 from x + rest·c ≥ 0.
  for (const auto& [atom, factor] : sum.terms) {
    const Term& term = terms_[atom];
    if (std::abs(factor) != unit || term.kind != NodeKind::Binary ||
        static_cast<BinaryOp>(term.op) != BinaryOp::floor_div) {
      continue;
    }
    const int64_t sign = factor / unit;
    const auto divisor = int_value(term.children[1]);
    if (!divisor || *divisor < 2 || !is_small(*divisor) || sum.terms.size() < 2 || !is_small(sum)) continue;
    Linear scaled = sum;
    scaled.constant = floor_divide(sum.constant, unit);
    for (auto& [other, other_factor] : scaled.terms) other_factor /= unit;
    add_term(scaled, atom, -sign);
    scaled.constant = scaled.constant * *divisor + (sign < 0 ? *divisor - 1 : 0);
    for (auto& [other, other_factor] : scaled.terms) other_factor *= *divisor;
    const Linear dividend = linear_of(term.children[0]);
    scaled.constant += sign * dividend.constant;
    for (const auto& [other, other_factor] : dividend.terms) add_term(scaled, other, sign * other_factor);
    normalise(scaled);
    if (is_moderate(scaled) && prove_nonnegative(scaled, depth - 1)) return true;
  }
  for (const auto& [atom, factor] : Linear(sum).terms) {  // c·(x // c) is x at most, and x − (c − 1) at least
    const Term& term = terms_[atom];
    if (term.kind != NodeKind::Binary || static_cast<BinaryOp>(term.op) != BinaryOp::floor_div) continue;
    const auto divisor = int_value(term.children[1]);
    if (!divisor || *divisor < 2 || !is_small(*divisor) || factor % *divisor != 0 || !is_small(sum)) continue;
    const int64_t times = factor / *divisor;
    const Linear dividend = linear_of(term.children[0]);
    if (!is_small(dividend)) continue;
    Linear rest = sum;
    add_term(rest, atom, -factor);
    rest.constant += times * dividend.constant - std::max<int64_t>(0, times) * (*divisor - 1);
    for (const auto& [other, other_factor] : dividend.terms) add_term(rest, other, times * other_factor);
    normalise(rest);
    if (is_moderate(rest) && prove_nonnegative(rest, depth - 1)) return true;
  }
  for (const auto& [atom, factor] : Linear(sum).terms) {  // by symbols: x % y ≤ y − 1; and rest ≥ x // y as above
    const Term& term = terms_[atom];
    if (factor >= 0 || term.kind != NodeKind::Binary || term.children.size() != 2 || !is_moderate(sum)) continue;
    const auto op = static_cast<BinaryOp>(term.op);
    const TermId x = term.children[0], y = term.children[1];
    const bool is_quotient = op == BinaryOp::floor_div && factor == -unit;
    if ((!is_quotient && op != BinaryOp::floor_mod) || int_value(y) || range(y).low < 1) continue;
    Linear rest = sum;
    add_term(rest, atom, -factor);
    if (is_quotient) {
      rest.constant = floor_divide(rest.constant, unit) + 1;
      for (auto& [other, other_factor] : rest.terms) other_factor /= unit;
      rest = linear_of(make_product(make_linear(std::move(rest)), y));
      add_term(rest, x, -1);
      rest.constant -= 1;
    } else {
      add_term(rest, y, factor);
      rest.constant -= factor;
    }
    normalise(rest);
    if (is_moderate(rest) && prove_nonnegative(rest, depth - 1)) return true;
  }
  for (const auto& [atom, factor] : sum.terms) {  // x // c ≤ u follows from the fact c·u + (c − 1) ≥ x
    const Term& term = terms_[atom];
    if (factor >= 0 || term.kind != NodeKind::Binary || static_cast<BinaryOp>(term.op) != BinaryOp::floor_div) continue;
    const auto divisor = int_value(term.children[1]);
    if (!divisor || *divisor < 2 || !is_moderate(sum)) continue;
    const Linear dividend = linear_of(term.children[0]);
    for (const Linear& fact : facts_) {
      Linear most = fact;  // of x, where the fact is most − x ≥ 0
      most.constant += dividend.constant;
      for (const auto& [other, other_factor] : dividend.terms) add_term(most, other, other_factor);
      normalise(most);
      if (!is_moderate(most) || most.terms.size() >= fact.terms.size() ||
          std::any_of(most.terms.begin(), most.terms.end(), [&](const auto& t) { return t.second % *divisor != 0; }))
        continue;
      Linear rest = sum;
      add_term(rest, atom, -factor);
      rest.constant += factor * floor_divide(most.constant, *divisor);
      for (const auto& [other, other_factor] : most.terms) add_term(rest, other, factor * (other_factor / *divisor));
      normalise(rest);
      if (is_moderate(rest) && prove_nonnegative(rest, depth - 1)) return true;
    }
  }
  if (sum.constant == 0 && sum.terms.size() > 1) {  // f·rest with f ≥ 0
    const TermId first = sum.terms[0].first;
    const Term& term = terms_[first];
    const bool is_product = term.kind == NodeKind::Binary && static_cast<BinaryOp>(term.op) == BinaryOp::mul;
    for (const TermId f : is_product ? term.children : std::vector{first}) {
      Linear quotient, remainder;
      if (range(f).low < 0 || !split_by_symbol(sum, f, quotient, remainder) || !remainder.terms.empty()) continue;
      normalise(quotient);
      if (prove_nonnegative(quotient, depth - 1)) return true;
    }
  }
  for (size_t f = 0; f < facts_.size(); ++f) {
    for (const auto& [atom, factor] : facts_[f].terms) {
      const int64_t mine = sum.coefficient(atom);
      if (mine == 0 || (mine > 0) != (factor > 0) || mine % factor != 0) continue;
      Linear rest = sum;
      const int64_t times = mine / factor;
      rest.constant = static_cast<int64_t>(static_cast<uint64_t>(rest.constant) -
                                           static_cast<uint64_t>(times) * static_cast<uint64_t>(facts_[f].constant));
      for (const auto& [other, other_factor] : facts_[f].terms) add_term(rest, other, -times * other_factor);
      normalise(rest);
      if (rest.terms.size() > sum.terms.size() + 2) continue;
      if (prove_nonnegative(rest, depth - 1)) return true;
    }
  }
  return false;
}

bool Simplifier::prove_positive(Linear sum) {
  sum.constant -= 1;
  return prove_nonnegative(sum);
}

void Simplifier::override_range(TermId id, Range r) {
  const auto found = overrides_.find(id);
  override_log_.emplace_back(id, found == overrides_.end() ? std::nullopt : std::optional(found->second));
  if (found == overrides_.end())
    overrides_.emplace(id, r);
  else
    found->second = intersect(found->second, r);
  epoch_ = next_epoch_++;
}

void Simplifier::add_fact(Linear sum) {
  normalise(sum);
  if (sum.terms.empty() || !is_exact(sum)) return;
  for (const auto& [atom, factor] : sum.terms) {
    if (terms_[atom].has_load) return;  // memory may change while the fact holds
  }
  for (const auto& [atom, factor] : std::vector(sum.terms)) {
    const Term& term = terms_[atom];
    if (term.kind != NodeKind::Binary) continue;
    const auto op = static_cast<BinaryOp>(term.op);
    if ((op == BinaryOp::min && factor > 0) || (op == BinaryOp::max && factor < 0)) {  // both sides obey
      for (int side = 0; side < 2; ++side) {
        Linear opened = sum;
        add_term(opened, atom, -factor);
        add_term(opened, terms_[atom].children[side], factor);
        add_fact(std::move(opened));
      }
      return;
    }
  }
  if (sum.terms.size() == 1) {
    const auto [atom, factor] = sum.terms[0];  // factor·atom + constant ≥ 0
    if (sum.constant == minus_infinity || factor == minus_infinity) return;
    if (factor > 0)
      override_range(atom, {-floor_divide(sum.constant, factor), plus_infinity});
    else
      override_range(atom, {minus_infinity, floor_divide(sum.constant, -factor)});
    return;
  }
  facts_.push_back(std::move(sum));
  epoch_ = next_epoch_++;
}

void Simplifier::assume(TermId condition, bool holds) {
  const Term& term = terms_[condition];
  if (term.has_load || int_value(condition)) return;
  epoch_ = next_epoch_++;
  if (known_.emplace(condition, holds).second) known_log_.push_back(condition);
  const std::vector<TermId> children = term.children;
  if (term.kind == NodeKind::Unary) return assume(children[0], !holds);
  if (term.kind != NodeKind::Binary) return;
  const auto op = static_cast<BinaryOp>(term.op);
  if ((op == BinaryOp::logical_and && holds) || (op == BinaryOp::logical_or && !holds)) {
    assume(children[0], holds);
    assume(children[1], holds);
    return;
  }
  if (!is_comparison(op) || !is_index(children[0])) return;
  Linear gap = difference(children[1], children[0]);
  if (!is_exact(linear_of(children[0])) || !is_exact(linear_of(children[1]))) return;
  Linear opposite = gap;
  opposite.constant = -opposite.constant;
  for (auto& [atom, factor] : opposite.terms) factor = -factor;
  if (op == BinaryOp::lt || op == BinaryOp::le) {
    const int64_t strict = (op == BinaryOp::lt) == holds;
    Linear& fact = holds ? gap : opposite;
    fact.constant -= strict;
    add_fact(std::move(fact));
  } else if ((op == BinaryOp::eq) == holds) {
    add_fact(std::move(gap));
    add_fact(std::move(opposite));
  }
}

}  // namespace tw::arith
