// Allocated buffers shrink to what is used of them while they live; the indices start from there.
//
//   for i in 0..4                                      for i in 0..4
//     alloc B: f32[32, 64] in register                   alloc B: f32[8, 64] in register
//     for h in 0..8 for j in 0..64                       for h in 0..8 for j in 0..64
//       B[i*8 + h, j] = …                            ⇒     B[h, j] = …
//
// The range of each index over the loops inside of the allocation is taken without its guards, so that the extents are
// constants where tiles are; an index that is not understood keeps its dimension whole.  What the threads of a block
// share keeps the elements of all of them, wherever it is allocated.  A tile in registers that has no constant size
// afterwards is refused: Error(lower).
#include "tensor_ir/arith/region.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/redirect.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

using IndexList = std::vector<std::vector<Expr>>;

// The indices of all accesses to a buffer; lets are replaced by their values.
class IndexWalk {
 public:
  IndexWalk(const Buffer& buffer, IndexList& found, InnerExtents& loops)
      : buffer_(buffer), found_(found), loops_(loops) {}

  void walk(const Stmt& s) {
    if (const auto* loop = s.as<For>()) loops_[loop->var] = substitute(loop->extent, lets_);
    if (const auto* let = s.as<LetStmt>()) lets_[let->var] = substitute(let->value, lets_);
    if (const auto* store = s.as<Store>()) add(store->buffer, store->indices);
    for_each_child(s, [&](const Expr& e) { walk(e); }, [&](const Stmt& child) { walk(child); });
  }

 private:
  void walk(const Expr& e) {
    if (const auto* let = e.as<Let>()) lets_[let->var] = substitute(let->value, lets_);
    if (const auto* load = e.as<Load>()) add(load->buffer, load->indices);
    for_each_child(e, [&](const Expr& child) { walk(child); });
  }

  void add(const Buffer& buffer, const std::vector<Expr>& indices) {
    if (buffer != buffer_) return;
    std::vector<Expr> plain;
    for (const Expr& index : indices) plain.push_back(substitute(index, lets_));
    found_.push_back(std::move(plain));
  }

  const Buffer& buffer_;
  IndexList& found_;
  InnerExtents& loops_;
  Substitution lets_;
};

bool has_variable_extent(const InnerExtents& loops, const InnerExtents& inner) {
  for (const auto& [var, extent] : loops) {
    for (const Var& v : free_vars(extent)) {
      if (inner.count(v)) return true;
    }
  }
  return false;
}

class Compaction {
 public:
  Stmt walk(const Stmt& s) {
    if (const auto* loop = s.as<For>()) {
      ranges_.bind_range(loop->var, loop->extent);
      if (is_const_int(loop->extent, 1)) units_[loop->var] = Expr(0);
      if (loop->thread >= ThreadAxis::thread_x) threads_[loop->var] = loop->extent;
    }
    if (const auto* allocate = s.as<Allocate>()) {
      const Stmt compacted = compact(*allocate);
      const auto* a = compacted.is_defined() ? compacted.as<Allocate>() : allocate;
      require_constant_tile(a->buffer);
      return make_stmt<Allocate>(a->buffer, walk(a->body));
    }
    return map_children(s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return walk(child); });
  }

 private:
  // Not defined: nothing to gain.
  Stmt compact(const Allocate& allocate) const {
    const Buffer& buffer = allocate.buffer;
    if (!buffer->strides.empty() || buffer.rank() == 0) return {};
    IndexList accesses;
    const bool is_shared = buffer->scope == Scope::shared || buffer->scope == Scope::global;
    InnerExtents inner = is_shared ? threads_ : InnerExtents();
    IndexWalk(buffer, accesses, inner).walk(allocate.body);
    if (accesses.empty() || has_variable_extent(inner, inner)) return {};
    Assumptions all = ranges_;
    for (const auto& [var, extent] : inner) all.bind_range(var, extent);

    BufferNode node = *buffer.get();
    std::vector<Expr> bases(node.shape.size(), Expr(0));
    bool is_smaller = false;
    for (size_t d = 0; d < node.shape.size(); ++d) {
      std::optional<SymbolicRange> range;
      bool is_known = true;
      for (const auto& indices : accesses) {
        if (indices.size() != node.shape.size()) return {};
        if (!is_known || indices[d].dtype() != i64) {
          is_known = false;
          break;
        }
        auto found = range_of(simplify(substitute(indices[d], units_), all), inner, ranges_);
        if (found && range) found = union_of(*range, *found, ranges_);
        is_known = found.has_value();
        range = found;
      }
      const auto extent = is_known && range ? as_int(range->extent) : std::nullopt;
      const auto whole = as_int(node.shape[d]);
      // A register tile keeps its full extent where it hangs over the end: its masked lanes are elements, too.
      const bool hangs_over = buffer->scope == Scope::register_ && extent && whole && *extent > *whole;
      if (!extent || (whole && *extent >= *whole && !hangs_over)) continue;
      node.shape[d] = range->extent;
      bases[d] = range->base;
      is_smaller = true;
    }
    if (!is_smaller) return {};
    const Buffer smaller(std::move(node));
    auto rebased = [&](const std::vector<Expr>& indices) {
      std::vector<Expr> result;
      for (size_t d = 0; d < indices.size(); ++d) result.push_back(simplify(indices[d] - bases[d], all));
      return result;
    };
    return make_stmt<Allocate>(smaller, redirect_accesses(allocate.body, buffer, smaller, rebased));
  }

  static void require_constant_tile(const Buffer& buffer) {
    if (buffer->scope != Scope::register_ || const_shape(buffer)) return;
    std::string extents;
    for (const Expr& extent : buffer->shape) extents += (extents.empty() ? "" : ", ") + to_text(extent);
    throw Error(ErrorCode::lower, "register buffer `" + buffer->name + "` has extents [" + extents +
                                      "], which are not constant\n"
                                      "  help: split the loops by constants and compute it inside of them");
  }

  Assumptions ranges_;    // of the loops around
  InnerExtents threads_;  // those bound to the threads of a block
  Substitution units_;    // those that run once
};

}  // namespace

Func compact_buffers(const Func& f) {
  Func result = f;
  // A loop of one iteration would make its variable part of where a range begins.
  const Stmt body = rewrite_bottom_up(f.body, [](const For& loop) -> Stmt {
    const bool is_plain = is_const_int(loop.extent, 1) && loop.loop_kind != LoopKind::thread;
    return is_plain ? fold_substitute(loop.body, {{loop.var, int_imm(loop.var.dtype(), 0)}}) : Stmt();
  });
  result.body = Compaction().walk(body);
  return result;
}

}  // namespace tw
