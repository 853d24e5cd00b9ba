#include "relay_ir/compile/merge_axes.h"

#include <algorithm>
#include <unordered_map>

#include "schedule/tree.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

struct Pair {
  Var first, second, merged;  // iteration variables of a block
};

class Merger {
 public:
  Merger(const Func& func, Expr height, Expr width)
      : func_(func), height_(std::move(height)), width_(std::move(width)), both_(simplify(height_ * width_)) {}

  // Not defined: they stay two.
  Stmt run() {
    for (const Block* block : blocks_in(func_.body)) {
      find_pair(*block);
      if (!is_possible_) return {};
    }
    if (has_statements_outside_blocks(func_.body)) return {};
    for (const auto& [buffer, dimension] : dimension_)
      if (dimension >= 0 && buffer->is_constant) return {};
    const Stmt body = rewrite_nest(func_.body);
    return is_possible_ ? body : Stmt();
  }

  Buffer merged(const Buffer& buffer) {
    const auto found = dimension_.find(buffer);
    if (found == dimension_.end() || found->second < 0) return buffer;
    Buffer& result = merged_[buffer];
    if (!result.is_defined()) {
      BufferNode node = *buffer.get();
      node.shape[static_cast<size_t>(found->second)] = both_;
      node.shape.erase(node.shape.begin() + found->second + 1);
      result = Buffer(std::move(node));
    }
    return result;
  }

