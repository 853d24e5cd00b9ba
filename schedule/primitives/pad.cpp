// pad("C", [6, 16])
//
//   for i in 0..20 { for j in 0..50 { block C(spatial v: 20 = i, spatial w: 50 = j) … } }
// ⇒
//   for i in 0..24 { for j in 0..64 { block C(spatial v: 20 = i, spatial w: 50 = j) where i < 20 && j < 50 … } }
//
// Loops then divide by the multiples; the extra instances are masked.  One multiple for each iteration variable, 1
// leaves it. Legal for iteration variables bound to a loop of their own, which holds no other block.
#include "schedule/primitives/pad.h"

#include "schedule/primitives/rebind.h"

namespace tw {

std::vector<PaddedIteration> iterations_to_pad(const ScheduleEdit& edit, const BlockRef& ref,
                                               const std::vector<int64_t>& multiples) {
  const Block& block = edit.block(ref);
  const Stmt here = edit.path(ref).back();
  if (multiples.size() != block.iters.size()) {
    edit.refuse("block " + quoted(ref.name) + " has " + std::to_string(block.iters.size()) + " iteration variables, " +
                    std::to_string(multiples.size()) + " multiples are given",
                here, "give one for each, 1 where nothing changes");
  }
  std::vector<PaddedIteration> result;
  for (size_t i = 0; i < multiples.size(); ++i) {
    const IterVar& iter = block.iters[i];
    if (multiples[i] < 1) edit.refuse("a multiple is not positive", here, "give multiples from 1");
    const Expr padded = simplify(floor_div(iter.extent + (multiples[i] - 1), multiples[i]) * multiples[i]);
    if (is_known_equal(padded, iter.extent)) continue;
    if (iter.binding.kind() != NodeKind::Var) {
      edit.refuse(quoted(iter.var.name()) + " is not bound to a loop of its own", here,
                  "pad before the loops are split or fused");
    }
    const Var var = Var::of(iter.binding);
    const Path path = path_to_loop(edit.func.body, var);
    const auto* loop = path.empty() ? nullptr : path.back().as<For>();
    if (!loop || blocks_in(loop->body).size() != 1 || has_statements_outside_blocks(loop->body)) {
      edit.refuse("loop " + quoted(var.name()) + " holds other blocks too", here,
                  "pad before blocks are moved into the loop");
    }
    if (!is_known_equal(loop->extent, iter.extent))
      edit.refuse("loop " + quoted(var.name()) + " leaves out iterations", here, "pad before loops end early");
    result.push_back({&iter, loop, padded});
  }
  return result;
}

Stmt with_extent(const Stmt& body, const Var& loop, const Expr& extent) {
  const Stmt now = path_to_loop(body, loop).back();
  const auto* f = now.as<For>();
  return replace_node(body, f,
                      make_stmt<For>(f->var, extent, f->loop_kind, f->body, f->thread, f->attributes, f->span));
}

void Schedule::pad(const BlockRef& ref, const std::vector<int64_t>& multiples) {
  ScheduleEdit edit(*this, "pad", ref, multiples);
  Stmt body = func_.body;
  for (const PaddedIteration& padded : iterations_to_pad(edit, ref, multiples)) {
    const Var var = padded.loop->var;
    if (!as_int(padded.iter->extent))
      edit.refuse("the extent of " + quoted(padded.iter->var.name()) + " is not a constant", edit.path(ref).back(),
                  "split the loop instead: [None, n]");
    const Stmt now = path_to_loop(body, var).back();  // others have changed around it, or in it
    const auto* loop = now.as<For>();
    const Stmt guarded = transform_blocks(loop->body, [&](const Block& b) -> Stmt {
      BlockEdit changed(b);
      changed.predicate = and_also(changed.predicate, var < padded.iter->extent);
      return changed.make();
    });
    body = with_extent(replace_node(body, loop, with_body(*loop, guarded)), var, padded.extent);
  }
  edit.commit(body);
}

}  // namespace tw
