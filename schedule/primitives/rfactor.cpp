// rfactor(r_1, 0)
//
//   for i in 0..8 { for r_0 in 0..4 { for r_1 in 0..16 {
//     block C(spatial v: 8 = i, reduce w: 64 = r_0*16 + r_1) { init { C[v] = 0 } C[v] = C[v] + A[v, w] } } } }
// ⇒
//   alloc C_rf: f32[16, 8]
//   for r_1 in 0..16 { for i in 0..8 { for r_0 in 0..4 {
//     block C_rf(spatial x: 16 = r_1, spatial v: 8 = i, reduce y: 4 = r_0) {
//       init { C_rf[x, v] = 0 } C_rf[x, v] = C_rf[x, v] + A[v, y*16 + x] } } } }
//   for i in 0..8 { for r_1 in 0..16 {
//     block C(spatial v: 8 = i, reduce x: 16 = r_1) { init { C[v] = 0 } C[v] = C[v] + C_rf[x, v] } } }
//
// The partial results have a dimension `axis` for the loop, whose iterations are then independent.  The order of the
// terms changes: legal for reductions that add, multiply, or take minima or maxima.  The block keeps its spatial loops
// and this loop; the partial block has a nest of its own in front of them.  Where the reduction has a tail, missing
// terms are the identity.
#include <algorithm>

#include "schedule/primitives/cache.h"
#include "schedule/primitives/move.h"

