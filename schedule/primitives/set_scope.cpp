// set_scope("B", register)
//
//   alloc B: f32[64] …
// ⇒
//   alloc B: f32[64] in register …
//
// Legal for buffers that are allocated in the Func.  Memory of one worker or thread is not seen by others: a buffer
// that leaves `global` or `shared` must not be used across the iterations of a parallel or thread-bound loop inside of
// its allocation.  One that comes to them is seen by all threads of its block, which must not write the same element.
#include <algorithm>

#include "schedule/edit.h"

namespace tw {
namespace {

void check_private(const ScheduleEdit& edit, const Allocate& allocate, Scope scope) {
  if (scope == Scope::global || scope == Scope::shared) return;
  visit(allocate.body, [&](const For& loop) {
    const bool is_shared_out = loop.loop_kind == LoopKind::parallel || loop.loop_kind == LoopKind::thread;
    if (!is_shared_out) return;
    const auto accesses = accesses_in(loop.body);
    if (std::none_of(accesses.begin(), accesses.end(), [&](const Access& a) { return a.buffer == allocate.buffer; }))
      return;
    edit.refuse(quoted(allocate.buffer->name) + " is allocated outside of loop " + quoted(loop.var.name()) +
                    ", whose iterations run on different workers",
                edit.path(LoopRef{loop.var}).back(),
                "move its producer and consumers inside of that loop first, or keep the buffer global");
  });
}

}  // namespace

void Schedule::set_scope(const std::string& buffer_name, Scope scope) {
  ScheduleEdit edit(*this, "set_scope", buffer_name, scope);
  const Buffer buffer = edit.allocated_buffer(buffer_name);
  const auto* allocate = path_to_allocation(func_.body, buffer).back().as<Allocate>();
  check_private(edit, *allocate, scope);
  BufferNode node = *buffer.get();
  node.scope = scope;
  const Buffer changed(std::move(node));
  const Stmt body = replace_buffer(func_.body, buffer, changed);
  const auto is_seen_by_threads = [](Scope s) { return s == Scope::global || s == Scope::shared; };
  if (is_seen_by_threads(scope) && !is_seen_by_threads(buffer->scope))
    for (const For* loop : loops_of(path_to_allocation(body, changed)))
      if (loop->thread >= ThreadAxis::thread_x) edit.check_concurrent_loop(body, *loop, true);
  edit.commit(body);
}

}  // namespace tw
