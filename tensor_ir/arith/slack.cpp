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
  const auto within = extremes_within(simplify(e, ranges), others, ranges);
  if (!within) return std::nullopt;
  const Expr& most = within->most;
  const auto step = as_int(simplify(substitute(most, {{loop.var, loop.var + 1}}) - most, ranges));
  if (!step || *step >= 0) return std::nullopt;
  return Fall{simplify(substitute(most, {{loop.var, Expr(0)}}), ranges), -*step};
}

}  // namespace tw
