#include "schedule/primitives/cache.h"

#include <algorithm>

#include "tensor_ir/text/printer.h"

namespace tw {

Buffer cache_buffer(const Func& f, const Buffer& original, Scope scope) {
  BufferNode node = *original.get();
  node.name = unique_buffer_name(f, original->name + "_" + to_text(scope));
  node.scope = scope;
  node.strides.clear();
  node.is_constant = false;
  return Buffer(std::move(node));
}

Stmt copy_nest(const ScheduleEdit& edit, const Buffer& original, const std::string& block_name, const Buffer& from,
               const Buffer& to) {
  for (const Block* writer : writers_of(edit.func.body, original)) {
    if (writer->attributes.count(partial_attribute))
      edit.refuse("block " + quoted(writer->name) + " writes only what is read of " + quoted(original->name),
                  path_to_block(edit.func.body, writer->name).back(), "copy the buffer before skip_padding");
  }
  const auto* layout = edit.padded_layout(original);
  const std::vector<Expr>& shape = layout ? layout->logical : original->shape;
  std::vector<NewLoop> loops;
  std::vector<IterVar> iters;
  std::vector<Expr> indices;
  Assumptions ranges;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Var loop("i" + std::to_string(d)), iter("vi" + std::to_string(d));
    loops.push_back({loop, shape[d]});
    iters.push_back({iter, shape[d], IterKind::spatial, loop});
    indices.push_back(iter);
    ranges.bind_range(iter, shape[d]);
  }
  if (layout) {
    Substitution values;
    for (size_t d = 0; d < shape.size(); ++d) values[layout->map.from[d]] = indices[d];
    indices.clear();
    for (const Expr& e : layout->map.to) indices.push_back(simplify(substitute(e, values), ranges));
  }
  return wrap_in_loops(loops,
                       make_stmt<Block>(block_name, iters, Expr(), Stmt(), store(to, indices, load(from, indices))));
}

Stmt redirect(const Block& block, const Buffer& from, const Buffer& to) {
  BlockEdit edit(block);
  edit.body = replace_buffer(edit.body, from, to);
  if (edit.init.is_defined()) edit.init = replace_buffer(edit.init, from, to);
  return edit.make();
}

Stmt nest_of(const Path& path) {
  for (const Stmt& s : path) {
    if (s.kind() != NodeKind::Allocate && s.kind() != NodeKind::Seq) return s;
  }
  internal_error("a path ends in a block");
}

Stmt insert_beside(const Stmt& body, const StmtNode* nest, const Stmt& added, bool before) {
  return transform_node(body, nest, [&](const Stmt& s) { return before ? seq({added, s}) : seq({s, added}); });
}

}  // namespace tw
