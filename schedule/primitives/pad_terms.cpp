// pad_terms("C", [1, 64])
//
//   for i in 0..4 { for k in 0..50 {                          B[vk] = 0 where 50 <= vk: its layout pads it
//     block C(spatial vi: 4 = i, reduce vk: 50 = k) { … C[vi] = C[vi] + i32(A[vi, vk]) * i32(B[vk]) } } }
// ⇒
//   for i in 0..4 { for k in 0..64 {
//     block C(spatial vi: 4 = i, reduce vk: 64 = k) { … C[vi] = C[vi] + i32(A[vi, vk]) * i32(B[vk]) } } }
//
// Loops then divide by the multiples, and nothing is copied or left out.  One multiple for each iteration variable, 1
// leaves it: all but those that are summed over.  Legal for sums of integers, where zero times anything is zero: a
// factor is a constant whose layout has zeros there, and the other one has elements there, whatever they hold.
#include <algorithm>

#include "schedule/primitives/pad.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw {
namespace {

// Whether all elements that the layout took have a smaller index there: what is beyond pads it.
bool is_padding_from(const Expr& begin, const IndexMap& map, const std::vector<Expr>& logical, size_t dimension) {
  Assumptions ranges;
  for (size_t d = 0; d < logical.size(); ++d) ranges.bind_range(map.from[d], logical[d]);
  return can_prove(simplify(map.to[dimension], ranges) < begin, ranges);
}

// The constant is zero wherever the iteration is beyond its extent.
bool has_zeros_beyond(const ScheduleEdit& edit, const Load& factor, const IterVar& iter, const Expr& padded) {
  const auto* layout = factor.buffer->is_constant ? edit.layout_with_padding(factor.buffer) : nullptr;
  if (!layout || factor.predicate.is_defined()) return false;
  for (size_t d = 0; d < factor.indices.size(); ++d) {
    const bool is_index = factor.indices[d].get() == iter.var.get();
    if (is_index && can_prove(padded <= factor.buffer->shape[d]) &&
        is_padding_from(iter.extent, layout->map, layout->logical, d))
      return true;
  }
  return false;
}

// Indices that the iteration moves stay in the factor's memory for all values of the block's iterations in `ranges`.
bool stays_inside(const Load& factor, const Var& iteration, const Assumptions& ranges) {
  for (size_t d = 0; d < factor.indices.size(); ++d) {
    const Expr& index = factor.indices[d];
    if (!uses_var(index, iteration)) continue;
    if (!can_prove(index >= 0, ranges) || !can_prove(index < factor.buffer->shape[d], ranges)) return false;
  }
  return true;
}

}  // namespace

void Schedule::pad_terms(const BlockRef& ref, const std::vector<int64_t>& multiples) {
  ScheduleEdit edit(*this, "pad_terms", ref, multiples);
  const Block& block = edit.block(ref);
  const Stmt here = edit.path(ref).back();
  const auto reduction = as_reduction(block);
  const auto factors = reduction ? factors_of(block) : std::vector<const Load*>{};
  const bool are_integers =
      std::ranges::all_of(factors, [](const Load* factor) { return factor->buffer->dtype.is_integer(); });
  if (factors.size() != 2 || !are_integers || !reduction->buffer->dtype.is_integer() || block.predicate.is_defined())
    edit.refuse("block " + quoted(ref.name) + " is no sum of products of integers", here,
                "pad before the block is changed, or pad_operands");
  const std::vector<PaddedIteration> padded = iterations_to_pad(edit, ref, multiples);
  const auto extent_of = [&](const IterVar& iter) {
    for (const PaddedIteration& p : padded)
      if (p.iter->var == iter.var) return p.extent;
    return iter.extent;
  };
  Assumptions ranges;
  for (const IterVar& iter : block.iters) ranges.bind_range(iter.var, extent_of(iter));
  Stmt body = func_.body;
  for (const auto& [iter, loop, extent] : padded) {
    if (iter->kind != IterKind::reduce)
      edit.refuse(quoted(iter->var.name()) + " is not summed over", here, "pad_operands, or pad");
    const bool is_first = has_zeros_beyond(edit, *factors[0], *iter, extent);
    if (!is_first && !has_zeros_beyond(edit, *factors[1], *iter, extent))
      edit.refuse("neither factor is a constant whose layout has zeros beyond " + quoted(iter->var.name()), here,
                  "transform_layout the constant first, so that " + quoted(iter->var.name()) + " is an index of it");
    const Load& other = *factors[is_first ? 1 : 0];
    if (!stays_inside(other, iter->var, ranges))
      edit.refuse(quoted(other.buffer->name) + " has no elements beyond " + quoted(iter->var.name()), here,
                  "pad by less, or pad_operands");
    body = with_extent(body, loop->var, extent);
  }
  const Block& with_loops = *path_to_block(body, ref.name).back().as<Block>();
  BlockEdit changed(with_loops);
  for (size_t i = 0; i < changed.iters.size(); ++i) changed.iters[i].extent = extent_of(block.iters[i]);
  edit.commit(replace_node(body, &with_loops, changed.make()));
}

}  // namespace tw
