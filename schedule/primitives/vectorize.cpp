// vectorize(j)
//
//   for j in 0..16 { … }
// ⇒
//   for j in 0..16 vectorized { … }
//
// Legal under the conditions of parallel; the extent is a constant and no loop inside is parallel or thread-bound.
#include "schedule/edit.h"

namespace tw {

void Schedule::vectorize(const LoopRef& ref) {
  ScheduleEdit edit(*this, "vectorize", ref);
  const For& loop = edit.loop(ref);
  const Path path = edit.path(ref);
  edit.require_serial(loop);
  const auto extent = as_int(loop.extent);
  if (!extent || *extent > 1024) {
    edit.refuse(std::string("a vector needs a ") + (extent ? "small" : "constant") + " number of lanes", path.back(),
                "split(" + loop.var.name() + ", [None, 16]) and vectorize the inner loop");
  }
  visit(loop.body, [&](const For& inner) {
    if (inner.loop_kind == LoopKind::serial || inner.loop_kind == LoopKind::unrolled) return;
    edit.refuse("loop " + quoted(inner.var.name()) + " inside is parallel, vectorized or thread-bound", path.back(),
                "vectorize the innermost of such loops only");
  });
  edit.check_concurrent_loop(func_.body, loop);
  const Stmt changed = make_stmt<For>(loop.var, loop.extent, LoopKind::vectorized, loop.body, ThreadAxis::none,
                                      loop.attributes, loop.span);
  edit.commit(replace_node(func_.body, &loop, changed));
}

}  // namespace tw
