// Values that a condition chooses are not chosen one by one where it holds for all that the threads of a block compute
// together: that is asked once, for all of them.
//
//   for p in 0..n {                                   for p in 0..n {
//     for t in 0..64 thread.x { for j in 0..16 {        if (p * 16 + 15 <= b * 64) {
//       S[t, j] = select(p * 16 + j <= b * 64 + t, ⇒      for t in 0..64 thread.x { for j in 0..16 {
//                        x, -∞)                             S[t, j] = x } }
//     } }                                               } else { … as it was … }
//   }                                                 }
//
// Of loops that go on over parts of something, most parts are such, another number of them in each block: those below a
// diagonal.  It is for what is computed into registers; copies have conditions that cost nothing.
#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/arith/slack.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/conjunction.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

class HoistChoices {
 public:
  Stmt run(const Stmt& s, const Assumptions& ranges) {
    const auto* loop = s.as<For>();
    if (!loop) {
      return map_children(s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return run(child, ranges); });
    }
    const bool is_of_threads = loop->loop_kind == LoopKind::thread && loop->thread >= ThreadAxis::thread_x;
    if (is_of_threads) return steps_.empty() || !is_of_registers(s) ? s : asked_once(s, ranges);
    Assumptions inner = ranges;
    inner.bind_range(loop->var, loop->extent);
    std::vector<Var>* const own = loop->loop_kind == LoopKind::serial   ? &steps_
                                  : loop->loop_kind == LoopKind::thread ? &blocks_
                                                                        : nullptr;
    if (own) own->push_back(loop->var);
    const Stmt body = run(loop->body, inner);
    if (own) own->pop_back();
    return make_stmt<For>(loop->var, loop->extent, loop->loop_kind, body, loop->thread, loop->attributes, loop->span);
  }

 private:
  static bool is_of_registers(const Stmt& region) {
    bool is_one = true;
    visit(region, [&](const Store& store) { is_one &= store.buffer->scope == Scope::local; });
    return is_one;
  }

  static bool uses_any(const Expr& e, const std::vector<Var>& vars) {
    return std::any_of(vars.begin(), vars.end(), [&](const Var& var) { return uses_var(e, var); });
  }

  // That the condition holds while all loops run; not defined: unknown, or it is the same in all steps or blocks.
  Expr always(const Expr& condition, const std::vector<const For*>& loops, const Assumptions& ranges) const {
    Expr all;
    bool moves = false;
    std::vector<Expr> parts;
    split_conjunction(condition, parts);
    for (const Expr& part : parts) {
      const auto slack = slack_of(part);
      const auto within = slack ? extremes_within(simplify(*slack, ranges), loops, ranges) : std::nullopt;
      if (!within) return Expr();
      moves |= uses_any(*slack, steps_) && uses_any(*slack, blocks_);
      const Expr here = Expr(0) <= within->least;
      all = all.is_defined() ? all && here : here;
    }
    return moves ? all : Expr();
  }

  Stmt asked_once(const Stmt& region, const Assumptions& around) const {
    std::vector<const For*> loops;
    Assumptions ranges = around;
    visit(region, [&](const For& loop) {
      loops.push_back(&loop);
      ranges.bind_range(loop.var, loop.extent);
    });
    std::vector<Expr> asked;
    auto chosen = [&](const Select& select) -> Expr {
      const Expr condition = always(select.condition, loops, ranges);
      if (!condition.is_defined()) return {};
      const auto is_same = [&](const Expr& other) { return structural_equal(other, condition); };
      if (std::none_of(asked.begin(), asked.end(), is_same)) asked.push_back(condition);
      return select.then_value;
    };
    const Stmt whole = map_exprs(region, chosen);
    if (asked.empty()) return region;
    Expr all = asked[0];
    for (size_t i = 1; i < asked.size(); ++i) all = all && asked[i];
    return make_stmt<If>(simplify(all, around), with_fresh_names(whole), region);
  }

  template <class F>
  static Stmt map_exprs(const Stmt& s, F& chosen) {
    return map_children(
        s, [&](const Expr& e) { return rewrite_bottom_up(e, chosen); },
        [&](const Stmt& child) { return map_exprs(child, chosen); });
  }

  std::vector<Var> steps_, blocks_;  // of the serial loops around, and of those bound to blocks
};

}  // namespace

Func hoist_choices(const Func& f) {
  Func result = f;
  result.body = HoistChoices().run(f.body, {});
  return result;
}

}  // namespace tw
