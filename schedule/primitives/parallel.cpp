// parallel(i)
//
//   for i in 0..64 { … }
// ⇒
//   for i in 0..64 parallel { … }
//
// Legal when no iteration writes an element that another one reads or writes; buffers that are allocated inside of the
// loop are each iteration's own.
#include "schedule/edit.h"

namespace tw {

void Schedule::parallel(const LoopRef& ref) {
  ScheduleEdit edit(*this, "parallel", ref);
  const For& loop = edit.loop(ref);
  edit.require_serial(loop);
  const Path path = edit.path(ref);
  auto refuse_threads = [&](const For& other) {
    if (other.loop_kind != LoopKind::thread) return;
    edit.refuse("loop " + quoted(other.var.name()) + " on the same path is bound to threads", path.back(),
                "workers run loops of a CPU, threads those of a GPU: use one kind");
  };
  for (const For* other : loops_of(path)) refuse_threads(*other);
  visit(loop.body, [&](const For& other) { refuse_threads(other); });
  edit.check_concurrent_loop(func_.body, loop);
  const Stmt changed = make_stmt<For>(loop.var, loop.extent, LoopKind::parallel, loop.body, ThreadAxis::none,
                                      loop.attributes, loop.span);
  edit.commit(replace_node(func_.body, &loop, changed));
}

}  // namespace tw
