// The table of terms.
#include <algorithm>
#include <bit>

#include "tensor_ir/arith/simplifier.h"

namespace tw::arith {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

uint64_t bits_of(DType dtype) {
  return static_cast<uint64_t>(dtype.kind) | static_cast<uint64_t>(dtype.bits) << 8 |
         static_cast<uint64_t>(dtype.lanes) << 16;
}

uint64_t hash_of(NodeKind kind, uint16_t op, DType dtype, uint64_t extra, std::span<const TermId> children) {
  uint64_t h = mix(static_cast<uint64_t>(kind) << 16 | op, bits_of(dtype));
  h = mix(h, extra);
  for (const TermId child : children) h = mix(h, static_cast<uint64_t>(child));
  h ^= h >> 29;
  return h | 1;
}

uint64_t hash_of(const Linear& sum) {
  uint64_t h = mix(0, static_cast<uint64_t>(sum.constant));
  for (const auto& [atom, factor] : sum.terms)
    h = mix(mix(h, static_cast<uint64_t>(atom)), static_cast<uint64_t>(factor));
  return h;
}

// Sums are rebuilt from their linear form; an input that already looks so is kept.
bool is_same_sum(const Expr& a, const Expr& b) {
  if (a.is_same(b)) return true;
  if (a.kind() != b.kind() || a.dtype() != b.dtype()) return false;
  if (const auto* x = a.as<IntImm>()) return x->value == b.as<IntImm>()->value;
  if (const auto* x = a.as<Unary>()) return x->op == b.as<Unary>()->op && is_same_sum(x->a, b.as<Unary>()->a);
  const auto* x = a.as<Binary>();
  const auto* y = b.as<Binary>();
  return x && x->op == y->op && is_same_sum(x->a, y->a) && is_same_sum(x->b, y->b);
}

}  // namespace

TermId Simplifier::find(NodeKind kind, uint16_t op, DType dtype, uint64_t extra,
                        std::span<const TermId> children) const {
  if (slots_.empty()) return -1;
  const uint64_t hash = hash_of(kind, op, dtype, extra, children);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i] >= 0; i = (i + 1) & mask) {
    const TermId id = slots_[i];
    if (hashes_[id] != hash) continue;
    const Term& term = terms_[id];
    if (term.kind == kind && term.op == op && term.dtype == dtype && term.extra == extra && term.linear < 0 &&
        std::equal(children.begin(), children.end(), term.children.begin(), term.children.end())) {
      return id;
    }
  }
  return -1;
}

TermId Simplifier::intern(NodeKind kind, uint16_t op, DType dtype, uint64_t extra, std::vector<TermId> children,
                          const Expr* hint) {
  if (const TermId found = find(kind, op, dtype, extra, children); found >= 0) return found;
  if ((terms_.size() + 1) * 2 > slots_.size()) {
    slots_.assign(std::max<size_t>(64, slots_.size() * 4), -1);
    for (size_t id = 0; id < terms_.size(); ++id) {
      if (terms_[id].linear >= 0) continue;
      size_t i = hashes_[id] & (slots_.size() - 1);
      while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = static_cast<TermId>(id);
    }
  }
  const uint64_t hash = hash_of(kind, op, dtype, extra, children);
  size_t i = hash & (slots_.size() - 1);
  while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
  const auto id = static_cast<TermId>(terms_.size());
  slots_[i] = id;
  hashes_.push_back(hash);
  Term term{{}, kind, op, dtype, extra, std::move(children)};
  term.has_load = kind == NodeKind::Load;
  for (const TermId child : term.children) term.has_load |= child >= 0 && terms_[child].has_load;
  // The hint stands for the term when it has the same operands.
  bool keeps_hint = false;
  if (hint && hint->kind() == kind && hint->dtype() == dtype) {
    auto is_child = [&](size_t index, const Expr& e) {
      return index < term.children.size() && terms_[term.children[index]].expr.is_same(e);
    };
    switch (kind) {
      case NodeKind::IntImm:
      case NodeKind::FloatImm:
      case NodeKind::Var:
        keeps_hint = true;
        break;
      case NodeKind::Unary:
        keeps_hint = is_child(0, hint->as<Unary>()->a);
        break;
      case NodeKind::Binary: {
        const auto* b = hint->as<Binary>();
        keeps_hint =
            static_cast<uint16_t>(b->op) == op && term.children.size() == 2 && is_child(0, b->a) && is_child(1, b->b);
        break;
      }
      case NodeKind::Cast:
        keeps_hint = is_child(0, hint->as<Cast>()->value);
        break;
      case NodeKind::Broadcast:
        keeps_hint = is_child(0, hint->as<Broadcast>()->value);
        break;
      case NodeKind::Ramp:
        keeps_hint = is_child(0, hint->as<Ramp>()->base) && is_child(1, hint->as<Ramp>()->stride);
        break;
      case NodeKind::Select: {
        const auto* s = hint->as<Select>();
        keeps_hint = is_child(0, s->condition) && is_child(1, s->then_value) && is_child(2, s->else_value);
        break;
      }
      case NodeKind::VectorReduce:
        keeps_hint = is_child(0, hint->as<VectorReduce>()->value);
        break;
      default:
        break;  // Load, Call, Let: their makers look themselves
    }
  }
  if (keeps_hint)
    term.expr = *hint;
  else if (kind != NodeKind::Load && kind != NodeKind::Call && kind != NodeKind::Let)
    term.expr = build(term);
  terms_.push_back(std::move(term));
  return id;
}

