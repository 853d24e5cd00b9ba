// pad_operands("C", [16, 8])
//
//   for i in 0..20 { for k in 0..5 {
//     block C(spatial v: 20 = i, reduce w: 5 = k) { init { C[v] = 0 } C[v] = C[v] + A[v, w] * B[w] } } }
// ⇒
//   alloc C_padded: f32[32], A_padded: f32[32, 8], B_padded: f32[8]
//   for … { block A_padded(v: 32, w: 8) { A_padded[v, w] = A[v, w where v < 20 && w < 5] } }
//   for … { block B_padded(w: 8) { B_padded[w] = B[w where w < 5] } }
//   for i in 0..32 { for k in 0..8 {
//     block C(spatial v: 32 = i, reduce w: 8 = k) {
//       init { C_padded[v] = 0 } C_padded[v] = C_padded[v] + A_padded[v, w] * B_padded[w] } } }
//   for … { block C_inside(v: 20) { C[v] = C_padded[v] } }
//
// Loops then divide by the multiples, and no iteration is left out: what is added computes with zeros, and is dropped.
// One multiple for each iteration variable, 1 leaves it.  Legal for sums of products of two buffers in a nest of their
// own, whose padded variables are indices by themselves, are bound to one loop each, and of which those that are summed
// over are indices of both.
#include "schedule/primitives/cache.h"
#include "schedule/primitives/pad.h"
#include "tensor_ir/match.h"

namespace tw {
namespace {

class Padding {
 public:
  Padding(const ScheduleEdit& edit, const Block& block, const Stmt& here) : edit_(edit), block_(block), here_(here) {}

  // The variable takes so many values more.
  void extend(const IterVar& iter, const Expr& extent) { extents_[iter.var] = extent; }
  bool is_needed() const { return !extents_.empty(); }
  const std::unordered_map<Var, Expr>& extents() const { return extents_; }

  bool uses_padded(const std::vector<Expr>& indices) const {
    return std::any_of(indices.begin(), indices.end(), [&](const Expr& index) { return is_padded(index); });
  }
  bool is_padded(const Expr& index) const { return index.kind() == NodeKind::Var && extents_.count(Var::of(index)); }

  // Padded variables are indices by themselves, or none; all elements of the buffer are there.
  void require_plain(const Buffer& buffer, const std::vector<Expr>& indices) const {
    if (edit_.padded_layout(buffer))
      edit_.refuse("the layout of " + quoted(buffer->name) + " has padding", here_, "pad before layouts are changed");
    for (const Expr& index : indices) {
      const bool is_computed =
          !is_padded(index) && std::any_of(extents_.begin(), extents_.end(),
                                           [&](const auto& padded) { return uses_var(index, padded.first); });
      if (is_computed)
        edit_.refuse("an index of " + quoted(buffer->name) + " is computed of a padded iteration", here_,
                     "pad iterations that are indices by themselves");
    }
  }

  Buffer padded(const Buffer& buffer, const std::vector<Expr>& indices) const {
    BufferNode node = *buffer.get();
    node.name = unique_buffer_name(edit_.func, buffer->name + "_padded");
    node.scope = Scope::global;
    node.strides.clear();
    node.is_constant = false;
    for (size_t d = 0; d < indices.size(); ++d) {
      const bool is_whole = !is_padded(indices[d]) || is_known_equal(buffer->shape[d], extent_of(indices[d]));
      if (!is_whole)
        edit_.refuse(quoted(buffer->name) + " has other extents than the block's iterations", here_,
                     "pad sums that go over whole buffers");
      if (is_padded(indices[d])) node.shape[d] = extents_.at(Var::of(indices[d]));
    }
    return Buffer(std::move(node));
  }

  // for v… { to[v…] = from[v… where inside] }, over what `to` has.
  static Stmt copy(const std::string& name, const Buffer& from, const Buffer& to) {
    std::vector<NewLoop> loops;
    std::vector<IterVar> iters;
    std::vector<Expr> indices;
    Expr inside;
    for (size_t d = 0; d < to->shape.size(); ++d) {
      const Var loop("i" + std::to_string(d)), iter("vi" + std::to_string(d));
      loops.push_back({loop, to->shape[d]});
      iters.push_back({iter, to->shape[d], IterKind::spatial, loop});
      indices.push_back(iter);
      if (!can_prove(to->shape[d] <= from->shape[d])) {
        const Expr condition = iter < from->shape[d];
        inside = inside.is_defined() ? inside && condition : condition;
      }
    }
    const Expr value = make_expr<Load>(from->dtype, from, indices, inside);
    return wrap_in_loops(loops, make_stmt<Block>(name, iters, Expr(), Stmt(), store(to, indices, value)));
  }

