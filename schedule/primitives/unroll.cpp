// unroll(i)
//
//   for i in 0..6 { … }
// ⇒
//   for i in 0..6 unrolled { … }
//
// Always legal; the extent is a constant.
#include "schedule/edit.h"

namespace tw {

void Schedule::unroll(const LoopRef& ref) {
  ScheduleEdit edit(*this, "unroll", ref);
  const For& loop = edit.loop(ref);
  edit.require_serial(loop);
  const auto extent = as_int(loop.extent);
  if (!extent || *extent > 1024) {
    edit.refuse(extent ? "unrolling " + std::to_string(*extent) + " iterations makes too much code"
                       : "the extent is not a constant",
                edit.path(ref).back(), "split(" + loop.var.name() + ", [None, 4]) and unroll the inner loop");
  }
  const Stmt changed = make_stmt<For>(loop.var, loop.extent, LoopKind::unrolled, loop.body, ThreadAxis::none,
                                      loop.attributes, loop.span);
  edit.commit(replace_node(func_.body, &loop, changed));
}

}  // namespace tw
