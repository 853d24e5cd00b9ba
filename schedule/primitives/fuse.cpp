// fuse([i, j])
//
//   for i in 0..4 { for j in 0..8 { block C(spatial vi: 4 = i, spatial vj: 8 = j) … } }
// ⇒
//   for i_j in 0..32 { block C(spatial vi: 4 = i_j // 8, spatial vj: 8 = i_j % 8) … }
//
// Always legal: the order of the iterations stays.  The loops hold nothing but each other, and the extent of an inner
// one does not depend on an outer one.
#include "schedule/primitives/rebind.h"

namespace tw {

LoopRef Schedule::fuse(const std::vector<LoopRef>& refs) {
  ScheduleEdit edit(*this, "fuse", refs);
  if (refs.empty()) edit.refuse("no loops", Stmt(), "name the loops to fuse, outermost first");
  const Path path = edit.path(refs.back());
  const auto nest = perfect_nest(edit, path, refs.front().var, refs.back().var);
  if (nest.size() != refs.size()) {
    edit.refuse("the loops are not adjacent, outermost first", edit.path(refs.front()).back(),
                "reorder them next to each other first");
  }
  Expr extent = 1;
  std::string name;
  for (size_t i = 0; i < nest.size(); ++i) {
    if (nest[i]->var != refs[i].var) {
      edit.refuse("loop " + quoted(refs[i].name()) + " is not directly inside of the loop named before it",
                  edit.path(refs[i]).back(), "name adjacent loops, outermost first; reorder them if they are not");
    }
    edit.require_serial(*nest[i]);
    for (size_t j = 0; j < i; ++j) {
      if (uses_var(nest[i]->extent, nest[j]->var)) {
        edit.refuse("the extent of loop " + quoted(refs[i].name()) + " depends on loop " + quoted(refs[j].name()),
                    edit.path(refs[i]).back(), "only loops with independent extents form a rectangle");
      }
    }
    extent = extent * nest[i]->extent;
    name += (i ? "_" : "") + nest[i]->var.name();
  }
  const Var fused(name, nest[0]->var.dtype());
  std::vector<const For*> around;
  for (const For* loop : loops_of(path)) {
    if (loop == nest.front()) break;
    around.push_back(loop);
  }
  Assumptions ranges = ranges_of(around);
  extent = simplify(extent, ranges);
  ranges.bind_range(fused, extent);
  Substitution values;
  // A loop of one iteration stays at 0: between open extents that would not follow from its bounds.
  size_t outermost = 0;
  while (outermost + 1 < nest.size() && is_const_int(nest[outermost]->extent, 1)) ++outermost;
  Expr rest = fused;
  for (size_t i = nest.size(); i-- > 0;) {
    values[nest[i]->var] =
        i < outermost ? Expr(0) : simplify(i == outermost ? rest : floor_mod(rest, nest[i]->extent), ranges);
    rest = floor_div(rest, nest[i]->extent);
  }
  const Stmt body = rebind(nest.back()->body, values, Expr(), ranges);
  const LoopRef result{fused};
  edit.commit(replace_node(func_.body, nest.front(), wrap_in_loops({{fused, extent}}, body)),
              std::vector<LoopRef>{result});
  return result;
}

}  // namespace tw
