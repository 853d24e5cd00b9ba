// Walking expressions and statements through the simplifier, and its public face.
#include "tensor_ir/arith/simplify.h"

#include <algorithm>
#include <bit>

#include "tensor_ir/arith/samples.h"
#include "tensor_ir/arith/simplifier.h"

namespace tw {
namespace arith {
namespace {

Range range_of(const Interval& interval) {
  return {interval.low.value_or(minus_infinity), interval.high.value_or(plus_infinity)};
}

bool is_empty(const Stmt& s) {
  const auto* seq = s.as<Seq>();
  return seq && seq->statements.empty();
}

Stmt nothing() {
  return make_stmt<Seq>(std::vector<Stmt>{});
}

}  // namespace

Simplifier::Simplifier(const Assumptions& assumptions) {
  for (const auto& [var, interval] : assumptions.intervals()) variables_[var.get()] = range_of(interval);
  for (const Expr& fact : assumptions.facts()) assume(simplify(fact), true);
}

// ---------------------------------------------------------------------------------------------------------------
// Expressions

TermId Simplifier::simplify(const Expr& e) {
  switch (e.kind()) {
    case NodeKind::IntImm:
      return intern(NodeKind::IntImm, 0, e.dtype(), static_cast<uint64_t>(e.as<IntImm>()->value), {}, &e);
    case NodeKind::FloatImm:
      return intern(NodeKind::FloatImm, 0, e.dtype(), std::bit_cast<uint64_t>(e.as<FloatImm>()->value), {}, &e);
    case NodeKind::Var: {
      if (const auto found = substitutions_.find(e.get()); found != substitutions_.end()) return found->second;
      used_.insert(e.get());
      return intern(NodeKind::Var, 0, e.dtype(), reinterpret_cast<uintptr_t>(e.get()), {}, &e);
    }
    default:
      break;
  }
  if (const auto found = memo_.find(e.get()); found != memo_.end() && found->second.epoch == epoch_) {
    return found->second.result;
  }
  TermId result = simplify_node(e);
  if (terms_[result].dtype == boolean && !known_.empty()) {
    if (const auto known = known_.find(result); known != known_.end()) result = truth(known->second);
  }
  memo_[e.get()] = {result, epoch_};
  return result;
}

TermId Simplifier::simplify_node(const Expr& e) {
  switch (e.kind()) {
    case NodeKind::Unary: {
      const auto* node = e.as<Unary>();
      return make_unary(node->op, simplify(node->a), &e);
    }
    case NodeKind::Binary: {
      const auto* node = e.as<Binary>();
      if (e.dtype() == i64 && (node->op == BinaryOp::add || node->op == BinaryOp::sub || node->op == BinaryOp::mul)) {
        Linear sum;
        int budget = 64;
        accumulate(e, 1, sum, budget);
        return make_linear(std::move(sum), &e);
      }
      const TermId a = simplify(node->a);
      return make_binary(node->op, a, simplify(node->b), &e);
    }
    case NodeKind::Cast:
      return make_cast(e.dtype(), simplify(e.as<Cast>()->value), &e);
    case NodeKind::Select: {
      const auto* node = e.as<Select>();
      const TermId condition = simplify(node->condition);
      if (const auto known = int_value(condition)) return simplify(*known ? node->then_value : node->else_value);
      const TermId a = simplify(node->then_value);
      return make_select(condition, a, simplify(node->else_value), &e);
    }
    case NodeKind::Call:
      return simplify_call(*e.as<Call>(), e);
    case NodeKind::Load:
      return simplify_load(*e.as<Load>(), e);
    case NodeKind::Ramp: {
      const auto* node = e.as<Ramp>();
      const TermId base = simplify(node->base);
      return make_ramp(base, simplify(node->stride), e.dtype().lanes / node->base.dtype().lanes, &e);
    }
    case NodeKind::Broadcast: {
      const TermId value = simplify(e.as<Broadcast>()->value);
      return make_broadcast(value, e.dtype().lanes / terms_[value].dtype.lanes, &e);
    }
    case NodeKind::VectorReduce:
      return simplify_reduce(*e.as<VectorReduce>(), e);
    case NodeKind::Let:
      return simplify_let(*e.as<Let>(), e);
    default:
      internal_error("simplify: an expression");
  }
}

TermId Simplifier::simplify_call(const Call& node, const Expr& e) {
  std::vector<TermId> arguments;
  bool all_broadcast = e.dtype().is_vector() && !node.arguments.empty(), same = true;
  for (const Expr& argument : node.arguments) {
    arguments.push_back(simplify(argument));
    all_broadcast &=
        terms_[arguments.back()].kind == NodeKind::Broadcast && terms_[arguments.back()].dtype.lanes == e.dtype().lanes;
  }
  const int lanes = e.dtype().lanes;
  switch (node.intrinsic) {
    case Intrinsic::lane_slice: {
      const TermId vector = arguments[0];
      if (terms_[vector].dtype == e.dtype()) return vector;
      if (terms_[vector].kind == NodeKind::Broadcast && !terms_[terms_[vector].children[0]].dtype.is_vector()) {
        return make_broadcast(terms_[vector].children[0], lanes);
      }
      const auto first = int_value(arguments[1]);
      if (terms_[vector].kind == NodeKind::Ramp && first) {
        const TermId base = terms_[vector].children[0], stride = terms_[vector].children[1];
        const TermId offset = make_binary(BinaryOp::mul, stride, constant(terms_[stride].dtype, *first));
        return make_ramp(make_binary(BinaryOp::add, base, offset), stride, lanes);
      }
      break;
    }
    case Intrinsic::lane_concat:
      if (arguments.size() == 1) return arguments[0];
      break;
    case Intrinsic::reinterpret:
      if (terms_[arguments[0]].dtype == e.dtype()) return arguments[0];
      break;
    case Intrinsic::abs:
      if (e.dtype() == i64 && range(arguments[0]).low >= 0) return arguments[0];
      break;
    case Intrinsic::word_at: {  // of a load that is known not to happen, which has become a zero
      TermId first = arguments[0];
      while (terms_[first].kind == NodeKind::Broadcast) first = terms_[first].children[0];
      if (terms_[first].kind != NodeKind::Load) return constant(e.dtype(), int64_t{0});
      break;
    }
    case Intrinsic::prefetch:
      all_broadcast = false;
      break;
    default:
      break;
  }
  auto make = [&](DType dtype, std::vector<TermId> children, const Expr* keep) {
    const auto op = static_cast<uint16_t>(node.intrinsic);
    const TermId id = intern(NodeKind::Call, op, dtype, 0, std::move(children), nullptr);
    if (!terms_[id].expr.is_defined()) {
      std::vector<Expr> parts;
      for (const TermId child : terms_[id].children) parts.push_back(terms_[child].expr);
      terms_[id].expr = keep ? *keep : make_expr<Call>(dtype, node.intrinsic, std::move(parts));
    }
    return id;
  };
  if (all_broadcast && node.intrinsic != Intrinsic::lane_concat && node.intrinsic != Intrinsic::lane_slice) {
    for (TermId& argument : arguments) argument = terms_[argument].children[0];
    const TermId scalar = make(e.dtype().element(), std::move(arguments), nullptr);
    return make_broadcast(scalar, lanes);
  }
  for (size_t i = 0; i < arguments.size(); ++i) same &= terms_[arguments[i]].expr.is_same(node.arguments[i]);
  return make(e.dtype(), std::move(arguments), same ? &e : nullptr);
}

TermId Simplifier::simplify_load(const Load& node, const Expr& e) {
  std::vector<TermId> children;
  bool all_broadcast = e.dtype().is_vector(), same = true;
  for (const Expr& index : node.indices) {
    children.push_back(simplify(index));
    all_broadcast &= terms_[children.back()].kind == NodeKind::Broadcast || !terms_[children.back()].dtype.is_vector();
    same &= terms_[children.back()].expr.is_same(index);
  }
  bool has_predicate = node.predicate.is_defined();
  if (has_predicate) {
    const TermId predicate = simplify(node.predicate);
    const auto known = int_value(predicate);
    if (known == 0) return e.dtype().is_float() ? constant(e.dtype(), 0.0) : constant(e.dtype(), int64_t{0});
    if (known) {
      has_predicate = same = false;
    } else {
      all_broadcast &= terms_[predicate].kind == NodeKind::Broadcast;
      same &= terms_[predicate].expr.is_same(node.predicate);
      children.push_back(predicate);
    }
  }
  DType dtype = e.dtype();
  const int lanes = dtype.lanes;
  if (all_broadcast) {
    for (TermId& child : children) {
      if (terms_[child].kind == NodeKind::Broadcast) child = terms_[child].children[0];
    }
    dtype = dtype.element();
    same = false;
  }
  const TermId id = intern(NodeKind::Load, has_predicate, dtype, reinterpret_cast<uintptr_t>(node.buffer.get()),
                           std::move(children), nullptr);
  if (!terms_[id].expr.is_defined()) {
    std::vector<Expr> indices;
    for (const TermId child : terms_[id].children) indices.push_back(terms_[child].expr);
    Expr predicate;
    if (has_predicate) predicate = indices.back(), indices.pop_back();
    terms_[id].expr = same ? e : make_expr<Load>(dtype, node.buffer, std::move(indices), std::move(predicate));
  }
  return all_broadcast ? make_broadcast(id, lanes) : id;
}

bool Simplifier::is_trivial(TermId value) const {
  const NodeKind kind = terms_[value].kind;
  if (kind == NodeKind::Broadcast) return is_trivial(terms_[value].children[0]);
  return kind == NodeKind::IntImm || kind == NodeKind::FloatImm || kind == NodeKind::Var;
}

TermId Simplifier::simplify_let(const Let& node, const Expr& e) {
  const TermId value = simplify(node.value);
  if (is_trivial(value)) {
    bind(node.var, {});
    substitutions_[node.var.get()] = value;
    return simplify(node.body);
  }
  bind(node.var, range(value));
  const TermId body = simplify(node.body);
  if (!used_.contains(node.var.get())) return body;
  const TermId id =
      intern(NodeKind::Let, 0, terms_[body].dtype, reinterpret_cast<uintptr_t>(node.var.get()), {value, body}, nullptr);
  if (!terms_[id].expr.is_defined()) {
    const bool same = terms_[value].expr.is_same(node.value) && terms_[body].expr.is_same(node.body);
    terms_[id].expr = same ? e : make_expr<Let>(terms_[body].dtype, node.var, terms_[value].expr, terms_[body].expr);
  }
  return id;
}

// ---------------------------------------------------------------------------------------------------------------
// Statements

struct Simplifier::Scope {
  Simplifier& s;
  uint32_t epoch;
  size_t facts, overrides, known;
  explicit Scope(Simplifier& simplifier)
      : s(simplifier),
        epoch(s.epoch_),
        facts(s.facts_.size()),
        overrides(s.override_log_.size()),
        known(s.known_log_.size()) {}
  Scope(const Scope&) = delete;
  ~Scope() {
    if (s.epoch_ == epoch) return;
    s.facts_.resize(facts);
    while (s.override_log_.size() > overrides) {
      auto& [id, before] = s.override_log_.back();
      if (before)
        s.overrides_[id] = *before;
      else
        s.overrides_.erase(id);
      s.override_log_.pop_back();
    }
    while (s.known_log_.size() > known) {
      s.known_.erase(s.known_log_.back());
      s.known_log_.pop_back();
    }
    s.epoch_ = epoch;
  }
};

void Simplifier::bind(const Var& var, Range r) {
  const bool was_seen = find(NodeKind::Var, 0, var.dtype(), reinterpret_cast<uintptr_t>(var.get()), {}) >= 0 ||
                        substitutions_.contains(var.get());
  if (was_seen) epoch_ = next_epoch_++;  // the same variable again, perhaps with another range
  substitutions_.erase(var.get());
  used_.erase(var.get());
  variables_[var.get()] = r;
}

void Simplifier::bind_loop(const Var& var, TermId extent) {
  const Range r = range(extent);
  bind(var, {0, r.high == plus_infinity ? plus_infinity : r.high - 1});
  const TermId id = intern(NodeKind::Var, 0, var.dtype(), reinterpret_cast<uintptr_t>(var.get()), {}, &var);
  if (int_value(extent)) return;
  Linear room = linear_of(extent);  // var ≤ extent − 1, and the loop runs
  if (!is_exact(room)) return;
  room.constant -= 1;
  Linear gap = room;
  gap.terms.emplace_back(id, -1);
  add_fact(std::move(gap));
  add_fact(std::move(room));
}

Stmt Simplifier::run(const Stmt& s) {
  switch (s.kind()) {
    case NodeKind::For:
      return simplify_for(s);
    case NodeKind::Block:
      return simplify_block(s);
    case NodeKind::Store:
      return simplify_store(s);
    case NodeKind::Seq:
      return simplify_seq(s);
    case NodeKind::If:
      return simplify_if(s);
    case NodeKind::LetStmt:
      return simplify_let(s);
    case NodeKind::Allocate: {
      const auto* node = s.as<Allocate>();
      Stmt body = run(node->body);
      if (is_empty(body)) return body;
      return body.is_same(node->body) ? s : make_stmt<Allocate>(node->buffer, std::move(body));
    }
    case NodeKind::Evaluate: {
      const auto* node = s.as<Evaluate>();
      Expr call = run(node->call);
      return call.is_same(node->call) ? s : make_stmt<Evaluate>(std::move(call));
    }
    default:
      internal_error("simplify: a statement");
  }
}

Stmt Simplifier::simplify_for(const Stmt& s) {
  const auto* node = s.as<For>();
  const TermId extent = simplify(node->extent);
  const auto count = int_value(extent);
  if (range(extent).high <= 0) return nothing();
  if (count == 1) {
    bind(node->var, {});
    substitutions_[node->var.get()] = constant(node->var.dtype(), int64_t{0});
    if (node->loop_kind != LoopKind::thread) return run(node->body);
  }
  const Scope scope(*this);
  if (count != 1) bind_loop(node->var, extent);
  Stmt body = run(node->body);
  if (is_empty(body)) return body;
  const Expr& new_extent = expr(extent);
  if (body.is_same(node->body) && new_extent.is_same(node->extent)) return s;
  return make_stmt<For>(node->var, new_extent, node->loop_kind, std::move(body), node->thread, node->attributes,
                        node->span);
}

Stmt Simplifier::simplify_block(const Stmt& s) {
  const auto* node = s.as<Block>();
  std::vector<IterVar> iters = node->iters;
  bool same = true;
  Expr predicate = node->predicate;
  if (predicate.is_defined()) {
    const TermId known = simplify(predicate);
    if (int_value(known) == 0) return nothing();
    predicate = int_value(known) ? Expr() : expr(known);
    same = predicate.is_defined() && predicate.is_same(node->predicate);
  }
  const Scope scope(*this);
  if (predicate.is_defined()) assume(simplify(predicate), true);
  std::vector<TermId> extents;
  for (IterVar& iter : iters) {
    extents.push_back(simplify(iter.extent));
    const Expr extent = expr(extents.back()), binding = run(iter.binding);
    same &= extent.is_same(iter.extent) && binding.is_same(iter.binding);
    iter.extent = extent;
    iter.binding = binding;
  }
  for (size_t i = 0; i < iters.size(); ++i) bind_loop(iters[i].var, extents[i]);
  Stmt init = node->init.is_defined() ? run(node->init) : Stmt();
  Stmt body = run(node->body);
  if (is_empty(body) && (!init.is_defined() || is_empty(init))) return body;
  if (same && init.is_same(node->init) && body.is_same(node->body)) return s;
  return make_stmt<Block>(node->name, std::move(iters), std::move(predicate), std::move(init), std::move(body),
                          node->attributes, node->span);
}

Stmt Simplifier::simplify_store(const Stmt& s) {
  const auto* node = s.as<Store>();
  std::vector<Expr> indices;
  bool same = true;
  for (const Expr& index : node->indices) {
    indices.push_back(run(index));
    same &= indices.back().is_same(index);
  }
  Expr value = run(node->value), predicate = node->predicate;
  if (predicate.is_defined()) {
    const TermId known = simplify(predicate);
    if (int_value(known) == 0) return nothing();
    predicate = int_value(known) ? Expr() : expr(known);
  }
  if (same && value.is_same(node->value) && predicate.is_same(node->predicate)) return s;
  return make_stmt<Store>(node->buffer, std::move(indices), std::move(value), std::move(predicate), node->span);
}

Stmt Simplifier::simplify_seq(const Stmt& s) {
  const auto* node = s.as<Seq>();
  std::vector<Stmt> statements;
  bool same = true;
  for (const Stmt& statement : node->statements) {
    Stmt result = run(statement);
    same &= result.is_same(statement);
    if (is_empty(result)) {
      same = false;
      continue;
    }
    statements.push_back(std::move(result));
  }
  return same ? s : seq(std::move(statements));
}

Stmt Simplifier::simplify_if(const Stmt& s) {
  const auto* node = s.as<If>();
  const TermId condition = simplify(node->condition);
  if (const auto known = int_value(condition)) {
    if (*known) return run(node->then_body);
    return node->else_body.is_defined() ? run(node->else_body) : nothing();
  }
  Stmt then_body, else_body;
  {
    const Scope scope(*this);
    assume(condition, true);
    then_body = run(node->then_body);
  }
  if (node->else_body.is_defined()) {
    const Scope scope(*this);
    assume(condition, false);
    else_body = run(node->else_body);
    if (is_empty(else_body)) else_body = {};
  }
  if (is_empty(then_body)) {
    if (!else_body.is_defined()) return nothing();
    return make_stmt<If>(expr(make_unary(UnaryOp::logical_not, condition)), std::move(else_body));
  }
  const Expr& test = expr(condition);
  if (test.is_same(node->condition) && then_body.is_same(node->then_body) && else_body.is_same(node->else_body))
    return s;
  return make_stmt<If>(test, std::move(then_body), std::move(else_body));
}

Stmt Simplifier::simplify_let(const Stmt& s) {
  const auto* node = s.as<LetStmt>();
  const TermId value = simplify(node->value);
  if (is_trivial(value)) {
    bind(node->var, {});
    substitutions_[node->var.get()] = value;
    return run(node->body);
  }
  bind(node->var, range(value));
  Stmt body = run(node->body);
  if (is_empty(body) || !used_.contains(node->var.get())) return body;
  const Expr& new_value = expr(value);
  if (body.is_same(node->body) && new_value.is_same(node->value)) return s;
  return make_stmt<LetStmt>(node->var, new_value, std::move(body));
}

}  // namespace arith

// ---------------------------------------------------------------------------------------------------------------
// The public face

void Assumptions::bind(const Var& var, Interval interval) {
  intervals_[var] = interval;
}

void Assumptions::bind_range(const Var& var, const Expr& extent) {
  Interval interval{0, std::nullopt};
  if (const auto count = as_int(extent)) {
    interval.high = *count - 1;
  } else {
    facts_.push_back(Expr(0) < extent);
    facts_.push_back(var < extent);
  }
  intervals_[var] = interval;
}

void Assumptions::assume(const Expr& condition) {
  facts_.push_back(condition);
}

const Interval* Assumptions::find(const Var& var) const {
  const auto found = intervals_.find(var);
  return found == intervals_.end() ? nullptr : &found->second;
}

Expr simplify(const Expr& e, const Assumptions& assumptions) {
  if (!e.is_defined()) return e;
  return arith::Simplifier(assumptions).run(e);
}

Stmt simplify(const Stmt& s, const Assumptions& assumptions) {
  if (!s.is_defined()) return s;
  return arith::Simplifier(assumptions).run(s);
}

Interval bounds_of(const Expr& e, const Assumptions& assumptions) {
  arith::Simplifier simplifier(assumptions);
  const arith::Range range = simplifier.range(simplifier.simplify(e));
  Interval result;
  if (range.low != arith::minus_infinity) result.low = range.low;
  if (range.high != arith::plus_infinity) result.high = range.high;
  return result;
}

bool can_prove(const Expr& condition, const Assumptions& assumptions) {
  const Samples samples = samples_of(condition, assumptions);
  if (std::find(samples.begin(), samples.end(), 0) != samples.end()) return false;
  arith::Simplifier simplifier(assumptions);
  return is_const_int(simplifier.run(condition), 1);
}

bool is_known_equal(const Expr& a, const Expr& b, const Assumptions& assumptions) {
  if (a.is_same(b)) return true;
  if (a.dtype() != b.dtype() || !may_be_equal(samples_of(a, assumptions), samples_of(b, assumptions))) return false;
  arith::Simplifier simplifier(assumptions);
  const arith::TermId x = simplifier.simplify(a);
  return simplifier.is_equal(x, simplifier.simplify(b));
}

}  // namespace tw
