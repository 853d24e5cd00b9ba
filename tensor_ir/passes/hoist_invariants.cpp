// Values that a loop does not change are computed in front of it.
//
//   for i in 0..8 {                              let x = exp(S[0])
//     C[i] = A[i] * exp(S[0]) + n // 4     ⇒     let y = n // 4
//   }                                            for i in 0..8 { C[i] = A[i] * x + y }
//
// What is loaded must not be written in the loop, nor may threads meet in it.  What could trap has to be certain to be
// computed in the first iteration: not in a branch, not behind a predicate, not in a loop that may run zero times.
// Inner loops first, so that a value goes as far out as it can; never out of a loop that is shared out over workers or
// threads.
#include <algorithm>
#include <set>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/values.h"

namespace tw {
namespace {

bool runs_for_certain(const For& loop) {
  const auto extent = as_int(loop.extent);
  return extent && *extent >= 1;
}

// What one loop does, and what comes out of it.
class LoopHoist {
 public:
  LoopHoist(const For& loop, const std::set<Buffer>& may_be_same) {
    bound_.insert(loop.var.get());
    visit(
        loop.body, [&](const For& inner) { bound_.insert(inner.var.get()); },
        [&](const LetStmt& let) { bound_.insert(let.var.get()); },
        [&](const Let& let) { bound_.insert(let.var.get()); },
        [&](const Call& call) { has_barrier_ |= call.intrinsic == Intrinsic::barrier; },
        [&](const Allocate& allocate) { changed_.insert(allocate.buffer); });
    for (const Buffer& buffer : buffers_written(loop.body)) {
      changed_.insert(buffer);
      if (may_be_same.count(buffer)) changed_.insert(may_be_same.begin(), may_be_same.end());
    }
    const Stmt body = statement(loop.body, runs_for_certain(loop));
    result = make_stmt<For>(loop.var, loop.extent, loop.loop_kind, body, loop.thread, loop.attributes, loop.span);
    for (size_t i = lets_.size(); i-- > 0;) result = make_stmt<LetStmt>(lets_[i].first, lets_[i].second, result);
  }

  Stmt result;

 private:
  Stmt statement(const Stmt& s, bool is_certain) {
    if (!s.is_defined()) return s;
    auto in_expr = [&](const Expr& e) { return value(e, is_certain); };
    if (const auto* let = s.as<LetStmt>()) {
      if (is_invariant(let->value, is_certain)) {
        lets_.emplace_back(let->var, let->value);
        bound_.erase(let->var.get());
        return statement(let->body, is_certain);
      }
    }
    if (const auto* branch = s.as<If>()) {
      const Expr condition = in_expr(branch->condition);
      const Stmt then_body = statement(branch->then_body, false), else_body = statement(branch->else_body, false);
      return make_stmt<If>(condition, then_body, else_body);
    }
    if (const auto* store = s.as<Store>()) {
      const bool is_stored = is_certain && !store->predicate.is_defined();
      const Expr predicate = value(store->predicate, is_certain), stored = value(store->value, is_stored);
      return make_stmt<Store>(store->buffer, values(store->indices, is_stored), stored, predicate, store->span);
    }
    if (s.kind() == NodeKind::Evaluate || s.kind() == NodeKind::Block) return s;
    const auto* loop = s.as<For>();
    const bool is_inner_certain = is_certain && (!loop || runs_for_certain(*loop));
    return map_children(s, in_expr, [&](const Stmt& child) { return statement(child, is_inner_certain); });
  }

  std::vector<Expr> values(const std::vector<Expr>& list, bool is_certain) {
    std::vector<Expr> result;
    for (const Expr& e : list) result.push_back(value(e, is_certain));
    return result;
  }

  Expr value(const Expr& e, bool is_certain) {
    if (!e.is_defined()) return e;
    if (is_worth_naming(e) && values_.varies(e) && is_invariant(e, is_certain)) {
      Var& name = names_[values_.number(e)];
      if (!name.is_defined()) {
        name = Var("invariant", e.dtype());
        lets_.emplace_back(name, e);
      }
      return name;
    }
    if (const auto* load = e.as<Load>()) {
      const Expr predicate = value(load->predicate, is_certain);
      return make_expr<Load>(load->dtype, load->buffer,
                             values(load->indices, is_certain && !load->predicate.is_defined()), predicate);
    }
    return map_children(e, [&](const Expr& child) { return value(child, is_certain); });
  }

  bool is_invariant(const Expr& e, bool is_certain) {
    const Values::Facts& facts = values_.facts(e);
    if (facts.may_trap && !is_certain) return false;
    if (has_barrier_ && !facts.reads.empty()) return false;
    return std::none_of(facts.reads.begin(), facts.reads.end(),
                        [&](const Buffer& b) { return changed_.count(b) > 0; }) &&
           std::none_of(facts.vars.begin(), facts.vars.end(), [&](const Var& v) { return bound_.count(v.get()) > 0; });
  }

  std::set<const ExprNode*> bound_;  // variables of the loop
  std::set<Buffer> changed_;
  bool has_barrier_ = false;
  Values values_;
  std::map<int, Var> names_;
  std::vector<std::pair<Var, Expr>> lets_;
};

Stmt hoist(const Stmt& s, const std::set<Buffer>& may_be_same) {
  const Stmt inner =
      map_children(s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return hoist(child, may_be_same); });
  const auto* loop = inner.as<For>();
  const bool is_in_order = loop && (loop->loop_kind == LoopKind::serial || loop->loop_kind == LoopKind::unrolled);
  bool has_shared_out = false;
  if (is_in_order) {
    visit(loop->body, [&](const For& l) {
      has_shared_out |=
          l.loop_kind == LoopKind::parallel || (l.loop_kind == LoopKind::thread && l.thread < ThreadAxis::thread_x);
    });
  }
  return is_in_order && !has_shared_out ? LoopHoist(*loop, may_be_same).result : inner;
}

}  // namespace

Func hoist_invariants(const Func& f) {
  std::set<Buffer> may_be_same;
  if (f.attributes.count("may_alias")) may_be_same.insert(f.buffers.begin(), f.buffers.end());
  Func result = f;
  result.body = hoist(f.body, may_be_same);
  return result;
}

}  // namespace tw
