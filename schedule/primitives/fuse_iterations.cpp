// fuse_iterations("C", [[0, 2], [1], [4, 3]])
//
//   for n in 0..2 { for o in 0..5 { for h in 0..6 { for c in 0..4 { for r in 0..3 {
//     block C(spatial vn: 2 = n, spatial vo: 5 = o, spatial vh: 6 = h, reduce vc: 4 = c, reduce vr: 3 = r) {
//       init { C[vn, vo, vh] = 0 } C[vn, vo, vh] = C[vn, vo, vh] + A[vn, vc, vh + vr] * B[vo, vc, vr] } } } } } }
// ⇒
//   alloc C_fused: f32[12, 5], A_fused: f32[12, 12], B_fused: f32[5, 12]
//   for … { block A_fused(v: 12, w: 12) { A_fused[v, w] = A[v // 6, w % 4, v % 6 + w // 4] } }
//   for … { block B_fused(v: 5, w: 12) { B_fused[v, w] = B[v, w % 4, w // 4] } }
//   for n_h in 0..12 { for o in 0..5 { for r_c in 0..12 {
//     block C(spatial vn_vh: 12 = n_h, spatial vo: 5 = o, reduce vr_vc: 12 = r_c) {
//       init { C_fused[…] = 0 } C_fused[vn_vh, vo] = C_fused[vn_vh, vo] + A_fused[vn_vh, vr_vc] * B_fused[vo, vr_vc] }
//       } } }
//   for … { block C_apart(v: 12, w: 5) { C[v // 6, w, v % 6] = C_fused[v, w] } }
//
// The block's iteration variables become one for each group of them, in the groups' order, and so do its loops and the
// dimensions of what it reads and writes: a convolution is a product of matrices then (implicit GEMM: where the copies
// are computed decides whether the matrices ever lie in memory; Chetlur et al., "cuDNN: Efficient Primitives for Deep
// Learning", 2014).  Buffers whose indices stay as they are are not copied.
//
// Legal for a reduction in a nest of its own whose variables are bound to a loop each, and which writes the whole of
// its buffer at its own variables.
#include <algorithm>

#include "schedule/primitives/cache.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

// The iterations of a block as one for each group.
class Fusion {
 public:
  Fusion(const ScheduleEdit& edit, const Block& block, const Stmt& here, const Groups& groups)
      : edit_(edit), block_(block), here_(here) {
    std::vector<int> uses(block.iters.size());
    for (const auto& group : groups) {
      if (group.empty()) edit.refuse("a group is empty", here, "leave it out");
      for (const int64_t axis : group) {
        if (axis < 0 || axis >= static_cast<int64_t>(uses.size()))
          edit.refuse("axis " + std::to_string(axis) + " is not one of the " + std::to_string(uses.size()) +
                          " iterations of block " + quoted(block.name),
                      here, "count them from 0");
        ++uses[static_cast<size_t>(axis)];
      }
      add(group);
    }
    if (std::any_of(uses.begin(), uses.end(), [](int count) { return count != 1; }))
      edit.refuse("an iteration is in no group, or in several", here, "name each once");
  }

  const std::vector<IterVar>& iters() const { return iters_; }

  // What is left of the old variables, as where an index is a value.
  Expr renamed(const Expr& e) const { return substitute(e, values_); }
  Stmt loops_around(Stmt body) const { return wrap_in_loops(loops_, std::move(body)); }

  // An access by the new variables.
  struct Fused {
    Buffer buffer;
    std::vector<Expr> indices;
    Stmt copy;  // between the buffers; not defined: they are the same
  };
  // Of what an access gives, or of a choice between that and a constant, as around the data of a convolution.
  Fused read(const Expr& whole) const {
    const auto* choice = whole.as<Select>();
    const Load& access = *(choice ? choice->then_value : whole).as<Load>();
    if (!choice && !access.predicate.is_defined() && are_kept(access.indices))
      return {access.buffer, substituted(access.indices), Stmt()};
    Fused fused = fuse(access.buffer, access.dtype, [&](const Var& var) { return uses_var(whole, var); });
    fused.copy = copy(fused, fused.buffer->name, [&](const Substitution& values) {
      return store(fused.buffer, substituted(fused.indices, values), substitute(substituted(whole), values));
    });
    return fused;
  }
  Fused write(const Buffer& buffer, const std::vector<Expr>& indices) const {
    if (are_kept(indices)) return {buffer, substituted(indices), Stmt()};
    Fused fused = fuse(buffer, buffer->dtype, [&](const Var& var) { return kind_of(var) == IterKind::spatial; });
    fused.copy = copy(fused, buffer->name + "_apart", [&](const Substitution& values) {
      return store(buffer, substituted(substituted(indices), values),
                   load(fused.buffer, substituted(fused.indices, values)));
    });
    return fused;
  }

