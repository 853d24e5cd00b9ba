#include "relay_ir/fold_dims.h"

#include <cmath>
#include <numeric>
#include <unordered_map>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

Expr to_dimension(const Expr& e);

Expr round_down(const Fraction& x) {
  return floor_div(x.above, x.below);
}
Expr round_up(const Fraction& x) {
  return floor_div(x.above + (x.below - 1), x.below);
}

}  // namespace

std::optional<Fraction> as_fraction(const Expr& e) {
  if (const auto* number = e.as<FloatImm>()) {
    constexpr int64_t below = 1 << 16;
    const double above = number->value * below;
    if (!(std::abs(above) < 1e15) || above != std::floor(above)) return std::nullopt;
    const int64_t common = std::gcd(static_cast<int64_t>(above), below);
    return Fraction{Expr(static_cast<int64_t>(above) / common), below / common};
  }
  if (const auto* converted = e.as<Cast>()) {
    if (converted->value.dtype().is_float()) return as_fraction(converted->value);
    const Expr whole = to_dimension(converted->value);
    return whole.is_defined() ? std::optional(Fraction{whole}) : std::nullopt;
  }
  const auto combine = [](const Expr& a, const Expr& b, const auto& with) -> std::optional<Fraction> {
    const auto x = as_fraction(a), y = as_fraction(b);
    if (!x || !y) return std::nullopt;
    const int64_t common = std::lcm(x->below, y->below);
    return Fraction{with(x->above * (common / x->below), y->above * (common / y->below)), common};
  };
  const auto smaller = [](const Expr& a, const Expr& b) { return min(a, b); };
  const auto larger = [](const Expr& a, const Expr& b) { return max(a, b); };
  if (const auto* negated = e.as<Unary>(); negated && negated->op == UnaryOp::negate) {
    const auto x = as_fraction(negated->a);
    return x ? std::optional(Fraction{-x->above, x->below}) : std::nullopt;
  }
  if (const auto* b = e.as<Binary>()) {
    if (b->op == BinaryOp::add) return combine(b->a, b->b, [](const Expr& x, const Expr& y) { return x + y; });
    if (b->op == BinaryOp::sub) return combine(b->a, b->b, [](const Expr& x, const Expr& y) { return x - y; });
    if (b->op == BinaryOp::min) return combine(b->a, b->b, smaller);
    if (b->op == BinaryOp::max) return combine(b->a, b->b, larger);
    const auto x = as_fraction(b->a), y = as_fraction(b->b);
    if (!x || !y) return std::nullopt;
    if (b->op == BinaryOp::mul) return Fraction{x->above * y->above, x->below * y->below};
    const auto divisor = as_int(simplify(y->above));
    if (b->op != BinaryOp::div || !divisor || *divisor == 0) return std::nullopt;
    return Fraction{x->above * (*divisor < 0 ? -y->below : y->below), x->below * std::abs(*divisor)};
  }
  if (const auto* c = e.as<Call>()) {
    if (c->intrinsic == Intrinsic::minimum || c->intrinsic == Intrinsic::maximum) {
      const bool is_minimum = c->intrinsic == Intrinsic::minimum;
      for (const auto& [bound, other] : {std::pair(0, 1), std::pair(1, 0)}) {
        const auto* number = c->arguments[bound].as<FloatImm>();
        if (number && number->value == (is_minimum ? HUGE_VAL : -HUGE_VAL)) return as_fraction(c->arguments[other]);
      }
      return is_minimum ? combine(c->arguments[0], c->arguments[1], smaller)
                        : combine(c->arguments[0], c->arguments[1], larger);
    }
    if (c->intrinsic != Intrinsic::floor && c->intrinsic != Intrinsic::ceil) return std::nullopt;
    const auto x = as_fraction(c->arguments[0]);
    if (!x) return std::nullopt;
    return Fraction{c->intrinsic == Intrinsic::floor ? round_down(*x) : round_up(*x)};
  }
  return std::nullopt;
}

namespace {

// As a dimension can be: sums, products and the like of symbols.  Not defined for anything else.
Expr to_dimension(const Expr& e) {
  if (e.dtype().is_bool()) return {};
  if (const auto number = as_int(e)) return Expr(*number);
  if (e.as<VarNode>()) return e;
  if (const auto* converted = e.as<Cast>()) {
    if (converted->value.dtype().is_integer()) return to_dimension(converted->value);
    const auto x = converted->value.dtype().is_float() ? as_fraction(converted->value) : std::nullopt;
    if (!x) return {};
    if (can_prove(x->above >= 0)) return round_down(*x);
    return x->below == 1 ? x->above : can_prove(x->above <= 0) ? round_up(*x) : Expr();
  }
  if (const auto* negated = e.as<Unary>(); negated && negated->op == UnaryOp::negate) {
    const Expr x = to_dimension(negated->a);
    return x.is_defined() ? -x : Expr();
  }
  const auto* b = e.as<Binary>();
  if (!b || b->op > BinaryOp::max) return {};
  const Expr x = to_dimension(b->a), y = to_dimension(b->b);
  if (!x.is_defined() || !y.is_defined()) return {};
  if (b->op != BinaryOp::div && b->op != BinaryOp::mod) return binary(b->op, x, y);
  if (!can_prove(x >= 0) || !can_prove(y > 0)) return {};
  return b->op == BinaryOp::div ? floor_div(x, y) : floor_mod(x, y);
}

Expr as_dimension(const Expr& e) {
  const Expr dimension = to_dimension(e);
  return dimension.is_defined() ? simplify(dimension) : Expr();
}

// An element of a tensor expression whose placeholders hold known expressions.
class ElementFold {
 public:
  void set(const te::Tensor& placeholder, std::vector<Expr> elements) {
    placeholders_[placeholder.buffer()] = std::move(elements);
  }

