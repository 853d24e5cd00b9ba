#include "schedule/primitives/rebind.h"

#include <algorithm>

namespace tw {

Expr simplify_predicate(const Expr& predicate, const Assumptions& ranges) {
  std::vector<Expr> parts = conjuncts(predicate);
  for (Expr& part : parts) part = simplify(part, ranges);
  for (size_t i = 0; i < parts.size();) {
    Assumptions others = ranges;
    for (size_t j = 0; j < parts.size(); ++j)
      if (j != i) others.assume(parts[j]);
    if (is_const_int(parts[i], 1) || can_prove(parts[i], others))
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
  Expr result;
  for (const Expr& part : parts) result = and_also(result, part);
  return result;
}

Stmt rebind(const Stmt& s, const Substitution& values, const Expr& guard, const Assumptions& ranges) {
  if (const auto* block = s.as<Block>()) {
    BlockEdit edit(*block);
    for (IterVar& iter : edit.iters) iter.binding = simplify(substitute(iter.binding, values), ranges);
    const Expr old = edit.predicate.is_defined() ? substitute(edit.predicate, values) : Expr();
    edit.predicate = simplify_predicate(and_also(old, guard), ranges);
    return edit.make();
  }
  if (const auto* loop = s.as<For>()) {
    const Expr extent = simplify(substitute(loop->extent, values), ranges);
    Assumptions inner = ranges;
    inner.bind_range(loop->var, extent);
    return make_stmt<For>(loop->var, extent, loop->loop_kind, rebind(loop->body, values, guard, inner), loop->thread,
                          loop->attributes, loop->span);
  }
  if (blocks_in(s).empty()) {
    Stmt result = substitute(s, values);
    return guard.is_defined() ? make_stmt<If>(guard, result) : result;
  }
  return map_children(
      s, [&](const Expr& e) { return substitute(e, values); },
      [&](const Stmt& child) { return rebind(child, values, guard, ranges); });
}

std::vector<const For*> perfect_nest(const ScheduleEdit& edit, const Path& path, const Var& outer, const Var& inner) {
  std::vector<const For*> nest;
  for (const Stmt& s : path) {
    const auto* loop = s.as<For>();
    if (nest.empty()) {
      if (loop && loop->var == outer) nest.push_back(loop);
      continue;
    }
    if (nest.back()->var == inner) break;
    if (!loop) {
      edit.refuse("between the loops " + quoted(nest.back()->var.name()) + " and " + quoted(inner.name()) +
                      " there is something else than loops",
                  s, edit.primitive + " loops before other blocks are moved between them");
    }
    nest.push_back(loop);
  }
  return nest;
}

}  // namespace tw