 private:
  Expr extent_of(const Expr& index) const {
    for (const IterVar& iter : block_.iters)
      if (iter.var.get() == index.get()) return iter.extent;
    internal_error("pad_operands: an iteration of the block");
  }

  const ScheduleEdit& edit_;
  const Block& block_;
  const Stmt& here_;
  std::unordered_map<Var, Expr> extents_;
};

}  // namespace

void Schedule::pad_operands(const BlockRef& ref, const std::vector<int64_t>& multiples) {
  ScheduleEdit edit(*this, "pad_operands", ref, multiples);
  const Block& block = edit.block(ref);
  const Stmt here = edit.path(ref).back();
  const auto reduction = as_reduction(block);
  const auto factors = reduction ? factors_of(block) : std::vector<const Load*>{};
  if (factors.size() != 2 || !block.init.is_defined() || block.predicate.is_defined())
    edit.refuse("block " + quoted(ref.name) + " is no sum of products of two buffers with an init", here,
                "pad before the block is changed");
  if (blocks_in(nest_of(edit.path(ref))).size() != 1)
    edit.refuse("block " + quoted(ref.name) + " shares its loops with others", here, "pad before blocks are moved");
  Padding padding(edit, block, here);
  Stmt body = func_.body;
  for (const auto& [iter, loop, extent] : iterations_to_pad(edit, ref, multiples)) {
    padding.extend(*iter, extent);
    body = with_extent(body, loop->var, extent);
    for (const Load* factor : factors) {
      const bool is_index = std::any_of(factor->indices.begin(), factor->indices.end(),
                                        [&](const Expr& index) { return index.get() == iter->var.get(); });
      if (iter->kind == IterKind::reduce && !is_index)
        edit.refuse(quoted(iter->var.name()) + " is no index of " + quoted(factor->buffer->name), here,
                    "only what both factors have can be summed over with zeros");
    }
  }
  if (!padding.is_needed()) return edit.commit(body);
  for (const Load* factor : factors) padding.require_plain(factor->buffer, factor->indices);
  padding.require_plain(reduction->buffer, reduction->indices);

  const Block& loops_padded = *path_to_block(body, ref.name).back().as<Block>();
  BlockEdit changed(loops_padded);
  for (IterVar& iter : changed.iters)
    if (const auto found = padding.extents().find(iter.var); found != padding.extents().end())
      iter.extent = found->second;
  std::vector<Buffer> added;
  std::vector<Stmt> before;
  const auto use = [&](const Buffer& from, const Buffer& to) {
    changed.body = replace_buffer(changed.body, from, to);
    changed.init = replace_buffer(changed.init, from, to);
    added.push_back(to);
  };
  for (const Load* factor : factors) {
    if (!padding.uses_padded(factor->indices)) continue;
    const Buffer copy = padding.padded(factor->buffer, factor->indices);
    before.push_back(Padding::copy(unique_block_name(func_, copy->name), factor->buffer, copy));
    use(factor->buffer, copy);
  }
  Stmt after;
  if (padding.uses_padded(reduction->indices)) {
    const Buffer whole = padding.padded(reduction->buffer, reduction->indices);
    after = Padding::copy(unique_block_name(func_, reduction->buffer->name + "_inside"), whole, reduction->buffer);
    use(reduction->buffer, whole);
  }
  body = replace_node(body, &loops_padded, changed.make());
  const auto nest = [&] { return nest_of(path_to_block(body, ref.name)); };
  for (const Stmt& copy : before) body = insert_beside(body, nest().get(), copy, true);
  if (after.is_defined()) body = insert_beside(body, nest().get(), after, false);
  for (const Buffer& buffer : added) body = make_stmt<Allocate>(buffer, body);
  edit.commit(body);
}

}  // namespace tw
