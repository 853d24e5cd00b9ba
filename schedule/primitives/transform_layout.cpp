// transform_layout("X", "(n, c, h) -> (n, c // 16, h, c % 16)")
//
//   alloc X: f32[1, 48, 7]       … X[n, c, h] …
// ⇒
//   alloc X: f32[1, 3, 7, 16]    … X[n, c // 16, h, c % 16] …
//
// Legal when the map sends different elements to different places.  Storage that the map adds (c % 16 of 50 channels)
// is padding: neither read nor written.
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
  const Stmt body = LayoutRewrite(buffer, changed, map).walk(func_.body, {});
  for (Buffer& parameter : edit.func.buffers) {
    if (parameter == buffer) parameter = changed;
  }
  // Padding of inputs is the caller's and holds something, but zeros in constants; that of other buffers is never
  // written.
  const bool is_input = edit.func.is_parameter(changed) && !edit.func.is_output(changed) && !changed->is_constant;
  if (const auto* before = edit.layout_with_padding(buffer)) {
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