namespace tw {
namespace {

// The outermost statement on the path that holds the block and nothing else, and the number of loops around it.
struct OwnNest {
  Stmt top;
  std::vector<const For*> outer, inner;
};
OwnNest own_nest(const Path& path) {
  OwnNest nest;
  size_t first = path.size() - 1;
  while (first > 0 && path[first - 1].kind() == NodeKind::For) --first;
  nest.top = path[first];
  for (size_t i = 0; i < path.size(); ++i) {
    if (const auto* loop = path[i].as<For>()) (i < first ? nest.outer : nest.inner).push_back(loop);
  }
  return nest;
}

}  // namespace

BlockRef Schedule::rfactor(const LoopRef& loop_ref, int axis) {
  ScheduleEdit edit(*this, "rfactor", loop_ref, axis);
  const For& loop = edit.loop(loop_ref);
  const Stmt loop_stmt = edit.path(loop_ref).back();
  const auto inside = blocks_in(loop.body);
  const Block* found = nullptr;
  for (const Block* b : inside) {
    if (is_reduce_loop(*b, loop.var)) found = b;
  }
  if (!found)
    edit.refuse("loop " + quoted(loop_ref.name()) + " is not a reduction loop", loop_stmt,
                "name a loop that a reduce iteration is bound to");
  const Block& block = *found;
  const Path path = edit.path(BlockRef{block.name});
  const Stmt here = path.back();
  const auto reduction = as_reduction(block);
  if (!reduction || !reduction->identity.is_defined()) {
    edit.refuse("block " + quoted(block.name) +
                    " is not a reduction with an init that adds, multiplies, or takes minima or maxima",
                here, "apply rfactor before decompose_reduction");
  }
  if (axis < 0 || axis > reduction->buffer.rank()) {
    edit.refuse("axis " + std::to_string(axis) + " is not a place among " + std::to_string(reduction->buffer.rank()) +
                    " dimensions",
                here, "use 0 to " + std::to_string(reduction->buffer.rank()));
  }
  const OwnNest nest = own_nest(path);
  auto is_own = [&](const Var& v) {
    return std::any_of(nest.inner.begin(), nest.inner.end(), [&](const For* l) { return l->var == v; });
  };
  for (const For* l : loops_of(path)) {
    if (!is_reduce_loop(block, l->var)) continue;
    if (!is_own(l->var))
      edit.refuse("other blocks share the reduction loop " + quoted(l->var.name()), here,
                  "apply rfactor before blocks are moved");
    if (is_spatial_loop(block, l->var))
      edit.refuse("loop " + quoted(l->var.name()) + " is both a reduction loop and a spatial one", here,
                  "do not fuse such loops");
    if (l->loop_kind != LoopKind::serial && l->loop_kind != LoopKind::unrolled)
      edit.refuse("a reduction loop is not serial", here, "apply rfactor first");
  }

  // What each reduce iteration becomes: expressions of the new spatial variable and of one new variable a loop.
  const Assumptions outer_ranges = ranges_of(nest.outer);
  const Var part("v" + loop.var.name());
  Substitution loop_values{{loop.var, part}}, iter_values;
  std::vector<IterVar> reduce_iters;
  std::vector<Var> dropped_loops;
  for (const For* l : nest.inner) {
    if (l->var == loop.var || !is_reduce_loop(block, l->var)) continue;
    const Var var("v" + l->var.name());
    loop_values[l->var] = var;
    reduce_iters.push_back({var, l->extent, IterKind::reduce, var});
    dropped_loops.push_back(l->var);
  }
  std::vector<IterVar> spatial_iters;
  std::vector<SymbolicRange> ranges;
  const OwnIterations own = own_iterations(edit, block, nest.outer, nest.inner);
  for (const IterVar& iter : block.iters) {
    if (iter.kind == IterKind::reduce) {
      iter_values[iter.var] = substitute(iter.binding, loop_values);
      continue;
    }
    const Var var(iter.var.name(), iter.var.dtype());
    iter_values[iter.var] = var;
    spatial_iters.push_back({var, iter.extent, IterKind::spatial, var});
    ranges.push_back(own.ranges[static_cast<size_t>(&iter - block.iters.data())]);
  }
  // Terms beyond a tail are the identity, so that every partial result is initialised.
  Expr tail, rest;
  for (const Expr& c : conjuncts(block.predicate)) {
    bool on_reduce = false, on_other = false;
    for (const Var& v : free_vars(c)) {
      const bool is_parameter =
          std::find(func_.parameters.begin(), func_.parameters.end(), v) != func_.parameters.end();
      if (!is_parameter) (is_reduce_loop(block, v) ? on_reduce : on_other) = true;
    }
    if (on_reduce && on_other)
      edit.refuse("a predicate of block " + quoted(block.name) + " mixes reduction loops with others", here,
                  "split before fusing such loops");
    if (on_reduce)
      tail = and_also(tail, substitute(c, loop_values));
    else
      rest = and_also(rest, c);
  }
  Assumptions inner_ranges;
  inner_ranges.bind_range(part, loop.extent);
  for (const IterVar& iter : spatial_iters) inner_ranges.bind_range(iter.var, iter.extent);
  for (const IterVar& iter : reduce_iters) inner_ranges.bind_range(iter.var, iter.extent);
  auto tidy = [&](const Expr& e) {
    return rewrite_bottom_up(e, [&](const Load& l) -> Expr {
      std::vector<Expr> indices;
      for (const Expr& index : l.indices) indices.push_back(simplify(index, inner_ranges));
      return make_expr<Load>(l.dtype, l.buffer, indices, and_also(l.predicate, tail));
    });
  };
  Expr value = tidy(substitute(reduction->value, iter_values));
  if (tail.is_defined()) {
    bool divides = false;
    visit(value, [&](const Binary& b) {
      divides |= !b.dtype.is_float() && (b.op == BinaryOp::div || b.op == BinaryOp::mod) && !as_int(b.b);
    });
    if (divides)
      edit.refuse("the terms divide by integers that may be zero beyond the tail", here,
                  "split the loop by a factor that divides its extent");
    value = select(tail, value, reduction->identity);
  }

  // The partial block.
  BufferNode node = *reduction->buffer.get();
  node.name = unique_buffer_name(func_, node.name + "_rf");
  node.scope = Scope::global;
  node.strides.clear();
  node.shape.insert(node.shape.begin() + axis, loop.extent);
  const Buffer partial(std::move(node));
  std::vector<Expr> place;
  for (const Expr& index : reduction->indices) place.push_back(substitute(index, iter_values));
  place.insert(place.begin() + axis, part);
  const size_t at = std::min<size_t>(static_cast<size_t>(axis), spatial_iters.size());
  std::vector<IterVar> iters = spatial_iters;
  iters.insert(iters.begin() + static_cast<std::ptrdiff_t>(at), IterVar{part, loop.extent, IterKind::spatial, part});
  ranges.insert(ranges.begin() + static_cast<std::ptrdiff_t>(at), SymbolicRange{0, loop.extent});
  for (const IterVar& iter : reduce_iters) iters.push_back(iter), ranges.push_back({0, iter.extent});
  const std::string name = unique_block_name(func_, block.name + "_rf");
  Stmt init, update;
  if (reduce_iters.empty()) {
    update = store(partial, place, value);
  } else {
    init = store(partial, place, reduction->identity);
    update = store(partial, place, reduction->combine(load(partial, place), value));
  }
  const Stmt partial_block = make_stmt<Block>(name, iters, Expr(), init, update);
  const Stmt partial_nest = block_over(*partial_block.as<Block>(), ranges, outer_ranges, {{}, own.guard});

  // What stays: the block reduces the partial results.
  BlockEdit final(block);
  std::erase_if(final.iters, [](const IterVar& iter) { return iter.kind == IterKind::reduce; });
  const Var last("v" + loop.var.name());
  final.iters.push_back({last, loop.extent, IterKind::reduce, loop.var});
  std::vector<Expr> read = reduction->indices;
  read.insert(read.begin() + axis, last);
  final.body = store(reduction->buffer, reduction->indices,
                     reduction->combine(load(reduction->buffer, reduction->indices), load(partial, read)));
  final.predicate = rest;
  Stmt final_nest = final.make();
  for (size_t i = nest.inner.size(); i-- > 0;) {
    const For* l = nest.inner[i];
    if (std::find(dropped_loops.begin(), dropped_loops.end(), l->var) == dropped_loops.end())
      final_nest = with_body(*l, final_nest);
  }
  // Inside of shared loops, which may run at the same time, each iteration has partial results of its own.
  Stmt both = seq({partial_nest, final_nest});
  if (!nest.outer.empty()) both = make_stmt<Allocate>(partial, both);
  Stmt body = replace_node(func_.body, nest.top.get(), both);
  if (const auto* layout = edit.padded_layout(reduction->buffer)) {
    std::vector<Expr> logical = layout->logical;
    IndexMap map = layout->map;
    logical.push_back(loop.extent);
    map.from.emplace_back(loop.var.name());
    map.to.insert(map.to.begin() + axis, map.from.back());
    edit.set_padded_layout(partial, std::move(logical), std::move(map));
  }
  edit.commit(nest.outer.empty() ? make_stmt<Allocate>(partial, body) : body, BlockRef{name});
  return {name};
}

}  // namespace tw