  // The result is written whole, at the variables themselves.
  void require_plain_result(const Buffer& buffer, const std::vector<Expr>& indices) const {
    std::vector<const ExprNode*> seen;
    for (size_t d = 0; d < indices.size(); ++d) {
      const bool is_single = is_const_int(indices[d], 0) && is_const_int(buffer->shape[d], 1);
      const auto iter = std::find_if(block_.iters.begin(), block_.iters.end(),
                                     [&](const IterVar& i) { return i.var.get() == indices[d].get(); });
      const bool is_own = iter != block_.iters.end() && iter->kind == IterKind::spatial &&
                          is_known_equal(iter->extent, buffer->shape[d]) &&
                          std::find(seen.begin(), seen.end(), indices[d].get()) == seen.end();
      if (!is_single && !is_own)
        edit_.refuse("block " + quoted(block_.name) + " does not write the whole of " + quoted(buffer->name) +
                         " at its own iteration variables",
                     here_, "fuse before layouts are changed");
      if (is_own) seen.push_back(indices[d].get());
    }
    const auto spatial = std::count_if(block_.iters.begin(), block_.iters.end(),
                                       [](const IterVar& i) { return i.kind == IterKind::spatial; });
    if (static_cast<size_t>(spatial) != seen.size())
      edit_.refuse("block " + quoted(block_.name) + " writes an element more than once", here_,
                   "fuse blocks that write each element at one place");
  }

 private:
  void add(const std::vector<int64_t>& group) {
    const auto iter_of = [&](int64_t axis) -> const IterVar& { return block_.iters[static_cast<size_t>(axis)]; };
    Expr extent = 1;
    std::string name, loop_name;
    for (const int64_t axis : group) {
      const IterVar& iter = iter_of(axis);
      if (iter.kind != iter_of(group[0]).kind)
        edit_.refuse("a group has both spatial and reduced iterations", here_, "fuse those of one kind");
      const std::string separator = name.empty() ? "" : "_";
      name += separator + iter.var.name();
      loop_name += separator + Var::of(iter.binding).name();
      extent = extent * iter.extent;
    }
    const Var fused(name), loop(loop_name);
    ranges_.bind_range(fused, simplify(extent));
    iters_.push_back({fused, simplify(extent), iter_of(group[0]).kind, loop});
    loops_.push_back({loop, simplify(extent)});
    Expr rest = fused;
    for (size_t i = group.size(); i-- > 0;) {
      const IterVar& iter = iter_of(group[i]);
      values_[iter.var] = simplify(i == 0 ? rest : floor_mod(rest, iter.extent), ranges_);
      rest = floor_div(rest, iter.extent);
      group_of_[iter.var] = iters_.size() - 1;
    }
    is_single_.push_back(group.size() == 1);
  }

  IterKind kind_of(const Var& var) const { return iters_[group_of_.at(var)].kind; }
  // All are variables that are not fused with others.
  bool are_kept(const std::vector<Expr>& indices) const {
    return std::all_of(indices.begin(), indices.end(), [&](const Expr& index) {
      const auto group = index.kind() == NodeKind::Var ? group_of_.find(Var::of(index)) : group_of_.end();
      return group != group_of_.end() && is_single_[group->second];
    });
  }
  Expr substituted(const Expr& e) const { return simplify(substitute(e, values_), ranges_); }
  std::vector<Expr> substituted(const std::vector<Expr>& indices) const {
    std::vector<Expr> result;
    for (const Expr& index : indices) result.push_back(substituted(index));
    return result;
  }
  static std::vector<Expr> substituted(const std::vector<Expr>& indices, const Substitution& values) {
    std::vector<Expr> result;
    for (const Expr& index : indices) result.push_back(substitute(index, values));
    return result;
  }

  // A buffer with a dimension for each group that has a variable of which `uses` holds.
  template <class Uses>
  Fused fuse(const Buffer& buffer, DType dtype, const Uses& uses) const {
    BufferNode node = *buffer.get();
    node.name = unique_buffer_name(edit_.func, buffer->name + "_fused");
    node.dtype = dtype;
    node.scope = Scope::global;
    node.strides.clear();
    node.shape.clear();
    node.is_constant = false;
    Fused fused;
    for (size_t g = 0; g < iters_.size(); ++g) {
      const bool is_used = std::any_of(group_of_.begin(), group_of_.end(),
                                       [&](const auto& entry) { return entry.second == g && uses(entry.first); });
      if (!is_used) continue;
      node.shape.push_back(iters_[g].extent);
      fused.indices.push_back(iters_[g].var);
    }
    fused.buffer = Buffer(std::move(node));
    return fused;
  }

  // A nest over the fused buffer; `body` in variables of its own.
  template <class Body>
  Stmt copy(const Fused& fused, const std::string& name, const Body& body) const {
    std::vector<NewLoop> loops;
    std::vector<IterVar> iters;
    Substitution values;
    for (size_t d = 0; d < fused.indices.size(); ++d) {
      const Var loop("i" + std::to_string(d)), iter("vi" + std::to_string(d));
      loops.push_back({loop, fused.buffer->shape[d]});
      iters.push_back({iter, fused.buffer->shape[d], IterKind::spatial, loop});
      values[Var::of(fused.indices[d])] = iter;
    }
    return wrap_in_loops(loops,
                         make_stmt<Block>(unique_block_name(edit_.func, name), iters, Expr(), Stmt(), body(values)));
  }

