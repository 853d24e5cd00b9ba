// transform_layout("X", "(n, c, h) -> (n, c // 16, h, c % 16)")
//
//   alloc X: f32[1, 48, 7]       … X[n, c, h] …
// ⇒
//   alloc X: f32[1, 3, 7, 16]    … X[n, c // 16, h, c % 16] …
//
// Legal when the map sends different elements to different places.  Storage that the map adds (c % 16 of 50 channels)
// is padding: never read, and written only where the block that writes the buffer is annotated with zero_padding = 1.
#include <algorithm>

#include "schedule/edit.h"
#include "schedule/layout.h"

namespace tw {
namespace {

class LayoutRewrite {
 public:
  LayoutRewrite(Buffer from, Buffer to, const IndexMap& map) : from_(std::move(from)), to_(std::move(to)), map_(map) {}

  Stmt walk(const Stmt& s, const Assumptions& ranges) const {
    if (!s.is_defined()) return s;
    if (const auto* loop = s.as<For>()) {
      Assumptions inner = ranges;
      inner.bind_range(loop->var, loop->extent);
      return with_body_if_changed(s, *loop, walk(loop->body, inner));
    }
    if (const auto* block = s.as<Block>()) {
      Assumptions inner;
      for (const IterVar& iter : block->iters) inner.bind_range(iter.var, iter.extent);
      BlockEdit edit(*block);
      edit.body = walk(edit.body, inner);
      edit.init = walk(edit.init, inner);
      const bool is_same =
          edit.body.is_same(block->body) && (!edit.init.is_defined() || edit.init.is_same(block->init));
      return is_same ? s : edit.make();
    }
    auto on_expr = [&](const Expr& e) { return walk(e, ranges); };
    Stmt mapped = map_children(s, on_expr, [&](const Stmt& child) { return walk(child, ranges); });
    if (const auto* st = mapped.as<Store>(); st && st->buffer == from_) {
      return make_stmt<Store>(to_, indices(st->indices, ranges), st->value, st->predicate, st->span);
    }
    if (const auto* allocate = mapped.as<Allocate>(); allocate && allocate->buffer == from_)
      return make_stmt<Allocate>(to_, allocate->body);
    return mapped;
  }

 private:
  static Stmt with_body_if_changed(const Stmt& s, const For& loop, const Stmt& body) {
    return body.is_same(loop.body) ? s : with_body(loop, body);
  }

  Expr walk(const Expr& e, const Assumptions& ranges) const {
    return rewrite_bottom_up(e, [&](const Load& l) -> Expr {
      if (l.buffer != from_) return {};
      return make_expr<Load>(l.dtype, to_, indices(l.indices, ranges), l.predicate);
    });
  }

  std::vector<Expr> indices(const std::vector<Expr>& old, const Assumptions& ranges) const {
    Substitution values;
    for (size_t i = 0; i < old.size(); ++i) values[map_.from[i]] = old[i];
    std::vector<Expr> result;
    for (const Expr& e : map_.to) result.push_back(simplify(substitute(e, values), ranges));
    return result;
  }

  Buffer from_, to_;
  const IndexMap& map_;
};

// Loops over the last elements of a dimension that the map has made longer, storing zero.  Every padding element of
// these layouts has a digit beyond what the old extent fills.
Stmt zero_padding(const Func& f, const Buffer& buffer, const IndexMap& map, const std::vector<Expr>& logical) {
  std::vector<NewLoop> loops;
  std::vector<IterVar> iters;
  std::vector<Expr> indices;
  for (int d = 0; d < buffer.rank(); ++d) {
    const Var loop("i" + std::to_string(d)), iter("vi" + std::to_string(d));
    loops.push_back({loop, buffer->shape[d]});
    iters.push_back({iter, buffer->shape[d], IterKind::spatial, loop});
    indices.push_back(iter);
  }
  // An element is padding when the old index that its digits spell is past the end.
  Expr is_padding = bool_imm(false);
  for (size_t i = 0; i < map.from.size(); ++i) {
    Expr spelled = 0;
    std::vector<std::pair<int64_t, Expr>> digits;  // weight, new index
    for (size_t t = 0; t < map.to.size(); ++t) {
      const auto* b = map.to[t].as<Binary>();
      if (!b || !b->a.is_same(map.from[i])) continue;
      if (b->op == BinaryOp::floor_div) spelled = spelled + indices[t] * b->b;
      if (b->op == BinaryOp::floor_mod) spelled = spelled + indices[t];
    }
    if (!is_const_int(spelled, 0)) is_padding = is_padding || spelled >= logical[i];
  }
  if (is_const_int(is_padding, 0)) return {};
  const Stmt body = make_stmt<If>(is_padding, store(buffer, indices, zero_of(buffer->dtype)));
  return wrap_in_loops(loops,
                       make_stmt<Block>(unique_block_name(f, buffer->name + "_padding"), iters, Expr(), Stmt(), body));
}

Expr element_count_of(const std::vector<Expr>& shape) {
  Expr count = 1;
  for (const Expr& extent : shape) count = count * extent;
  return count;
}

}  // namespace

void Schedule::transform_layout(const std::string& buffer_name, const IndexMap& map) {
  ScheduleEdit edit(*this, "transform_layout", buffer_name, map);
  const Buffer buffer = edit.buffer(buffer_name);
  if (!buffer->strides.empty())
    edit.refuse(quoted(buffer_name) + " has strides", Stmt(), "only compact buffers change their layout");
  bool is_flat = false;
  visit(
      func_.body,
      [&](const Load& l) { is_flat |= l.buffer == buffer && static_cast<int>(l.indices.size()) != buffer.rank(); },
      [&](const Store& s) { is_flat |= s.buffer == buffer && static_cast<int>(s.indices.size()) != buffer.rank(); });
  if (is_flat)
    edit.refuse(quoted(buffer_name) + " is used by flat indices", Stmt(), "transform layouts before lowering");
  BufferNode node = *buffer.get();
  node.shape = physical_shape(map, buffer->shape);
  const Buffer changed(std::move(node));
  Stmt body = LayoutRewrite(buffer, changed, map).walk(func_.body, {});
  for (Buffer& parameter : edit.func.buffers) {
    if (parameter == buffer) parameter = changed;
  }
  bool is_zeroed = false;
  for (const Block* writer : writers_of(func_.body, buffer)) {
    const auto wanted = writer->attributes.find("zero_padding");
    is_zeroed |= wanted != writer->attributes.end() && wanted->second == AttributeValue{int64_t{1}};
  }
  if (is_zeroed && edit.func.is_parameter(changed)) {
    const Stmt fill = zero_padding(func_, changed, map, buffer->shape);
    if (fill.is_defined()) body = seq({fill, body});
  }
  // Padding of inputs is the caller's and holds something; that of other buffers is never written.
  const bool is_input = edit.func.is_parameter(changed) && !edit.func.is_output(changed);
  if (const auto* before = edit.padded_layout(buffer)) {
    Substitution values;
    for (size_t i = 0; i < map.from.size(); ++i) values[map.from[i]] = before->map.to[i];
    IndexMap both{before->map.from, {}};
    for (const Expr& e : map.to) both.to.push_back(substitute(e, values));
    edit.set_padded_layout(changed, before->logical, both);
  } else if (!is_input && !is_known_equal(element_count_of(changed->shape), element_count_of(buffer->shape))) {
    edit.set_padded_layout(changed, buffer->shape, map);
  }
  edit.commit(body);
  layout_changes_[buffer_name].push_back(map);
}

}  // namespace tw