Expr Simplifier::build(const Term& term) const {
  auto child = [&](size_t i) -> const Expr& { return terms_[term.children[i]].expr; };
  switch (term.kind) {
    case NodeKind::IntImm:
      return make_expr<IntImm>(term.dtype, static_cast<int64_t>(term.extra));
    case NodeKind::FloatImm:
      return make_expr<FloatImm>(term.dtype, std::bit_cast<double>(term.extra));
    case NodeKind::Unary:
      return make_expr<Unary>(term.dtype, static_cast<UnaryOp>(term.op), child(0));
    case NodeKind::Binary: {
      Expr result = child(0);
      for (size_t i = 1; i < term.children.size(); ++i) {
        result = make_expr<Binary>(term.dtype, static_cast<BinaryOp>(term.op), std::move(result), child(i));
      }
      return result;
    }
    case NodeKind::Cast:
      return make_expr<Cast>(term.dtype, child(0));
    case NodeKind::Broadcast:
      return make_expr<Broadcast>(term.dtype, child(0));
    case NodeKind::Ramp:
      return make_expr<Ramp>(term.dtype, child(0), child(1));
    case NodeKind::Select:
      return make_expr<Select>(term.dtype, child(0), child(1), child(2));
    case NodeKind::VectorReduce:
      return make_expr<VectorReduce>(term.dtype, static_cast<BinaryOp>(term.op), child(0));
    default:
      internal_error("Simplifier::build: a node made elsewhere");
  }
}

TermId Simplifier::intern_linear(Linear sum, const Expr* hint) {
  auto& bucket = linear_index_[hash_of(sum)];
  for (const TermId id : bucket) {
    const Linear& other = linears_[terms_[id].linear];
    if (other.constant == sum.constant && other.terms == sum.terms) return id;
  }
  // Positive terms first, then what is taken off: i*16 + j - k - 3.
  Expr result;
  auto append = [&](BinaryOp op, Expr e) {
    result = result.is_defined() ? make_expr<Binary>(i64, op, std::move(result), std::move(e)) : std::move(e);
  };
  auto product = [&](const Expr& e, int64_t factor) {
    return factor == 1 ? e : make_expr<Binary>(i64, BinaryOp::mul, e, Expr(factor));
  };
  for (const auto& [atom, factor] : sum.terms) {
    if (factor > 0) append(BinaryOp::add, product(terms_[atom].expr, factor));
  }
  const bool constant_first = !result.is_defined() && sum.constant != 0;
  if (constant_first) result = Expr(sum.constant);
  for (const auto& [atom, factor] : sum.terms) {
    if (factor > 0) continue;
    const bool is_least = factor == minus_infinity;
    if (!result.is_defined()) {
      result =
          factor == -1 ? make_expr<Unary>(i64, UnaryOp::negate, terms_[atom].expr) : product(terms_[atom].expr, factor);
    } else if (is_least) {
      append(BinaryOp::add, product(terms_[atom].expr, factor));
    } else {
      append(BinaryOp::sub, product(terms_[atom].expr, -factor));
    }
  }
  if (sum.constant != 0 && !constant_first) {
    if (sum.constant > 0 || sum.constant == minus_infinity)
      append(BinaryOp::add, Expr(sum.constant));
    else
      append(BinaryOp::sub, Expr(-sum.constant));
  }
  Term term{hint && is_same_sum(*hint, result) ? *hint : result,
            NodeKind::Binary,
            static_cast<uint16_t>(BinaryOp::add),
            i64,
            0,
            {}};
  term.linear = static_cast<int32_t>(linears_.size());
  for (const auto& [atom, factor] : sum.terms) term.has_load |= terms_[atom].has_load;
  const auto id = static_cast<TermId>(terms_.size());
  linears_.push_back(std::move(sum));
  terms_.push_back(std::move(term));
  hashes_.push_back(0);
  bucket.push_back(id);
  return id;
}

TermId Simplifier::constant(DType dtype, int64_t value) {
  const Expr e = int_imm(dtype.element(), value);
  const TermId scalar =
      intern(NodeKind::IntImm, 0, dtype.element(), static_cast<uint64_t>(e.as<IntImm>()->value), {}, &e);
  return dtype.is_vector() ? make_broadcast(scalar, dtype.lanes) : scalar;
}

TermId Simplifier::constant(DType dtype, double value) {
  const Expr e = float_imm(dtype.element(), value);
  const TermId scalar =
      intern(NodeKind::FloatImm, 0, dtype.element(), std::bit_cast<uint64_t>(e.as<FloatImm>()->value), {}, &e);
  return dtype.is_vector() ? make_broadcast(scalar, dtype.lanes) : scalar;
}

TermId Simplifier::truth(bool value, int lanes) {
  return constant(boolean.with_lanes(lanes), int64_t{value});
}

std::optional<int64_t> Simplifier::int_value(TermId id) const {
  const Term* term = &terms_[id];
  if (term->kind == NodeKind::Broadcast) term = &terms_[term->children[0]];
  if (term->kind == NodeKind::IntImm) return static_cast<int64_t>(term->extra);
  return std::nullopt;
}

std::optional<double> Simplifier::float_value(TermId id) const {
  const Term* term = &terms_[id];
  if (term->kind == NodeKind::Broadcast) term = &terms_[term->children[0]];
  if (term->kind == NodeKind::FloatImm) return std::bit_cast<double>(term->extra);
  return std::nullopt;
}

}  // namespace tw::arith
