// split(i, [None, 6])
//
//   for i in 0..20 { block C(spatial vi: 20 = i) … }
// ⇒
//   for i_0 in 0..4 { for i_1 in 0..6 { block C(spatial vi: 20 = i_0*6 + i_1) where i_0*6 + i_1 < 20 … } }
//
// Always legal: the order of the iterations stays.  The predicate is there only when the factors do not divide.
#include "runtime/rounding.h"
#include "schedule/primitives/rebind.h"

namespace tw {

std::vector<LoopRef> Schedule::split(const LoopRef& loop_ref, const std::vector<std::optional<int64_t>>& factors) {
  ScheduleEdit edit(*this, "split", loop_ref, factors);
  const For& loop = edit.loop(loop_ref);
  const Path path = edit.path(loop_ref);
  edit.require_serial(loop);
  const auto extent = as_int(loop.extent);
  if (factors.empty())
    edit.refuse("no factors", path.back(), "give a factor for each new loop, one of them may be None");
  int inferred = -1;
  int64_t product = 1;
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!factors[i]) {
      if (inferred >= 0) edit.refuse("more than one factor is None", path.back(), "only one factor can be inferred");
      inferred = static_cast<int>(i);
    } else if (*factors[i] < 1 || *factors[i] > (int64_t{1} << 40)) {
      edit.refuse("factor " + std::to_string(*factors[i]) + " is not a positive count", path.back(),
                  "use factors from 1");
    } else {
      product *= *factors[i];
      if (product > (int64_t{1} << 40))
        edit.refuse("the factors are too large", path.back(), "use factors whose product is near the extent");
    }
  }
  if (inferred < 0 && (!extent || product < *extent)) {
    std::string help = "write None for one factor, which is then inferred";
    if (extent && factors.size() > 1) {
      int64_t rest = product / *factors[0];
      help += ": [" + std::to_string(divide_up(*extent, rest));
      for (size_t i = 1; i < factors.size(); ++i) help += ", " + std::to_string(*factors[i]);
      help += "] covers it";
    }
    edit.refuse("the factors cover " + std::to_string(product) + " iterations of loop " + quoted(loop.var.name()) +
                    (extent ? ", which has " + std::to_string(*extent) : ", whose extent is not a constant"),
                path.back(), help);
  }

  std::vector<NewLoop> loops;
  std::vector<LoopRef> refs;
  for (size_t i = 0; i < factors.size(); ++i) {
    const Var var(loop.var.name() + "_" + std::to_string(i), loop.var.dtype());
    Expr size = factors[i] ? Expr(*factors[i]) : Expr();
    if (!factors[i])
      size = extent ? Expr(divide_up(*extent, product)) : floor_div(loop.extent + (product - 1), product);
    loops.push_back({var, size});
    refs.push_back({var});
  }
  Expr value = loops[0].var;
  for (size_t i = 1; i < loops.size(); ++i) value = value * loops[i].extent + loops[i].var;

  std::vector<const For*> around = loops_of(path);
  around.pop_back();
  Assumptions ranges = ranges_of(around);
  Expr total = 1;
  for (const NewLoop& l : loops) ranges.bind_range(l.var, l.extent), total = total * l.extent;
  value = simplify(value, ranges);
  const bool is_exact = extent ? as_int(total) == extent : is_known_equal(total, loop.extent, ranges);
  const Expr guard = is_exact ? Expr() : value < loop.extent;
  const Stmt body = rebind(loop.body, {{loop.var, value}}, guard, ranges);
  edit.commit(replace_node(func_.body, &loop, wrap_in_loops(loops, body)), refs);
  return refs;
}

}  // namespace tw
