// decompose_reduction("C", k)
//
//   for i in 0..8 { for k in 0..4 { block C(spatial v: 8 = i, reduce r: 4 = k) { init { C[v] = 0 } C[v] = C[v] + A[v,
//   r] } } }
// ⇒
//   for i in 0..8 {
//     block C_init(spatial v: 8 = i) { C[v] = 0 }
//     for k in 0..4 { block C(spatial v: 8 = i, reduce r: 4 = k) { C[v] = C[v] + A[v, r] } }
//   }
//
// The loop is one around the block with all of its reduction loops at or inside of it.  Legal when every loop from
// it inward gives other elements or other terms (none repeats the reduction), and nothing else inside uses the buffer.
#include <algorithm>

#include "schedule/primitives/rebind.h"

namespace tw {

BlockRef Schedule::decompose_reduction(const BlockRef& ref, const LoopRef& loop_ref) {
  ScheduleEdit edit(*this, "decompose_reduction", ref, loop_ref);
  const Block& block = edit.block(ref);
  const Path path = edit.path(ref);
  const Stmt here = path.back();
  const For& loop = edit.loop(loop_ref);
  if (!block.init.is_defined())
    edit.refuse("block " + quoted(ref.name) + " has no init", here, "it is no reduction, or it is decomposed already");
  const auto loops = loops_of(path);
  const auto at = std::find(loops.begin(), loops.end(), &loop);
  if (at == loops.end())
    edit.refuse("loop " + quoted(loop_ref.name()) + " is not around block " + quoted(ref.name), here,
                "choose one of loops(\"" + ref.name + "\")");
  for (auto l = loops.begin(); l != at; ++l) {
    if (is_reduce_loop(block, (*l)->var)) {
      edit.refuse("loop " + quoted((*l)->var.name()) + ", a reduction loop of the block, is outside of loop " +
                      quoted(loop_ref.name()),
                  here, "choose " + quoted((*l)->var.name()) + " or a loop around it");
    }
  }
  Substitution first;  // reduction loops at their first iteration
  std::vector<NewLoop> init_loops;
  Substitution renamed;
  std::vector<const For*> kept(loops.begin(), at);
  for (auto l = at; l != loops.end(); ++l) {
    const For& inner = **l;
    const bool is_reduce = is_reduce_loop(block, inner.var), is_spatial = is_spatial_loop(block, inner.var);
    if (!is_reduce && !is_spatial && !is_const_int(inner.extent, 1)) {
      edit.refuse("loop " + quoted(inner.var.name()) + " repeats the reduction: the block does not depend on it", here,
                  "choose a loop inside of it");
    }
    if (is_reduce && is_spatial)
      edit.refuse("loop " + quoted(inner.var.name()) + " is both a reduction loop and a spatial one", here,
                  "split it before fusing such loops");
    if (is_reduce) {
      first[inner.var] = 0;
    } else if (is_spatial) {
      const Var var(inner.var.name(), inner.var.dtype());
      renamed[inner.var] = var;
      init_loops.push_back({var, inner.extent, inner.loop_kind, inner.thread});
    }
  }
  const Buffer output = block.init.as<Store>() ? block.init.as<Store>()->buffer : Buffer();
  if (!output.is_defined())
    edit.refuse("the init of block " + quoted(ref.name) + " is not one store", here,
                "only such reductions can be decomposed");
  std::vector<std::string> others;
  for (const Block* b : readers_of(loop.body, output)) others.push_back(b->name);
  for (const Block* b : writers_of(loop.body, output)) others.push_back(b->name);
  bool is_private = false;
  visit(loop.body, [&](const Allocate& a) { is_private |= a.buffer == output; });
  if (is_private)
    edit.refuse(quoted(output->name) + " lives inside of loop " + quoted(loop_ref.name()), here,
                "choose a loop inside of its allocation");
  for (const std::string& name : others) {
    if (name == block.name) continue;
    // A reader in the same loop sees its element finished; it must not see another one before its init.
    const auto accesses = accesses_in(loop.body, {loops.begin(), at + 1});
    for (const Access& a : accesses) {
      for (const Access& b : accesses) {
        if (!a.block || !b.block || a.block->name != block.name || b.block->name != name || a.buffer != output ||
            b.buffer != output)
          continue;
        std::vector<Var> fixed;
        for (const For* l : kept) fixed.push_back(l->var);
        const auto equal = proven_equal(a, b, {&loop}, fixed);
        if (equal.empty())
          edit.refuse("block " + quoted(name) + " uses " + quoted(output->name) + " inside of loop " +
                          quoted(loop_ref.name()) + " too",
                      here, "choose a loop inside, around the reduction only");
      }
    }
  }

  Assumptions ranges = ranges_of(kept);
  for (const NewLoop& l : init_loops) ranges.bind_range(l.var, l.extent);
  auto at_first = [&](const Expr& e) { return simplify(substitute(substitute(e, first), renamed), ranges); };
  std::vector<IterVar> iters;
  Substitution new_iters;
  for (const IterVar& iter : block.iters) {
    if (iter.kind != IterKind::spatial) continue;
    const Var var(iter.var.name(), iter.var.dtype());
    new_iters[iter.var] = var;
    iters.push_back({var, iter.extent, IterKind::spatial, at_first(iter.binding)});
  }
  const Expr predicate = block.predicate.is_defined()
                             ? simplify_predicate(substitute(substitute(block.predicate, first), renamed), ranges)
                             : Expr();
  const std::string name = unique_block_name(func_, ref.name + "_init");
  const Stmt init =
      wrap_in_loops(init_loops, make_stmt<Block>(name, iters, predicate, Stmt(), substitute(block.init, new_iters)));
  BlockEdit update(block);
  update.init = Stmt();
  const Stmt body = transform_node(func_.body, &loop,
                                   [&](const Stmt& s) { return seq({init, replace_node(s, &block, update.make())}); });
  edit.commit(body, BlockRef{name});
  return {name};
}

}  // namespace tw
