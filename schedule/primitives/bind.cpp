// bind(i, thread_x)
//
//   for i in 0..128 { … }
// ⇒
//   for i in 0..128 thread_x { … }
//
// Legal under the conditions of parallel, except that threads of one block may meet in shared memory: lowering puts
// barriers between the statements that do.  An axis is bound once on a path, and as many threads run wherever its loop
// stands.
#include "schedule/edit.h"

namespace tw {

void Schedule::bind(const LoopRef& ref, ThreadAxis axis) {
  ScheduleEdit edit(*this, "bind", ref, axis);
  const For& loop = edit.loop(ref);
  const Path path = edit.path(ref);
  edit.require_serial(loop);
  if (axis == ThreadAxis::none)
    edit.refuse("no axis", path.back(), "bind to block_x, block_y, block_z, thread_x, thread_y or thread_z");
  auto refuse_twice = [&](const For& other) {
    edit.refuse("loop " + quoted(other.var.name()) + " on the same path is bound to this axis already", path.back(),
                "fuse the two loops, or bind this one to another axis");
  };
  auto refuse_workers = [&](const For& other) {
    if (other.loop_kind != LoopKind::parallel) return;
    edit.refuse("loop " + quoted(other.var.name()) + " on the same path is parallel", path.back(),
                "workers run loops of a CPU, threads those of a GPU: use one kind");
  };
  for (const For* other : loops_of(path)) {
    if (uses_var(loop.extent, other->var))
      edit.refuse("the extent of loop " + quoted(loop.var.name()) + " depends on loop " + quoted(other->var.name()),
                  path.back(), "bind a loop that has the same iterations wherever it runs");
    if (other->thread == axis) refuse_twice(*other);
    refuse_workers(*other);
  }
  visit(loop.body, [&](const For& other) {
    if (other.thread == axis) refuse_twice(other);
    refuse_workers(other);
  });
  const bool is_block_axis = axis == ThreadAxis::block_x || axis == ThreadAxis::block_y || axis == ThreadAxis::block_z;
  if (is_block_axis) {
    for (const For* other : loops_of(path)) {
      if (other->thread >= ThreadAxis::thread_x)
        edit.refuse("a block axis inside of a thread axis", path.back(),
                    "bind outer loops to block axes and inner ones to thread axes");
    }
  }
  edit.check_concurrent_loop(func_.body, loop, !is_block_axis);
  const Stmt changed =
      make_stmt<For>(loop.var, loop.extent, LoopKind::thread, loop.body, axis, loop.attributes, loop.span);
  edit.commit(replace_node(func_.body, &loop, changed));
}

}  // namespace tw
