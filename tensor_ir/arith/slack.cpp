#include "tensor_ir/arith/slack.h"

#include "tensor_ir/match.h"

namespace tw {

std::optional<Expr> slack_of(const Expr& condition) {
  const auto* comparison = condition.as<Binary>();
  if (!comparison || comparison->a.dtype() != i64) return std::nullopt;
  if (comparison->op == BinaryOp::le) return comparison->b - comparison->a;
  if (comparison->op == BinaryOp::lt) return comparison->b - comparison->a - 1;
  return std::nullopt;
}

std::optional<Extremes> extremes_within(const Expr& e, const std::vector<const For*>& loops,
                                        const Assumptions& ranges) {
  Extremes found{e, e};
  for (const For* loop : loops) {
    if (!uses_var(e, loop->var)) continue;
    for (const For* other : loops)
      if (uses_var(loop->extent, other->var)) return std::nullopt;
    const auto step = as_int(simplify(substitute(e, {{loop->var, loop->var + 1}}) - e, ranges));
    if (!step) return std::nullopt;
    const Expr first(0), last = loop->extent - 1;
    found.least = simplify(substitute(found.least, {{loop->var, *step > 0 ? first : last}}), ranges);
    found.most = simplify(substitute(found.most, {{loop->var, *step > 0 ? last : first}}), ranges);
  }
  return found;
}

std::optional<Fall> fall_along(const Expr& e, const For& loop, const std::vector<const For*>& others,
                               const Assumptions& ranges) {
  const Expr value = simplify(e, ranges);
  const auto step_along = [&](const For& l) {
    return as_int(simplify(substitute(value, {{l.var, l.var + 1}}) - value, ranges));
  };
  const auto step = step_along(loop);
  const auto within = extremes_within(value, others, ranges);
  if (!step || *step >= 0 || !within) return std::nullopt;
  int64_t fall_within = 0;
  for (const For* other : others) {
    const int64_t along = step_along(*other).value_or(0);
    const auto extent = as_int(other->extent);
    if (along < 0 && !extent) return std::nullopt;
    if (along < 0) fall_within += -along * (*extent - 1);
  }
  return Fall{simplify(substitute(within->most, {{loop.var, Expr(0)}}), ranges), -*step, fall_within};
}

}  // namespace tw