  // Not defined where the element is no plain function of the placeholders' elements.
  Expr element(const te::Tensor& tensor, const te::Indices& at) {
    if (const auto found = placeholders_.find(tensor.buffer()); found != placeholders_.end()) {
      const auto flat = as_int(simplify(flat_index(at, tensor.shape())));
      return flat && *flat >= 0 && *flat < static_cast<int64_t>(found->second.size()) ? found->second[*flat] : Expr();
    }
    if (!tensor.stage() || tensor.stage()->is_opaque) return {};
    Expr value;
    visit(tensor.stage()->nest, [&](const Block& block) {
      const auto* store = block.body.as<Store>();
      if (!store || block.init.is_defined() || block.iters.size() != at.size()) return;
      Substitution position;
      for (size_t d = 0; d < at.size(); ++d) position[block.iters[d].var] = at[d];
      value = substitute(store->value, position);
    });
    if (!value.is_defined()) return {};
    bool is_known = true;
    // Before its loads: a condition on positions decides which of them are made at all.
    value = rewrite_bottom_up(simplify(value), [&](const Load& l) -> Expr {
      if (l.predicate.is_defined()) {
        const auto holds = as_int(simplify(l.predicate));
        if (holds == 0) return zero_of(l.dtype);
        is_known = is_known && holds.has_value();
      }
      for (const te::Tensor& input : tensor.stage()->inputs) {
        if (!(input.buffer() == l.buffer)) continue;
        const Expr found = element(input, l.indices);
        if (found.is_defined()) return found;
      }
      is_known = false;
      return {};
    });
    return is_known ? simplify(value) : Expr();
  }

 private:
  static Expr flat_index(const te::Indices& at, const std::vector<Expr>& shape) {
    Expr flat(0);
    for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + at[d];
    return flat;
  }

  std::unordered_map<Buffer, std::vector<Expr>> placeholders_;
};

}  // namespace

std::optional<FoldedDims> fold_dims(const OpDef& op, const NodeAttributes& given, const std::vector<TensorType>& types,
                                    const std::vector<std::vector<Expr>>& inputs) {
  constexpr int64_t most_elements = 64;
  if (op.kind != OpKind::elementwise && op.kind != OpKind::injective && op.kind != OpKind::view) return std::nullopt;
  NodeAttributes attributes = given;
  const std::vector<bool> present(types.size(), true);
  const std::vector<const NDArray*> constants(types.size(), nullptr);
  const std::vector<TensorType> results = infer_types(op, types, present, constants, attributes);
  const auto shape = results.size() == 1 ? static_shape(results[0]) : std::nullopt;
  if (!shape || element_count(*shape) > most_elements) return std::nullopt;
  ElementFold fold;
  std::vector<te::Tensor> placeholders;
  for (size_t i = 0; i < inputs.size(); ++i) {
    placeholders.push_back(te::placeholder("x" + std::to_string(i), types[i].shape, types[i].dtype.stored()));
    std::vector<Expr> elements;
    for (const Expr& element : inputs[i]) elements.push_back(cast(types[i].dtype, element));
    fold.set(placeholders.back(), std::move(elements));
  }
  const te::Tensor result = op.compute({op, attributes, types, present, constants, results}, placeholders).at(0);
  std::vector<Expr> elements;
  for (int64_t flat = 0; flat < element_count(*shape); ++flat) {
    te::Indices at(shape->size());
    int64_t rest = flat;
    for (size_t d = shape->size(); d-- > 0; rest /= (*shape)[d]) at[d] = Expr(rest % (*shape)[d]);
    const Expr element = fold.element(result, at);
    if (!element.is_defined()) return std::nullopt;
    const bool is_number = as_int(element) || element.as<FloatImm>();
    const bool is_fraction = element.dtype().is_float() && as_fraction(element);
    elements.push_back(is_number || is_fraction || element.dtype().is_bool() ? element
                       : element.dtype().is_integer()                        ? as_dimension(element)
                                                                             : Expr());
    if (!elements.back().is_defined()) return std::nullopt;
  }
  return FoldedDims{results[0], elements};
}

}  // namespace tw::relay
