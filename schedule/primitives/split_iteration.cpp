// split_iteration("C", 0, 4)
//
//   for n in 0..12 { block C(spatial v: 12 = n) { C[v] = A[v] } }
// ⇒
//   for n in 0..12 { block C(spatial v_0: 3 = n // 4, spatial v_1: 4 = n % 4) { C[v_0*4 + v_1] = A[v_0*4 + v_1] } }
//
// The block's iteration variable number `axis` becomes two, the second of `extent` values.  Its loops stay: after a
// split by the same extent each of the two is a loop of its own.  Legal when the extent divides that of the iteration.
#include "schedule/primitives/rebind.h"
#include "tensor_ir/arith/simplify.h"

namespace tw {

void Schedule::split_iteration(const BlockRef& ref, int axis, int64_t extent) {
  ScheduleEdit edit(*this, "split_iteration", ref, axis, extent);
  const Block& block = edit.block(ref);
  const Path path = edit.path(ref);
  const Stmt here = path.back();
  if (axis < 0 || axis >= static_cast<int>(block.iters.size())) {
    edit.refuse("axis " + std::to_string(axis) + " is not one of the " + std::to_string(block.iters.size()) +
                    " iterations of block " + quoted(ref.name),
                here, "count them from 0");
  }
  const IterVar whole = block.iters[static_cast<size_t>(axis)];
  const auto count = as_int(whole.extent);
  if (extent < 1 || !count || *count % extent != 0) {
    edit.refuse(std::to_string(extent) + " does not divide the extent " + to_text(whole.extent) + " of iteration " +
                    quoted(whole.var.name()),
                here, "choose a divisor, or split the loop");
  }
  const Assumptions outside = ranges_of(loops_of(path));
  const Var first(whole.var.name() + "_0", whole.var.dtype()), second(whole.var.name() + "_1", whole.var.dtype());
  BlockEdit split(block);
  split.iters[static_cast<size_t>(axis)] = {second, Expr(extent), whole.kind,
                                            simplify(floor_mod(whole.binding, extent), outside)};
  split.iters.insert(split.iters.begin() + axis,
                     {first, Expr(*count / extent), whole.kind, simplify(floor_div(whole.binding, extent), outside)});
  const Substitution values{{whole.var, first * extent + second}};
  if (block.init.is_defined()) split.init = substitute(block.init, values);
  split.body = substitute(block.body, values);
  edit.commit(replace_node(func_.body, &block, split.make()));
}

}  // namespace tw
