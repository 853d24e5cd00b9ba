// Vectors: what is the same in all lanes becomes scalar, and index vectors stay ramps.
//
//   broadcast(a) op broadcast(b) → broadcast(a op b)
//   ramp(b, s) + broadcast(c)    → ramp(b + c, s)
//   ramp(b, s) floor_div k       → broadcast(b floor_div k) when all lanes have one quotient
//   ramp(b, s) < broadcast(n)    → ramp(0, s) < broadcast(n − b) unless it is known
#include "tensor_ir/arith/simplifier.h"

namespace tw::arith {

TermId Simplifier::make_broadcast(TermId value, int lanes, const Expr* hint) {
  if (lanes == 1) return value;
  const DType dtype = terms_[value].dtype;
  return intern(NodeKind::Broadcast, 0, dtype.with_lanes(lanes), 0, {value}, hint);
}

TermId Simplifier::make_ramp(TermId base, TermId stride, int lanes, const Expr* hint) {
  if (lanes == 1) return base;
  if (int_value(stride) == 0) return make_broadcast(base, lanes);
  return intern(NodeKind::Ramp, 0, terms_[base].dtype.with_lanes(lanes), 0, {base, stride}, hint);
}

std::optional<std::pair<TermId, TermId>> Simplifier::as_ramp(TermId id) {
  const NodeKind kind = terms_[id].kind;
  if (kind == NodeKind::Ramp) return std::pair{terms_[id].children[0], terms_[id].children[1]};
  if (kind != NodeKind::Broadcast) return std::nullopt;
  const TermId base = terms_[id].children[0];
  if (terms_[base].dtype.is_float() || terms_[base].dtype.is_vector()) return std::nullopt;
  return std::pair{base, constant(terms_[base].dtype, int64_t{0})};
}

TermId Simplifier::make_vector_binary(BinaryOp op, TermId a, TermId b) {
  const DType dtype = terms_[a].dtype;
  const bool is_a_broadcast = terms_[a].kind == NodeKind::Broadcast,
             is_b_broadcast = terms_[b].kind == NodeKind::Broadcast;
  if (is_a_broadcast && is_b_broadcast && terms_[terms_[a].children[0]].dtype == terms_[terms_[b].children[0]].dtype) {
    const TermId scalar = make_binary(op, terms_[a].children[0], terms_[b].children[0]);
    return make_broadcast(scalar, dtype.lanes / terms_[scalar].dtype.lanes);
  }
  if (!dtype.is_integer()) return -1;
  if (dtype.element() == i64 && (is_comparison(op) || op == BinaryOp::min || op == BinaryOp::max)) {
    const TermId decided = make_vector_comparison(op, a, b);
    if (decided >= 0) return decided;
  }
  const auto left = as_ramp(a), right = as_ramp(b);
  if (!left || !right) return -1;
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::sub: {
      const TermId base = make_binary(op, left->first, right->first);
      return make_ramp(base, make_binary(op, left->second, right->second), dtype.lanes);
    }
    case BinaryOp::mul: {
      if (!is_a_broadcast && !is_b_broadcast) return -1;
      const TermId factor = is_a_broadcast ? left->first : right->first;
      const auto& ramp = is_a_broadcast ? right : left;
      const TermId base = make_binary(op, ramp->first, factor);
      return make_ramp(base, make_binary(op, ramp->second, factor), dtype.lanes);
    }
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
      return dtype.element() == i64 ? make_ramp_division(op, a, b) : -1;
    case BinaryOp::div:
    case BinaryOp::mod:
      if (dtype.element() == i64 && range(a).low >= 0 && range(b).low > 0) {
        return make_ramp_division(op == BinaryOp::div ? BinaryOp::floor_div : BinaryOp::floor_mod, a, b);
      }
      return -1;
    default:
      return -1;
  }
}

TermId Simplifier::make_ramp_division(BinaryOp op, TermId a, TermId b) {
  const auto divisor = int_value(b);
  const int lanes = terms_[a].dtype.lanes;
  const auto ramp = *as_ramp(a);
  const auto stride = int_value(ramp.second);
  const Linear base = linear_of(ramp.first);
  if (!divisor || *divisor <= 0 || !stride || !is_exact(base)) return -1;
  const TermId by = constant(i64, *divisor);
  if (*stride % *divisor == 0) {
    if (op == BinaryOp::floor_mod) return make_broadcast(make_floor_mod(ramp.first, by), lanes);
    return make_ramp(make_floor_div(ramp.first, by), constant(i64, *stride / *divisor), lanes);
  }
  Linear multiple, rest;
  if (!factor_out(base, *divisor, multiple, rest)) {
    if (!base.terms.empty()) {  // none is a multiple: all lanes may still be in one quotient
      rest = base;
      multiple = {};
      const Range r = range(base);
      if (!r.is_bounded()) return -1;
      multiple.constant = floor_divide(r.low, *divisor);
    } else {
      multiple.constant = floor_divide(base.constant, *divisor);
      rest = base;
    }
    int64_t shift = 0;
    if (__builtin_mul_overflow(multiple.constant, *divisor, &shift)) return -1;
    rest.constant -= shift;
  }
  const Range lanes_range = add(range(rest), scale({0, lanes - 1}, *stride));
  if (!lanes_range.is_within(0, *divisor - 1)) return -1;
  if (op == BinaryOp::floor_div) return make_broadcast(make_linear(std::move(multiple)), lanes);
  return make_ramp(make_linear(std::move(rest)), ramp.second, lanes);
}

