#include "tensor_ir/arith/region.h"

#include <algorithm>

#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

int64_t floor_mod_of(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// While a range is being built its width is kept as `span` = extent - 1, which adds up.
struct Stretch {
  Expr base, span;
};

bool depends_on(const Expr& e, const InnerExtents& inner) {
  const auto vars = free_vars(e);
  return std::any_of(vars.begin(), vars.end(), [&](const Var& v) { return inner.count(v) != 0; });
}

bool has_load(const Expr& e) {
  bool found = false;
  visit(e, [&](const Load&) { found = true; });
  return found;
}

class RangeWalk {
 public:
  RangeWalk(const InnerExtents& inner, const Assumptions& assumptions) : inner_(inner), assumptions_(assumptions) {}

  std::optional<Stretch> walk(const Expr& e) const {
    if (e.dtype() != i64) return std::nullopt;
    if (e.kind() == NodeKind::Var) {
      const auto found = inner_.find(Var::of(e));
      if (found == inner_.end()) return Stretch{e, 0};
      if (depends_on(found->second, inner_)) return std::nullopt;  // not the same in all iterations of another one
      return Stretch{0, found->second - 1};
    }
    if (!depends_on(e, inner_)) return has_load(e) ? std::nullopt : std::optional(Stretch{e, 0});
    const auto* b = e.as<Binary>();
    if (!b) return std::nullopt;
    const auto x = walk(b->a), y = walk(b->b);
    if (!x || !y) return std::nullopt;
    switch (b->op) {
      case BinaryOp::add:
        return Stretch{x->base + y->base, x->span + y->span};
      case BinaryOp::sub:
        return Stretch{x->base - y->base - y->span, x->span + y->span};
      case BinaryOp::mul:
        return is_const_int(y->span, 0)   ? scaled(*x, y->base)
               : is_const_int(x->span, 0) ? scaled(*y, x->base)
                                          : std::nullopt;
      case BinaryOp::floor_div:
        return divided(*x, y->base);
      case BinaryOp::div:
        return can_prove(is_not_negative(*x), assumptions_) ? divided(*x, y->base) : std::nullopt;
      case BinaryOp::floor_mod:
        return remainder(*x, y->base);
      case BinaryOp::mod:
        return can_prove(is_not_negative(*x), assumptions_) ? remainder(*x, y->base) : std::nullopt;
      // min and max move by no more than their operands do.
      case BinaryOp::min:
        return Stretch{min(x->base, y->base), wider(*x, *y)};
      case BinaryOp::max:
        return Stretch{max(x->base, y->base), wider(*x, *y)};
      default:
        return std::nullopt;
    }
  }

 private:
  static Expr is_not_negative(const Stretch& x) { return x.base >= 0; }
  static Expr wider(const Stretch& x, const Stretch& y) {
    if (is_const_int(x.span, 0)) return y.span;
    if (is_const_int(y.span, 0)) return x.span;
    return max(x.span, y.span);
  }

  std::optional<Stretch> scaled(const Stretch& x, const Expr& factor) const {
    if (const auto c = as_int(factor)) {
      if (*c >= 0) return Stretch{x.base * factor, x.span * factor};
      return Stretch{(x.base + x.span) * factor, x.span * Expr(-*c)};
    }
    if (can_prove(factor >= 0, assumptions_)) return Stretch{x.base * factor, x.span * factor};
    return std::nullopt;
  }

  std::optional<Stretch> divided(const Stretch& x, const Expr& divisor) const {
    const auto k = as_int(divisor);
    if (!k || *k <= 0) return std::nullopt;
    const Expr base = simplify(x.base, assumptions_);
    const auto residue = known_residue(base, *k);
    return Stretch{floor_div(base, divisor), floor_div(x.span + Expr(residue.value_or(*k - 1)), divisor)};
  }

  std::optional<Stretch> remainder(const Stretch& x, const Expr& divisor) const {
    const auto k = as_int(divisor);
    if (!k || *k <= 0) return std::nullopt;
    const auto residue = known_residue(simplify(x.base, assumptions_), *k);
    const auto span = as_int(simplify(x.span, assumptions_));
    if (residue && span && *residue + *span < *k) return Stretch{*residue, *span};
    return Stretch{0, *k - 1};
  }

  const InnerExtents& inner_;
  const Assumptions& assumptions_;
};

void add_term(LinearForm& form, const Expr& atom, int64_t coefficient) {
  for (auto it = form.terms.begin(); it != form.terms.end(); ++it) {
    if (!structural_equal(it->first, atom)) continue;
    it->second += coefficient;
    if (it->second == 0) form.terms.erase(it);
    return;
  }
  if (coefficient != 0) form.terms.emplace_back(atom, coefficient);
}

void collect(const Expr& e, int64_t factor, LinearForm& form) {
  if (const auto value = as_int(e)) {
    form.constant += factor * *value;
    return;
  }
  if (const auto* unary = e.as<Unary>(); unary && unary->op == UnaryOp::negate) return collect(unary->a, -factor, form);
  if (const auto* b = e.as<Binary>()) {
    if (b->op == BinaryOp::add || b->op == BinaryOp::sub) {
      collect(b->a, factor, form);
      collect(b->b, b->op == BinaryOp::add ? factor : -factor, form);
      return;
    }
    if (b->op == BinaryOp::mul) {
      if (const auto c = as_int(b->b)) return collect(b->a, factor * *c, form);
      if (const auto c = as_int(b->a)) return collect(b->b, factor * *c, form);
    }
  }
  add_term(form, e, factor);
}

}  // namespace

LinearForm linear_form(const Expr& e) {
  LinearForm form;
  collect(e, 1, form);
  return form;
}

std::optional<int64_t> known_residue(const Expr& e, int64_t divisor) {
  const LinearForm form = linear_form(e);
  for (const auto& [atom, coefficient] : form.terms) {
    if (coefficient % divisor != 0) return std::nullopt;
  }
  return floor_mod_of(form.constant, divisor);
}

std::optional<SymbolicRange> range_of(const Expr& e, const InnerExtents& inner, const Assumptions& assumptions) {
  Assumptions all = assumptions;
  for (const auto& [var, extent] : inner) all.bind_range(var, extent);
  const auto found = RangeWalk(inner, assumptions).walk(simplify(e, all));
  if (!found) return std::nullopt;
  return SymbolicRange{simplify(found->base, assumptions), simplify(found->span + 1, assumptions)};
}

std::optional<SymbolicRange> union_of(const SymbolicRange& a, const SymbolicRange& b, const Assumptions& assumptions) {
  const auto distance = as_int(simplify(b.base - a.base, assumptions));
  if (!distance) return std::nullopt;
  const SymbolicRange &first = *distance >= 0 ? a : b, &second = *distance >= 0 ? b : a;
  const Expr end = second.extent + std::abs(*distance);
  return SymbolicRange{first.base, simplify(max(first.extent, end), assumptions)};
}

}  // namespace tw