 private:
  // Neighbouring spatial iterations of these extents, each bound to a loop of its own; the last ones.
  void find_pair(const Block& block) {
    Pair pair;
    for (size_t i = 0; i + 1 < block.iters.size(); ++i) {
      const IterVar &a = block.iters[i], &b = block.iters[i + 1];
      if (a.kind == IterKind::spatial && b.kind == IterKind::spatial && is_known_equal(a.extent, height_) &&
          is_known_equal(b.extent, width_) && a.binding.kind() == NodeKind::Var && b.binding.kind() == NodeKind::Var)
        pair = {a.var, b.var, Var(a.var.name())};
    }
    is_possible_ &= pair.first.is_defined() && !block.predicate.is_defined();
    if (!is_possible_) return;
    pairs_[&block] = pair;
    Substitution units;  // iterations that are always 0
    for (const IterVar& iter : block.iters)
      if (is_const_int(iter.extent, 1)) units[iter.var] = Expr(0);
    const auto see = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
      const int dimension = dimension_in(buffer, indices, pair, units);
      const auto [known, is_new] = dimension_.emplace(buffer, dimension);
      is_possible_ &= known->second == dimension;
    };
    for (const Stmt& part : {block.init, block.body}) {
      visit(part, [&](const Load& l) { see(l.buffer, l.indices); }, [&](const Store& s) { see(s.buffer, s.indices); });
    }
  }

  // Where the pair stands; -1: nowhere.  An access that uses it otherwise makes merging impossible.
  int dimension_in(const Buffer& buffer, const std::vector<Expr>& indices, const Pair& pair,
                   const Substitution& units) {
    int found = -1;
    for (size_t d = 0; d < indices.size(); ++d) {
      const Expr index = simplify(substitute(indices[d], units));
      if (!uses_var(index, pair.first) && !uses_var(index, pair.second)) continue;
      const bool is_second = found >= 0 && static_cast<int>(d) == found + 1 && index.get() == pair.second.get();
      if (is_second) continue;
      const bool is_first = found < 0 && index.get() == pair.first.get() && d + 1 < indices.size() &&
                            simplify(substitute(indices[d + 1], units)).get() == pair.second.get() &&
                            buffer->strides.empty() && is_known_equal(buffer->shape[d], height_) &&
                            is_known_equal(buffer->shape[d + 1], width_);
      is_possible_ &= is_first;
      found = static_cast<int>(d);
    }
    return found;
  }

  std::vector<Expr> merged_indices(const Buffer& buffer, std::vector<Expr> indices, const Pair& pair) {
    const int d = dimension_.at(buffer);
    if (d < 0) return indices;
    indices[static_cast<size_t>(d)] = pair.merged;
    indices.erase(indices.begin() + d + 1);
    return indices;
  }

  Stmt rewrite_accesses(const Stmt& s, const Pair& pair) {
    if (!s.is_defined()) return s;
    return rewrite_bottom_up(
        s,
        [&](const Load& l) -> Expr {
          return make_expr<Load>(l.dtype, merged(l.buffer), merged_indices(l.buffer, l.indices, pair), l.predicate);
        },
        [&](const Store& st) -> Stmt {
          return make_stmt<Store>(merged(st.buffer), merged_indices(st.buffer, st.indices, pair), st.value,
                                  st.predicate, st.span);
        });
  }

  Stmt rewrite_block(const Block& block, const Var& first, const Var& loop) {
    const Pair& pair = pairs_.at(&block);
    BlockEdit edit(block);
    for (size_t i = 0; i < edit.iters.size(); ++i) {
      if (!(edit.iters[i].var == pair.first)) continue;
      is_possible_ &= edit.iters[i].binding.get() == first.get();
      edit.iters[i] = {pair.merged, both_, IterKind::spatial, loop};
      edit.iters.erase(edit.iters.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
    edit.init = rewrite_accesses(block.init, pair);
    edit.body = rewrite_accesses(block.body, pair);
    for (const Stmt& part : {edit.init, edit.body})
      is_possible_ &= !part.is_defined() || (!uses_var(part, pair.first) && !uses_var(part, pair.second));
    return edit.make();
  }

  // The loops of a block's pair stand one in the other and hold this block alone.
  Stmt rewrite_nest(const Stmt& s) {
    if (const auto* allocate = s.as<Allocate>())
      return make_stmt<Allocate>(merged(allocate->buffer), rewrite_nest(allocate->body));
    const auto* outer = s.as<For>();
    const auto* inner = outer ? outer->body.as<For>() : nullptr;
    if (inner) {
      const std::vector<const Block*> blocks = blocks_in(inner->body);
      const Pair* pair = blocks.size() == 1 ? &pairs_.at(blocks[0]) : nullptr;
      const auto is_bound = [&](const Var& iteration, const Var& loop) {
        return std::any_of(blocks[0]->iters.begin(), blocks[0]->iters.end(),
                           [&](const IterVar& i) { return i.var == iteration && i.binding.get() == loop.get(); });
      };
      if (pair && is_bound(pair->first, outer->var) && is_bound(pair->second, inner->var)) {
        const Var loop(outer->var.name());
        const Stmt body =
            transform_blocks(inner->body, [&](const Block& b) { return rewrite_block(b, outer->var, loop); });
        return make_stmt<For>(loop, both_, outer->loop_kind, body, outer->thread, outer->attributes, outer->span);
      }
    }
    if (s.kind() == NodeKind::Block) is_possible_ = false;  // its loops are somewhere else
    return map_children(s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return rewrite_nest(child); });
  }

  const Func& func_;
  const Expr height_, width_, both_;
  bool is_possible_ = true;
  std::unordered_map<const Block*, Pair> pairs_;
  std::unordered_map<Buffer, int> dimension_;
  std::unordered_map<Buffer, Buffer> merged_;
};

}  // namespace

Func merge_axes(const Func& func) {
  const Block* reduction = nullptr;
  for (const Block* block : blocks_in(func.body)) {
    const bool reduces = std::any_of(block->iters.begin(), block->iters.end(), [](const IterVar& i) {
      return i.kind == IterKind::reduce && !is_const_int(i.extent, 1);
    });
    if (!reduces) continue;
    if (reduction) return func;
    reduction = block;
  }
  if (!reduction) return func;
  std::vector<Expr> spatial;
  for (const IterVar& i : reduction->iters)
    if (i.kind == IterKind::spatial) spatial.push_back(i.extent);
  if (spatial.size() < 4) return func;
  const Expr height = spatial[spatial.size() - 2], width = spatial.back();
  if (as_int(height).value_or(2) < 2 || as_int(width).value_or(2) < 2) return func;
  Merger merger(func, height, width);
  const Stmt body = merger.run();
  if (!body.is_defined()) return func;
  Func result = func;
  result.body = body;
  for (Buffer& buffer : result.buffers) buffer = merger.merged(buffer);
  return result;
}

}  // namespace tw::relay