TermId Simplifier::make_vector_comparison(BinaryOp op, TermId a, TermId b) {
  const int lanes = terms_[a].dtype.lanes;
  const bool is_order = op == BinaryOp::lt || op == BinaryOp::le;
  const bool is_extreme = op == BinaryOp::min || op == BinaryOp::max;
  if (a == b) return is_extreme ? a : truth(op == BinaryOp::le || op == BinaryOp::eq, lanes);
  const auto left = as_ramp(a), right = as_ramp(b);
  Range gap;  // of b − a
  Linear base;
  if (left && right) {
    base = difference(right->first, left->first);
    const Linear stride = difference(right->second, left->second);
    if (!is_exact(linear_of(left->first)) || !is_exact(linear_of(right->first)) || !is_exact(base)) return -1;
    gap = add(range(base), multiply(range(stride), {0, lanes - 1}));
    if (!facts_.empty() && !base.terms.empty() && stride.terms.empty()) {  // the first and the last lane decide
      Linear last = base;
      last.constant += stride.constant * (lanes - 1);
      auto opposite = [](Linear sum) {
        sum.constant = -sum.constant;
        for (auto& term : sum.terms) term.second = -term.second;
        return sum;
      };
      if (prove_nonnegative(base) && prove_nonnegative(last)) gap.low = std::max<int64_t>(gap.low, 0);
      if (prove_positive(base) && prove_positive(last)) gap.low = std::max<int64_t>(gap.low, 1);
      if (prove_nonnegative(opposite(base)) && prove_nonnegative(opposite(last)))
        gap.high = std::min<int64_t>(gap.high, 0);
      if (prove_positive(opposite(base)) && prove_positive(opposite(last))) gap.high = std::min<int64_t>(gap.high, -1);
    }
  } else {
    const Range x = range(a), y = range(b);
    if (x.may_wrap && !x.is_bounded()) return -1;
    if (y.may_wrap && !y.is_bounded()) return -1;
    gap = add(y, scale(x, -1));
  }
  if (is_extreme) {
    if (gap.low >= 0) return op == BinaryOp::min ? a : b;
    if (gap.high <= 0) return op == BinaryOp::min ? b : a;
    return -1;
  }
  if (is_order) {
    const int64_t least = op == BinaryOp::lt ? 1 : 0;
    if (gap.low >= least) return truth(true, lanes);
    if (gap.high < least) return truth(false, lanes);
  } else if (gap.low > 0 || gap.high < 0) {
    return truth(op == BinaryOp::ne, lanes);
  }
  if (!left || !right) return -1;
  // ramp(0, s) op broadcast(base)
  if (op == BinaryOp::le) op = BinaryOp::lt, base.constant += 1;
  Linear stride = difference(left->second, right->second);
  const TermId ramp = make_ramp(constant(i64, int64_t{0}), make_linear(std::move(stride)), lanes);
  const TermId bound = make_broadcast(make_linear(std::move(base)), lanes);
  if (terms_[ramp].kind == NodeKind::Broadcast) return make_binary(op, ramp, bound);
  return intern(NodeKind::Binary, static_cast<uint16_t>(op), boolean.with_lanes(lanes), 0, {ramp, bound}, nullptr);
}

TermId Simplifier::simplify_reduce(const VectorReduce& node, const Expr& e) {
  const TermId value = simplify(node.value);
  const DType from = terms_[value].dtype;
  if (terms_[value].kind == NodeKind::Broadcast && node.dtype.lanes == 1) {
    const TermId scalar = terms_[value].children[0];
    switch (node.op) {
      case BinaryOp::min:
      case BinaryOp::max:
      case BinaryOp::logical_and:
      case BinaryOp::logical_or:
        return scalar;
      case BinaryOp::add:
        if (from.is_integer()) return make_binary(BinaryOp::mul, scalar, constant(from.element(), int64_t{from.lanes}));
        break;
      default:
        break;
    }
  }
  return intern(NodeKind::VectorReduce, static_cast<uint16_t>(node.op), node.dtype, 0, {value}, &e);
}

}  // namespace tw::arith
