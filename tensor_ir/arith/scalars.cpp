// Making scalar terms: constants fold, ranges decide, rows apply.
#include <algorithm>

#include "tensor_ir/arith/simplifier.h"

namespace tw::arith {

TermId Simplifier::make_unary(UnaryOp op, TermId a, const Expr* hint) {
  const DType dtype = terms_[a].dtype;
  if (op == UnaryOp::negate && dtype == i64) {
    Linear sum;
    add_term(sum, a, -1);
    return make_linear(std::move(sum), hint);
  }
  if (terms_[a].kind == NodeKind::Broadcast) return make_broadcast(make_unary(op, terms_[a].children[0]), dtype.lanes);
  if (op == UnaryOp::negate && terms_[a].kind == NodeKind::Ramp) {
    const std::vector<TermId> parts = terms_[a].children;
    const TermId base = make_unary(op, parts[0]);
    return make_ramp(base, make_unary(op, parts[1]), dtype.lanes);
  }
  if (const auto value = int_value(a)) {
    if (op == UnaryOp::negate) return constant(dtype, static_cast<int64_t>(-static_cast<uint64_t>(*value)));
    if (op == UnaryOp::bit_not) return constant(dtype, ~*value);
    return truth(*value == 0);
  }
  if (const auto value = float_value(a); value && op == UnaryOp::negate) return constant(dtype, -*value);
  const TermId operands[] = {a};
  if (const TermId rewritten = apply_rows(NodeKind::Unary, static_cast<uint16_t>(op), operands); rewritten >= 0) {
    return rewritten;
  }
  return intern(NodeKind::Unary, static_cast<uint16_t>(op), dtype, 0, {a}, hint);
}

TermId Simplifier::make_binary(BinaryOp op, TermId a, TermId b, const Expr* hint) {
  const uint64_t key = static_cast<uint64_t>(op) << 58 ^ static_cast<uint64_t>(a) << 29 ^ static_cast<uint64_t>(b);
  if (const auto found = binary_memo_.find(key); found != binary_memo_.end() && found->second.epoch == epoch_) {
    return found->second.result;
  }
  TermId result = make_binary_uncached(op, a, b, hint);
  if (terms_[result].dtype == boolean && !known_.empty()) {
    if (const auto known = known_.find(result); known != known_.end()) result = truth(known->second);
  }
  binary_memo_[key] = {result, epoch_};
  return result;
}

TermId Simplifier::make_binary_uncached(BinaryOp op, TermId a, TermId b, const Expr* hint) {
  const DType dtype = terms_[a].dtype;
  const bool is_integral = !dtype.is_float();
  if (is_integral ? int_value(a) && int_value(b) : float_value(a) && float_value(b)) {
    const Expr folded = tw::binary(op, terms_[a].expr, terms_[b].expr);
    if (const auto value = as_int(folded); value && !folded.dtype().is_float()) return constant(folded.dtype(), *value);
    if (const auto value = as_float(folded)) return constant(folded.dtype(), *value);
  }
  if (dtype.is_vector()) {
    if (const TermId vector = make_vector_binary(op, a, b); vector >= 0) return vector;
  } else if (dtype == i64) {
    switch (op) {
      case BinaryOp::add:
      case BinaryOp::sub: {
        Linear sum;
        add_term(sum, a, 1);
        add_term(sum, b, op == BinaryOp::add ? 1 : -1);
        return make_linear(std::move(sum), hint);
      }
      case BinaryOp::mul:
        return make_product(a, b);
      case BinaryOp::div:
      case BinaryOp::mod:
        if (range(a).low >= 0 && range(b).low > 0) {
          return make_binary(op == BinaryOp::div ? BinaryOp::floor_div : BinaryOp::floor_mod, a, b);
        }
        break;
      case BinaryOp::floor_div:
        return make_floor_div(a, b);
      case BinaryOp::floor_mod:
        return make_floor_mod(a, b);
      case BinaryOp::eq:
      case BinaryOp::ne:
      case BinaryOp::lt:
      case BinaryOp::le:
        return make_index_comparison(op, a, b);
      case BinaryOp::min:
      case BinaryOp::max:
        return make_index_min_max(op, a, b);
      default:
        break;
    }
  } else if (dtype.is_integer() && (is_comparison(op) || op == BinaryOp::min || op == BinaryOp::max)) {
    const Range x = range(a), y = range(b);
    const bool is_known_less = x.high<y.low, is_known_greater = x.low> y.high;
    if (dtype != u64 || (x.low >= 0 && y.low >= 0)) {
      if (is_known_less || is_known_greater) {
        switch (op) {
          case BinaryOp::eq:
            return truth(false);
          case BinaryOp::ne:
            return truth(true);
          case BinaryOp::lt:
          case BinaryOp::le:
            return truth(is_known_less);
          default:
            return (op == BinaryOp::min) == is_known_less ? a : b;
        }
      }
    }
  }
  if (dtype.is_bool() && (op == BinaryOp::logical_and || op == BinaryOp::logical_or)) {
    if (const TermId result = make_logical(op, a, b); result >= 0) return result;
  }
  if (is_integral && is_commutative(op) && (int_value(a) || (!int_value(b) && a > b && !dtype.is_bool())))
    std::swap(a, b);
  const TermId operands[] = {a, b};
  if (const TermId rewritten = apply_rows(NodeKind::Binary, static_cast<uint16_t>(op), operands); rewritten >= 0) {
    return rewritten;
  }
  const bool is_bool_result = is_comparison(op) || op == BinaryOp::logical_and || op == BinaryOp::logical_or;
  return intern(NodeKind::Binary, static_cast<uint16_t>(op), is_bool_result ? boolean.with_lanes(dtype.lanes) : dtype,
                0, {a, b}, hint);
}

// Index comparisons of the same sum in a conjunction or disjunction: one may imply or contradict another.
TermId Simplifier::make_logical(BinaryOp op, TermId a, TermId b) {
  const bool is_and = op == BinaryOp::logical_and;
  if (a == b) return a;
  std::vector<TermId> parts;
  auto collect = [&](auto& self, TermId id) -> void {
    const Term& term = terms_[id];
    if (term.kind == NodeKind::Binary && term.op == static_cast<uint16_t>(op) && parts.size() < 12) {
      self(self, term.children[0]);
      self(self, term.children[1]);
    } else {
      parts.push_back(id);
    }
  };
  collect(collect, a);
  const size_t first_of_b = parts.size();
  collect(collect, b);
  auto is_index_order = [&](TermId id) {
    const Term& term = terms_[id];
    return term.kind == NodeKind::Binary && is_index(term.children[0]) &&
           (term.op == static_cast<uint16_t>(BinaryOp::lt) || term.op == static_cast<uint16_t>(BinaryOp::le));
  };
  auto gap_of = [&](TermId id) {  // the order holds: gap > 0
    Linear gap = difference(terms_[id].children[1], terms_[id].children[0]);
    gap.constant += terms_[id].op == static_cast<uint16_t>(BinaryOp::le);
    return gap;
  };
  bool any_dropped = false;
  for (size_t i = 0; i < first_of_b; ++i) {
    if (parts[i] < 0 || !is_index_order(parts[i])) continue;
    const Linear x = gap_of(parts[i]);
    for (size_t j = first_of_b; j < parts.size(); ++j) {
      if (parts[j] < 0 || !is_index_order(parts[j])) continue;
      const Linear y = gap_of(parts[j]);
      if (!is_exact(x) || !is_exact(y) || x.terms.size() != y.terms.size()) continue;
      if (x.terms == y.terms) {
        const bool x_follows = x.constant >= y.constant;  // from y
        const size_t dropped = x_follows == is_and ? i : j;
        parts[dropped] = -1;
        any_dropped = true;
        if (dropped == i) break;
        continue;
      }
      bool is_opposite = true;
      for (size_t t = 0; t < x.terms.size(); ++t) {
        is_opposite &= x.terms[t].first == y.terms[t].first && x.terms[t].second == -y.terms[t].second;
      }
      if (!is_opposite) continue;
      if (is_and && x.constant + y.constant < 2) return truth(false);
      if (!is_and && x.constant + y.constant >= 1) return truth(true);
    }
  }
  if (!any_dropped) return -1;
  TermId result = -1;
  for (const TermId part : parts) {
    if (part < 0) continue;
    result = result < 0 ? part : make_binary(op, result, part);
  }
  return result;
}

TermId Simplifier::make_select(TermId condition, TermId a, TermId b, const Expr* hint) {
  if (const auto known = int_value(condition)) return *known ? a : b;
  if (a == b) return a;
  const DType dtype = terms_[a].dtype;
  auto is_broadcast = [&](TermId id) { return terms_[id].kind == NodeKind::Broadcast; };
  if (is_broadcast(condition) && is_broadcast(a) && is_broadcast(b)) {
    return make_broadcast(make_select(terms_[condition].children[0], terms_[a].children[0], terms_[b].children[0]),
                          dtype.lanes);
  }
  const TermId operands[] = {condition, a, b};
  if (const TermId rewritten = apply_rows(NodeKind::Select, 0, operands); rewritten >= 0) return rewritten;
  return intern(NodeKind::Select, 0, dtype, 0, {condition, a, b}, hint);
}

TermId Simplifier::make_cast(DType dtype, TermId a, const Expr* hint) {
  const DType from = terms_[a].dtype;
  if (from == dtype) return a;
  if (terms_[a].kind == NodeKind::Broadcast) {
    return make_broadcast(make_cast(dtype.element(), terms_[a].children[0]), dtype.lanes);
  }
  if (int_value(a) || float_value(a)) {
    const Expr folded = tw::cast(dtype, terms_[a].expr);
    if (const auto value = as_int(folded); value && !dtype.is_float()) return constant(dtype, *value);
    if (const auto value = as_float(folded)) return constant(dtype, *value);
  }
  if (terms_[a].kind == NodeKind::Cast) {  // an exact conversion in between does nothing
    const TermId inner = terms_[a].children[0];
    const DType source = terms_[inner].dtype;
    if (source.is_integer() && from.is_integer()) {
      const Range r = range(inner), middle = range_of_type(from);
      const bool source_known = source.element() != u64 || r.low >= 0;
      if (source_known && r.is_within(middle.low, middle.high) && (from.element() != u64 || r.low >= 0)) {
        return make_cast(dtype, inner, nullptr);
      }
      if (dtype.is_integer() && dtype.bits <= from.bits)
        return make_cast(dtype, inner, nullptr);  // only low bits matter
    }
    if (source == dtype && source.element() == f32 && from.element() == f64) return inner;
  }
  return intern(NodeKind::Cast, 0, dtype, 0, {a}, hint);
}

}  // namespace tw::arith
