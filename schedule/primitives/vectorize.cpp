// vectorize(j)
//
//   for j in 0..16 { … }
// ⇒
//   for j in 0..16 vectorized { … }
//
// Legal under the conditions of parallel; the extent is a constant and no loop inside is parallel or thread-bound.
// A reduction's innermost loop becomes lanes as well, where its init is elsewhere (decompose_reduction): lanes are
// joined by halves, so that the order of the terms changes, as rfactor's does.
#include <algorithm>

#include "schedule/dependence.h"
#include "schedule/edit.h"
#include "tensor_ir/match.h"

namespace tw {
namespace {

// for k { block C(…, reduce k) { C[…] = C[…] + value } }
bool joins_lanes(const For& loop) {
  const auto* block = loop.body.as<Block>();
  if (!block || block->init.is_defined() || !is_reduce_loop(*block, loop.var) || is_spatial_loop(*block, loop.var)) {
    return false;
  }
  const auto reduction = as_reduction(*block);
  return reduction && std::none_of(reduction->indices.begin(), reduction->indices.end(),
                                   [&](const Expr& index) { return uses_var(index, loop.var); });
}

}  // namespace

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
    if (inner.loop_kind == LoopKind::serial || inner.loop_kind == LoopKind::unrolled ||
        inner.loop_kind == LoopKind::tensorized) {
      return;
    }
    edit.refuse("loop " + quoted(inner.var.name()) + " inside is parallel, vectorized or thread-bound", path.back(),
                "vectorize the innermost of such loops only");
  });
  if (!joins_lanes(loop)) edit.check_concurrent_loop(func_.body, loop);
  const Stmt changed = make_stmt<For>(loop.var, loop.extent, LoopKind::vectorized, loop.body, ThreadAxis::none,
                                      loop.attributes, loop.span);
  edit.commit(replace_node(func_.body, &loop, changed));
}

}  // namespace tw
