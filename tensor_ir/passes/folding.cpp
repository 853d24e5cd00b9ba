#include "tensor_ir/passes/folding.h"

namespace tw {
namespace {

// The node again, through the builders that fold.
Expr refold(const Expr& e) {
  if (const auto* b = e.as<Binary>()) {
    if (b->dtype.is_vector() && !b->a.dtype().is_float()) return vector_binary(b->op, b->a, b->b);
    return binary(b->op, b->a, b->b);
  }
  if (const auto* s = e.as<Select>()) return select(s->condition, s->then_value, s->else_value);
  if (const auto* c = e.as<Cast>()) return cast(c->dtype, c->value);
  if (const auto* u = e.as<Unary>()) {
    if (u->op == UnaryOp::negate) return -u->a;
    if (u->op == UnaryOp::logical_not) return !u->a;
  }
  return e;
}

class Folder {
 public:
  explicit Folder(const Substitution& values) {
    for (const auto& [var, value] : values) table_.emplace(var.get(), value);
  }

  Expr operator()(const Expr& e) const {
    if (e.kind() == NodeKind::Var) {
      const auto found = table_.find(e.get());
      return found == table_.end() ? e : found->second;
    }
    Expr mapped = map_children(e, [this](const Expr& child) { return (*this)(child); });
    return mapped.is_same(e) ? e : refold(mapped);
  }

  Stmt operator()(const Stmt& s) const {
    if (const auto* branch = s.as<If>()) {
      const Expr condition = (*this)(branch->condition);
      if (const auto known = as_int(condition)) {
        if (*known) return (*this)(branch->then_body);
        return branch->else_body.is_defined() ? (*this)(branch->else_body) : make_stmt<Seq>(std::vector<Stmt>{});
      }
      Stmt else_body = branch->else_body.is_defined() ? (*this)(branch->else_body) : Stmt();
      return make_stmt<If>(condition, (*this)(branch->then_body), else_body);
    }
    if (const auto* block = s.as<Seq>()) {
      std::vector<Stmt> statements;
      bool changed = false;
      for (const Stmt& child : block->statements) {
        statements.push_back((*this)(child));
        changed |= !statements.back().is_same(child);
      }
      return changed ? seq(std::move(statements)) : s;
    }
    return map_children(s, [this](const Expr& e) { return (*this)(e); }, [this](const Stmt& c) { return (*this)(c); });
  }

 private:
  std::unordered_map<const ExprNode*, Expr> table_;
};

const Expr& without_broadcast(const Expr& e) {
  const auto* b = e.as<Broadcast>();
  return b ? b->value : e;
}

}  // namespace

Expr fold_substitute(const Expr& e, const Substitution& values) {
  return Folder(values)(e);
}
Stmt fold_substitute(const Stmt& s, const Substitution& values) {
  return Folder(values)(s);
}

Expr vector_binary(BinaryOp op, const Expr& a, const Expr& b) {
  const auto* ra = a.as<Ramp>();
  const auto* rb = b.as<Ramp>();
  const Expr &sa = without_broadcast(a), &sb = without_broadcast(b);
  const bool is_scalar_a = !sa.dtype().is_vector(), is_scalar_b = !sb.dtype().is_vector();
  if (is_scalar_a && is_scalar_b) {
    const int lanes = std::max(a.dtype().lanes, b.dtype().lanes);
    return broadcast(binary(op, sa, sb), lanes);
  }
  if (op == BinaryOp::add) {
    if (ra && is_scalar_b) return ramp(ra->base + sb, ra->stride, ra->dtype.lanes);
    if (rb && is_scalar_a) return ramp(sa + rb->base, rb->stride, rb->dtype.lanes);
    if (ra && rb) return ramp(ra->base + rb->base, ra->stride + rb->stride, ra->dtype.lanes);
  }
  if (op == BinaryOp::sub) {
    if (ra && is_scalar_b) return ramp(ra->base - sb, ra->stride, ra->dtype.lanes);
    if (rb && is_scalar_a) return ramp(sa - rb->base, -rb->stride, rb->dtype.lanes);
    if (ra && rb) return ramp(ra->base - rb->base, ra->stride - rb->stride, ra->dtype.lanes);
  }
  if (op == BinaryOp::mul) {
    if (ra && is_scalar_b) return ramp(ra->base * sb, ra->stride * sb, ra->dtype.lanes);
    if (rb && is_scalar_a) return ramp(sa * rb->base, sa * rb->stride, rb->dtype.lanes);
  }
  return binary(op, a, b);
}

std::optional<std::vector<int64_t>> constant_lanes(const Expr& e) {
  if (const auto value = as_int(e)) return std::vector<int64_t>(e.dtype().lanes, *value);
  const auto* r = e.as<Ramp>();
  const auto base = r ? as_int(r->base) : std::nullopt, stride = r ? as_int(r->stride) : std::nullopt;
  if (!base || !stride) return std::nullopt;
  std::vector<int64_t> lanes;
  for (int i = 0; i < r->dtype.lanes; ++i) lanes.push_back(*base + i * *stride);
  return lanes;
}

}  // namespace tw