  const ScheduleEdit& edit_;
  const Block& block_;
  const Stmt& here_;
  std::vector<IterVar> iters_;
  std::vector<NewLoop> loops_;
  std::vector<bool> is_single_;               // by group
  std::unordered_map<Var, size_t> group_of_;  // by variable of the block
  Substitution values_;                       // of the block's variables
  Assumptions ranges_;
};

// The nest is one loop for each iteration, and nothing else.
void require_own_loops(const ScheduleEdit& edit, const BlockRef& ref, const Block& block, const Path& path) {
  const Stmt here = path.back();
  if (block.predicate.is_defined())
    edit.refuse("block " + quoted(ref.name) + " has a predicate", here, "fuse before loops are split");
  std::vector<const For*> loops = loops_of(path);
  for (const IterVar& iter : block.iters) {
    const auto own = std::find_if(loops.begin(), loops.end(), [&](const For* loop) {
      return loop->var.get() == iter.binding.get() && is_known_equal(loop->extent, iter.extent);
    });
    if (own == loops.end())
      edit.refuse(quoted(iter.var.name()) + " is not bound to a loop of its own", here,
                  "fuse before the loops are split or fused");
    edit.require_serial(**own);
    loops.erase(own);
  }
  const Stmt nest = nest_of(path);
  if (!loops.empty() || blocks_in(nest).size() != 1 || has_statements_outside_blocks(nest))
    edit.refuse("block " + quoted(ref.name) + " shares its loops with others", here, "fuse before blocks are moved");
}

}  // namespace

void Schedule::fuse_iterations(const BlockRef& ref, const std::vector<std::vector<int64_t>>& groups) {
  ScheduleEdit edit(*this, "fuse_iterations", ref, groups);
  const Block& block = edit.block(ref);
  const Path path = edit.path(ref);
  const Stmt here = path.back();
  const auto reduction = as_reduction(block);
  if (!reduction || !block.init.is_defined())
    edit.refuse("block " + quoted(ref.name) + " is no reduction with an init", here,
                "fuse before the reduction is decomposed");
  require_own_loops(edit, ref, block, path);
  const Fusion fusion(edit, block, here, groups);
  fusion.require_plain_result(reduction->buffer, reduction->indices);

  const Fusion::Fused result = fusion.write(reduction->buffer, reduction->indices);
  std::vector<Fusion::Fused> copied;
  const auto replace = [&](const Expr& whole, const Buffer& buffer) {
    const Fusion::Fused read = fusion.read(whole);
    if (!read.copy.is_defined()) return load(read.buffer, read.indices);
    const auto has_its_name = [&](const Fusion::Fused& other) { return other.buffer->name == read.buffer->name; };
    if (std::any_of(copied.begin(), copied.end(), has_its_name))
      edit.refuse("block " + quoted(ref.name) + " reads " + quoted(buffer->name) + " twice", here,
                  "read one of them from a copy: cache_read");
    copied.push_back(read);
    return load(read.buffer, read.indices);
  };
  const auto replace_load = [&](const Load& l) {
    return l.buffer == reduction->buffer ? load(result.buffer, result.indices)
                                         : replace(load(l.buffer, l.indices, l.predicate), l.buffer);
  };
  const auto replace_choice = [&](const Select& choice) {
    const auto* l = choice.then_value.as<Load>();
    const bool is_around = l && (as_int(choice.else_value) || as_float(choice.else_value));
    return is_around ? replace(select(choice.condition, choice.then_value, choice.else_value), l->buffer) : Expr();
  };
  const auto replace_store = [&](const Store& st) -> Stmt {
    const Expr value = rewrite(st.value, replace_load, replace_choice);
    return store(result.buffer, result.indices, fusion.renamed(value), st.predicate);
  };
  BlockEdit changed(block);
  changed.iters = fusion.iters();
  changed.init = rewrite(block.init, replace_store);
  changed.body = rewrite(block.body, replace_store);
  std::vector<Stmt> statements;
  std::vector<Buffer> added;
  for (const Fusion::Fused& read : copied) {
    statements.push_back(read.copy);
    added.push_back(read.buffer);
  }
  statements.push_back(fusion.loops_around(changed.make()));
  if (result.copy.is_defined()) {
    statements.push_back(result.copy);
    added.push_back(result.buffer);
  }
  Stmt body = replace_node(func_.body, nest_of(path).get(), seq(std::move(statements)));
  for (const Buffer& buffer : added) body = make_stmt<Allocate>(buffer, body);
  edit.commit(body);
}

}  // namespace tw
