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
  edit.check_concurrent_loop(func_.body, loop);
  const Stmt changed = make_stmt<For>(loop.var, loop.extent, LoopKind::parallel, loop.body, ThreadAxis::none,
                                      loop.attributes, loop.span);
  edit.commit(replace_node(func_.body, &loop, changed));
}

}  // namespace tw
