// Sums of index expressions: normal form, and division by constants and symbols.
//
// All of it rests on floor((k·Q + R) / k) = Q + floor(R / k) and (k·Q + R) mod k = R mod k, and on ranges of the
// remainder:
//   * what the divisor divides is split off;
//   * with g | k and 0 ≤ S < g:  (g·A + S) floor_div k = A floor_div (k/g),  (g·A + S) mod k = g·(A mod (k/g)) + S;
//   * division stands inside: (x mod k·m) floor_div k = (x floor_div k) mod m,  (x floor_div a) floor_div b = x
//   floor_div ab.
// Sums put together again what was split: k·(x floor_div k) + x mod k = x; also where its parts took different forms,
// by x mod k = x − k·(x floor_div k) and (A + x floor_div a) floor_div b = (a·A + x) floor_div ab.
#include <algorithm>
#include <numeric>

#include "tensor_ir/arith/simplifier.h"

namespace tw::arith {
namespace {

int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrap_multiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

Linear scaled(Linear sum, int64_t factor) {
  sum.constant = wrap_multiply(sum.constant, factor);
  for (auto& term : sum.terms) term.second = wrap_multiply(term.second, factor);
  return sum;
}

}  // namespace

bool is_moderate(const Linear& sum) {
  constexpr int64_t limit = int64_t{1} << 61;
  auto fits = [](int64_t value) { return value > -limit && value < limit; };
  return fits(sum.constant) &&
         std::all_of(sum.terms.begin(), sum.terms.end(), [&](const auto& term) { return fits(term.second); });
}

int64_t Linear::coefficient(TermId id) const {
  const auto found = std::lower_bound(terms.begin(), terms.end(), std::pair{id, minus_infinity});
  return found != terms.end() && found->first == id ? found->second : 0;
}

Linear Simplifier::linear_of(TermId id) const {
  Linear result;
  add_term(result, id, 1);
  return result;
}

void Simplifier::add_term(Linear& sum, TermId id, int64_t factor) const {
  const Term& term = terms_[id];
  if (term.linear >= 0) {
    const Linear& inner = linears_[term.linear];
    sum.constant = wrap_add(sum.constant, wrap_multiply(factor, inner.constant));
    for (const auto& [atom, inner_factor] : inner.terms)
      sum.terms.emplace_back(atom, wrap_multiply(factor, inner_factor));
  } else if (term.kind == NodeKind::IntImm) {
    sum.constant = wrap_add(sum.constant, wrap_multiply(factor, static_cast<int64_t>(term.extra)));
  } else {
    sum.terms.emplace_back(id, factor);
  }
}

// Adds factor·e.  `budget` bounds the descent into shared subtrees: past it they are simplified once and remembered.
void Simplifier::accumulate(const Expr& e, int64_t factor, Linear& sum, int& budget) {
  if (const auto* imm = e.as<IntImm>()) {
    sum.constant = wrap_add(sum.constant, wrap_multiply(factor, imm->value));
    return;
  }
  if (budget > 0) {
    if (const auto* node = e.as<Binary>()) {
      --budget;
      if (node->op == BinaryOp::add || node->op == BinaryOp::sub) {
        accumulate(node->a, factor, sum, budget);
        return accumulate(node->b, node->op == BinaryOp::add ? factor : wrap_multiply(factor, -1), sum, budget);
      }
      if (node->op == BinaryOp::mul) {
        if (const auto* imm = node->b.as<IntImm>()) {
          return accumulate(node->a, wrap_multiply(factor, imm->value), sum, budget);
        }
        if (const auto* imm = node->a.as<IntImm>()) {
          return accumulate(node->b, wrap_multiply(factor, imm->value), sum, budget);
        }
        const TermId a = simplify(node->a), b = simplify(node->b);
        return add_term(sum, make_product(a, b), factor);
      }
    } else if (const auto* negation = e.as<Unary>(); negation && negation->op == UnaryOp::negate) {
      --budget;
      return accumulate(negation->a, wrap_multiply(factor, -1), sum, budget);
    }
  }
  add_term(sum, simplify(e), factor);
}

void Simplifier::normalise(Linear& sum) {
  for (int round = 0; round < 8; ++round) {
    auto& terms = sum.terms;
    if (!std::is_sorted(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.first <= b.first; }) ||
        terms.size() > 1) {
      std::stable_sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    size_t kept = 0;
    for (size_t i = 0; i < terms.size();) {
      auto merged = terms[i++];
      while (i < terms.size() && terms[i].first == merged.first) {
        merged.second = wrap_add(merged.second, terms[i++].second);
      }
      if (merged.second != 0) terms[kept++] = merged;
    }
    terms.resize(kept);
    if (terms.size() < 2 && sum.constant == 0) return;
    if (!recombine(sum)) return;
  }
}

// One step of putting together; the sum is left unsorted when it returns true.
bool Simplifier::recombine(Linear& sum) {
  for (size_t i = 0; i < sum.terms.size(); ++i) {
    const auto [id, factor] = sum.terms[i];
    const Term& term = terms_[id];
    if (term.kind != NodeKind::Binary || term.children.size() != 2) continue;
    const auto op = static_cast<BinaryOp>(term.op);
    const TermId x = term.children[0], y = term.children[1];
    // Takes factor·inner out of the sum when all its terms are there.
    auto remove = [&](const Linear& inner, int64_t times) {
      for (const auto& [atom, inner_factor] : inner.terms) {
        if (sum.coefficient(atom) != wrap_multiply(times, inner_factor)) return false;
      }
      sum.constant = wrap_add(sum.constant, -wrap_multiply(times, inner.constant));
      for (const auto& [atom, inner_factor] : inner.terms) {
        for (auto& t : sum.terms) {
          if (t.first == atom) t.second = 0;
        }
      }
      return true;
    };
    if (op == BinaryOp::floor_mod) {  // y·(x floor_div y) + x mod y = x
      const TermId operands[] = {x, y};
      const TermId quotient = find(NodeKind::Binary, static_cast<uint16_t>(BinaryOp::floor_div), i64, 0, operands);
      const auto divisor = int_value(y);
      if (quotient >= 0) {
        Linear whole;
        if (divisor) {
          add_term(whole, quotient, *divisor);
        } else {
          add_term(whole, make_product(y, quotient), 1);
        }
        if (sum.coefficient(id) == factor && remove(whole, factor)) {
          add_term(sum, id, -factor);
          add_term(sum, x, factor);
          return true;
        }
        if (divisor) {                                          // m·((x floor_div m) mod n) + x mod m = x mod mn
          for (const auto [other, other_factor] : sum.terms) {  // copies: add_term moves the terms
            const Term& upper = terms_[other];
            if (upper.kind != NodeKind::Binary || static_cast<BinaryOp>(upper.op) != BinaryOp::floor_mod) continue;
            if (upper.children[0] != quotient || other_factor != wrap_multiply(factor, *divisor)) continue;
            const auto n = int_value(upper.children[1]);
            int64_t product = 0;
            if (!n || __builtin_mul_overflow(*n, *divisor, &product) || product <= 0) continue;
            const TermId joined = make_floor_mod(x, constant(i64, product));
            if (terms_[joined].linear >= 0 && linears_[terms_[joined].linear].terms.size() > 1) continue;
            add_term(sum, id, -factor);
            add_term(sum, other, -wrap_multiply(factor, *divisor));
            add_term(sum, joined, factor);
            return true;
          }
        }
      }
    } else if (op == BinaryOp::floor_div) {  // x − m·(x floor_div m) = x mod m
      const auto divisor = int_value(y);
      if (!divisor || *divisor <= 0 || factor % *divisor != 0) continue;
      const int64_t times = -(factor / *divisor);
      const Linear dividend = linear_of(x);
      if (dividend.terms.empty() || !remove(dividend, times)) continue;
      add_term(sum, id, -factor);
      add_term(sum, make_floor_mod(x, y), times);
      return true;
    } else if ((op == BinaryOp::min || op == BinaryOp::max) && (factor == 1 || factor == -1) && pushes_ < most_pushes) {
      // min(a, b) + t = min(a + t, b + t), where that cancels
      for (int side = 0; side < 2; ++side) {
        const Linear inner = linear_of(term.children[side]);
        for (const auto& [atom, inner_factor] : inner.terms) {
          if (atom == id || sum.coefficient(atom) != -wrap_multiply(factor, inner_factor)) continue;
          Linear a = linear_of(x), b = linear_of(y);
          if (!is_exact(a) || !is_exact(b) || !is_exact(sum)) continue;
          add_term(a, atom, -inner_factor);
          add_term(b, atom, -inner_factor);
          ++pushes_;
          const TermId pushed = make_binary(op, make_linear(std::move(a)), make_linear(std::move(b)));
          --pushes_;
          add_term(sum, atom, wrap_multiply(factor, inner_factor));
          add_term(sum, id, -factor);
          add_term(sum, pushed, factor);
          return true;
        }
      }
    }
  }
  return !is_opening_ && open_remainders(sum);
}

// Every remainder as its dividend less a multiple of the quotient, where these cancel others and leave none behind.
bool Simplifier::open_remainders(Linear& sum) {
  const auto is_op = [&](TermId id, BinaryOp op) {
    const Term& term = terms_[id];
    return term.kind == NodeKind::Binary && term.children.size() == 2 && static_cast<BinaryOp>(term.op) == op;
  };
  const auto parts = [&](const Linear& of) {
    return std::count_if(of.terms.begin(), of.terms.end(), [&](const auto& term) {
      return is_op(term.first, BinaryOp::floor_mod) || is_op(term.first, BinaryOp::floor_div);
    });
  };
  if (parts(sum) < 2 || !is_moderate(sum)) return false;
  Linear opened;
  opened.constant = sum.constant;
  is_opening_ = true;
  for (const auto [id, factor] : Linear(sum).terms) {
    const auto divisor = is_op(id, BinaryOp::floor_mod) ? int_value(terms_[id].children[1]) : std::nullopt;
    const int64_t limit = int64_t{1} << 30;
    if (!divisor || *divisor <= 0 || *divisor > limit || std::abs(factor) > limit) {
      opened.terms.emplace_back(id, factor);
      continue;
    }
    const TermId dividend = terms_[id].children[0];
    add_term(opened, dividend, factor);
    add_term(opened, quotient_of_sum(dividend, *divisor), -factor * *divisor);
  }
  normalise(opened);
  is_opening_ = false;
  const bool is_cancelled = std::all_of(opened.terms.begin(), opened.terms.end(), [&](const auto& term) {
    const bool is_part = is_op(term.first, BinaryOp::floor_mod) || is_op(term.first, BinaryOp::floor_div);
    return !is_part || sum.coefficient(term.first) == term.second;
  });
  if (!is_cancelled || parts(opened) >= parts(sum)) return false;
  sum = std::move(opened);
  return true;
}

// dividend floor_div divisor, as one quotient where the dividend has a quotient in it.
TermId Simplifier::quotient_of_sum(TermId dividend, int64_t divisor) {
  Linear whole = linear_of(dividend);
  for (const auto [id, factor] : Linear(whole).terms) {
    const Term& term = terms_[id];
    if (factor != 1 || term.kind != NodeKind::Binary || term.children.size() != 2) continue;
    const auto inner =
        static_cast<BinaryOp>(term.op) == BinaryOp::floor_div ? int_value(term.children[1]) : std::nullopt;
    int64_t product = 0;
    if (!inner || *inner <= 0 || __builtin_mul_overflow(*inner, divisor, &product) || product > int64_t{1} << 40)
      continue;
    const TermId numerator = term.children[0];
    add_term(whole, id, -1);
    Linear joined = scaled(whole, *inner);
    add_term(joined, numerator, 1);
    if (!is_moderate(joined) || !is_exact(joined)) break;
    return make_floor_div(make_linear(std::move(joined)), constant(i64, product));
  }
  return make_floor_div(dividend, constant(i64, divisor));
}

TermId Simplifier::make_linear(Linear sum, const Expr* hint) {
  normalise(sum);
  if (sum.terms.empty()) return constant(i64, sum.constant);
  if (sum.terms.size() == 1 && sum.constant == 0 && sum.terms[0].second == 1) return sum.terms[0].first;
  return intern_linear(std::move(sum), hint);
}

TermId Simplifier::monomial(TermId a, TermId b) {
  std::vector<TermId> factors;
  for (const TermId id : {a, b}) {
    const Term& term = terms_[id];
    const bool is_product = term.kind == NodeKind::Binary && static_cast<BinaryOp>(term.op) == BinaryOp::mul;
    if (is_product)
      factors.insert(factors.end(), term.children.begin(), term.children.end());
    else
      factors.push_back(id);
  }
  std::sort(factors.begin(), factors.end());
  return intern(NodeKind::Binary, static_cast<uint16_t>(BinaryOp::mul), i64, 0, std::move(factors), nullptr);
}

TermId Simplifier::make_product(TermId a, TermId b) {
  const Linear left = linear_of(a), right = linear_of(b);
  if (left.terms.empty()) return make_linear(scaled(right, left.constant));
  if (right.terms.empty()) return make_linear(scaled(left, right.constant));
  Linear product;
  if (left.terms.size() * right.terms.size() > 16) {
    if (a > b) std::swap(a, b);
    return intern(NodeKind::Binary, static_cast<uint16_t>(BinaryOp::mul), i64, 0, {a, b}, nullptr);
  }
  product.constant = wrap_multiply(left.constant, right.constant);
  for (const auto& [x, f] : left.terms) {
    for (const auto& [y, g] : right.terms) product.terms.emplace_back(monomial(x, y), wrap_multiply(f, g));
    product.terms.emplace_back(x, wrap_multiply(f, right.constant));
  }
  for (const auto& [y, g] : right.terms) product.terms.emplace_back(y, wrap_multiply(g, left.constant));
  return make_linear(std::move(product));
}

// sum = factor·multiple + rest with 0 ≤ rest < factor, where ranges show it.
bool Simplifier::factor_out(const Linear& sum, int64_t factor, Linear& multiple, Linear& rest) {
  multiple = {}, rest = {};
  for (const auto& [atom, coefficient] : sum.terms) {
    if (coefficient % factor == 0)
      multiple.terms.emplace_back(atom, coefficient / factor);
    else
      rest.terms.emplace_back(atom, coefficient);
  }
  if (multiple.terms.empty()) return false;
  rest.constant = floor_modulo(sum.constant, factor);
  multiple.constant = floor_divide(sum.constant, factor);
  const Range r = range(rest);
  if (!r.is_bounded()) return false;
  const int64_t shift = floor_divide(r.low, factor);
  if (floor_divide(r.high, factor) != shift) return false;
  rest.constant -= shift * factor;
  multiple.constant += shift;
  return true;
}

TermId Simplifier::make_floor_div(TermId a, TermId b) {
  const auto divisor = int_value(b);
  const Linear sum = linear_of(a);
  auto as_is = [&] {
    return intern(NodeKind::Binary, static_cast<uint16_t>(BinaryOp::floor_div), i64, 0, {a, b}, nullptr);
  };
  if (!is_moderate(sum)) return as_is();
  if (!is_exact(sum)) {
    return divisor == 1 ? a : as_is();
  }
  if (divisor) return *divisor > 0 && *divisor < (int64_t{1} << 61) ? divide_by_constant(sum, *divisor) : as_is();
  Linear quotient, remainder;
  if (split_by_symbol(sum, b, quotient, remainder)) {
    if (remainder.terms.empty() && remainder.constant == 0) return make_linear(std::move(quotient));
    const TermId rest = make_linear(remainder);
    add_term(quotient, make_floor_div(rest, b), 1);
    return make_linear(std::move(quotient));
  }
  Linear gap = linear_of(b);
  for (const auto& [atom, factor] : sum.terms) gap.terms.emplace_back(atom, -factor);
  gap.constant = wrap_add(gap.constant, -sum.constant);
  normalise(gap);
  if (prove_nonnegative(sum) && prove_positive(gap)) return constant(i64, int64_t{0});
  return as_is();
}

TermId Simplifier::make_floor_mod(TermId a, TermId b) {
  const auto divisor = int_value(b);
  const Linear sum = linear_of(a);
  auto as_is = [&] {
    return intern(NodeKind::Binary, static_cast<uint16_t>(BinaryOp::floor_mod), i64, 0, {a, b}, nullptr);
  };
  if (divisor == 1) return constant(i64, int64_t{0});
  if (!is_moderate(sum) || !is_exact(sum)) return as_is();
  if (divisor) return *divisor > 0 && *divisor < (int64_t{1} << 61) ? modulo_constant(sum, *divisor) : as_is();
  Linear quotient, remainder;
  if (split_by_symbol(sum, b, quotient, remainder)) {
    if (remainder.terms.empty() && remainder.constant == 0) return constant(i64, int64_t{0});
    return make_floor_mod(make_linear(std::move(remainder)), b);
  }
  Linear gap = linear_of(b);
  for (const auto& [atom, factor] : sum.terms) gap.terms.emplace_back(atom, -factor);
  gap.constant = wrap_add(gap.constant, -sum.constant);
  normalise(gap);
  if (prove_nonnegative(sum) && prove_positive(gap)) return a;
  return as_is();
}

// (16·a + b) mod 5 = (a + b) mod 5 is true, but hides that 16·a + b was divided, and by what else it is: sums of
// several terms keep their factors, unless the smaller ones settle the quotient.
bool Simplifier::is_worth_reducing(Linear rest, int64_t constant, int64_t divisor) {
  if (rest.terms.size() < 2) return true;
  rest.constant = constant;
  const Range r = range(rest);
  return r.is_bounded() && floor_divide(r.low, divisor) == floor_divide(r.high, divisor);
}

TermId Simplifier::divide_by_constant(const Linear& sum, int64_t divisor) {
  if (divisor == 1) return make_linear(sum);
  if (const Range r = range(sum); r.is_bounded()) {
    const int64_t low = floor_divide(r.low, divisor);
    if (low == floor_divide(r.high, divisor)) return constant(i64, low);
  }
  Linear quotient, rest;
  for (const bool wants_parts : {true, false}) {
    quotient.terms.clear();
    rest.terms.clear();
    for (const auto& [atom, factor] : sum.terms) {
      const int64_t whole = wants_parts || factor % divisor == 0 ? factor / divisor : 0,
                    part = factor - whole * divisor;
      if (whole != 0) quotient.terms.emplace_back(atom, whole);
      if (part != 0) rest.terms.emplace_back(atom, part);
    }
    if (wants_parts && is_worth_reducing(rest, floor_modulo(sum.constant, divisor), divisor)) break;
  }
  quotient.constant = floor_divide(sum.constant, divisor);
  rest.constant = floor_modulo(sum.constant, divisor);
  if (!quotient.terms.empty() || quotient.constant != 0) {
    add_term(quotient, make_floor_div(make_linear(std::move(rest)), constant(i64, divisor)), 1);
    return make_linear(std::move(quotient));
  }
  std::vector<int64_t> divisors;
  for (const auto& [atom, factor] : rest.terms) divisors.push_back(std::gcd(factor, divisor));
  std::sort(divisors.rbegin(), divisors.rend());
  divisors.erase(std::unique(divisors.begin(), divisors.end()), divisors.end());
  for (const int64_t g : divisors) {
    Linear multiple, remainder;
    if (g > 1 && factor_out(rest, g, multiple, remainder)) {
      return make_floor_div(make_linear(std::move(multiple)), constant(i64, divisor / g));
    }
  }
  if (rest.terms.size() == 1 && rest.terms[0].second == 1) {
    const Term& inner = terms_[rest.terms[0].first];
    if (inner.kind == NodeKind::Binary && inner.children.size() == 2) {
      const auto op = static_cast<BinaryOp>(inner.op);
      const auto m = int_value(inner.children[1]);
      int64_t product = 0, offset = 0;
      if (op == BinaryOp::floor_div && m && *m > 0 && !__builtin_mul_overflow(*m, divisor, &product) &&
          !__builtin_mul_overflow(*m, rest.constant, &offset)) {
        Linear dividend = linear_of(inner.children[0]);
        dividend.constant = wrap_add(dividend.constant, offset);
        return make_floor_div(make_linear(std::move(dividend)), constant(i64, product));
      }
      if (op == BinaryOp::floor_mod && m && *m > 0 && *m % divisor == 0 && rest.constant == 0) {
        return make_floor_mod(make_floor_div(inner.children[0], constant(i64, divisor)), constant(i64, *m / divisor));
      }
    }
  }
  const TermId dividend = make_linear(std::move(rest));
  return intern(NodeKind::Binary, static_cast<uint16_t>(BinaryOp::floor_div), i64, 0,
                {dividend, constant(i64, divisor)}, nullptr);
}

TermId Simplifier::modulo_constant(const Linear& sum, int64_t divisor) {
  if (const Range r = range(sum); r.is_bounded()) {
    const int64_t low = floor_divide(r.low, divisor);
    if (low == floor_divide(r.high, divisor)) {
      Linear rest = sum;
      rest.constant -= low * divisor;
      return make_linear(std::move(rest));
    }
  }
  Linear rest;
  for (const bool wants_parts : {true, false}) {
    rest.terms.clear();
    for (const auto& [atom, factor] : sum.terms) {
      if (factor % divisor != 0) rest.terms.emplace_back(atom, wants_parts ? factor % divisor : factor);
    }
    if (wants_parts && is_worth_reducing(rest, floor_modulo(sum.constant, divisor), divisor)) break;
  }
  rest.constant = floor_modulo(sum.constant, divisor);
  if (rest.terms.size() != sum.terms.size() || rest.constant != sum.constant || rest.terms != sum.terms) {
    return make_floor_mod(make_linear(std::move(rest)), constant(i64, divisor));
  }
  std::vector<int64_t> divisors;
  for (const auto& [atom, factor] : rest.terms) divisors.push_back(std::gcd(factor, divisor));
  std::sort(divisors.rbegin(), divisors.rend());
  divisors.erase(std::unique(divisors.begin(), divisors.end()), divisors.end());
  for (const int64_t g : divisors) {
    Linear multiple, remainder;
    if (g > 1 && factor_out(rest, g, multiple, remainder)) {
      add_term(remainder, make_floor_mod(make_linear(std::move(multiple)), constant(i64, divisor / g)), g);
      return make_linear(std::move(remainder));
    }
  }
  // The parts that are themselves remainders modulo a multiple of the divisor.
  for (const auto& [atom, factor] : rest.terms) {
    const Term& inner = terms_[atom];
    if (inner.kind != NodeKind::Binary || static_cast<BinaryOp>(inner.op) != BinaryOp::floor_mod) continue;
    const auto m = int_value(inner.children[1]);
    if (!m || *m <= 0 || *m % divisor != 0) continue;
    Linear opened = rest;
    const TermId dividend = inner.children[0];
    add_term(opened, atom, -factor);
    add_term(opened, dividend, factor);
    return make_floor_mod(make_linear(std::move(opened)), constant(i64, divisor));
  }
  const TermId dividend = make_linear(std::move(rest));
  return intern(NodeKind::Binary, static_cast<uint16_t>(BinaryOp::floor_mod), i64, 0,
                {dividend, constant(i64, divisor)}, nullptr);
}

// sum = divisor·quotient + remainder, by the terms that contain the divisor's factors.  False when none does.
bool Simplifier::split_by_symbol(const Linear& sum, TermId divisor, Linear& quotient, Linear& remainder) {
  const Linear by = linear_of(divisor);
  quotient = {}, remainder = {};
  if (by.terms.size() == 1 && by.constant == 0) {
    const auto [by_atom, by_factor] = by.terms[0];
    auto factors_of = [&](TermId id) {
      const Term& term = terms_[id];
      if (term.kind == NodeKind::Binary && static_cast<BinaryOp>(term.op) == BinaryOp::mul) return term.children;
      return std::vector<TermId>{id};
    };
    const std::vector<TermId> by_factors = factors_of(by_atom);
    for (const auto& [atom, factor] : sum.terms) {
      std::vector<TermId> left = factors_of(atom);
      bool divides = factor % by_factor == 0;
      for (const TermId f : by_factors) {
        const auto found = std::find(left.begin(), left.end(), f);
        if (found == left.end()) {
          divides = false;
          break;
        }
        left.erase(found);
      }
      if (!divides) {
        remainder.terms.emplace_back(atom, factor);
      } else if (left.empty()) {
        quotient.constant = wrap_add(quotient.constant, factor / by_factor);
      } else {
        const TermId rest = left.size() == 1 ? left[0]
                                             : intern(NodeKind::Binary, static_cast<uint16_t>(BinaryOp::mul), i64, 0,
                                                      std::move(left), nullptr);
        quotient.terms.emplace_back(rest, factor / by_factor);
      }
    }
    remainder.constant = sum.constant;
    return !quotient.terms.empty() || quotient.constant != 0;
  }
  // A divisor that is itself a sum: as many times as its first term says.
  if (by.terms.empty()) return false;
  const int64_t mine = sum.coefficient(by.terms[0].first);
  if (mine == 0 || mine % by.terms[0].second != 0) return false;
  const int64_t times = mine / by.terms[0].second;
  for (const auto& [atom, factor] : by.terms) {
    if (sum.coefficient(atom) != wrap_multiply(times, factor)) return false;
  }
  quotient.constant = times;
  remainder = sum;
  remainder.constant = wrap_add(remainder.constant, -wrap_multiply(times, by.constant));
  for (const auto& [atom, factor] : by.terms) remainder.terms.emplace_back(atom, -wrap_multiply(times, factor));
  normalise(remainder);
  return true;
}

}  // namespace tw::arith

namespace tw {

int64_t Affine::coefficient(const Var& var) const {
  for (const auto& [v, factor] : terms) {
    if (v == var) return factor;
  }
  return 0;
}

std::optional<Affine> as_affine(const Expr& e) {
  Affine result;
  auto add = [&](auto& self, const Expr& node, int64_t factor) -> bool {
    if (const auto* imm = node.as<IntImm>()) {
      result.constant = arith::wrap_add(result.constant, arith::wrap_multiply(factor, imm->value));
      return true;
    }
    if (node.kind() == NodeKind::Var) {
      const Var var = Var::of(node);
      for (auto& [v, f] : result.terms) {
        if (v == var) {
          f = arith::wrap_add(f, factor);
          return true;
        }
      }
      result.terms.emplace_back(var, factor);
      return true;
    }
    if (const auto* unary = node.as<Unary>()) {
      return unary->op == UnaryOp::negate && self(self, unary->a, arith::wrap_multiply(factor, -1));
    }
    const auto* b = node.as<Binary>();
    if (!b) return false;
    if (b->op == BinaryOp::add) return self(self, b->a, factor) && self(self, b->b, factor);
    if (b->op == BinaryOp::sub) return self(self, b->a, factor) && self(self, b->b, arith::wrap_multiply(factor, -1));
    if (b->op != BinaryOp::mul) return false;
    if (const auto* imm = b->b.as<IntImm>()) return self(self, b->a, arith::wrap_multiply(factor, imm->value));
    if (const auto* imm = b->a.as<IntImm>()) return self(self, b->b, arith::wrap_multiply(factor, imm->value));
    return false;
  };
  if (e.dtype() != i64 || !add(add, e, 1)) return std::nullopt;
  std::erase_if(result.terms, [](const auto& term) { return term.second == 0; });
  return result;
}

}  // namespace tw
