#include "relay_ir/ops/loops.h"

#include <utility>

#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {

Stmt loops_over(const std::vector<Expr>& extents, const std::function<Stmt(const te::Indices&)>& body) {
  std::vector<Var> vars;
  te::Indices indices;
  for (size_t i = 0; i < extents.size(); ++i)
    vars.emplace_back("i" + std::to_string(i)), indices.push_back(vars.back());
  Stmt result = body(indices);
  for (size_t i = extents.size(); i-- > 0;) result = make_stmt<For>(vars[i], extents[i], LoopKind::serial, result);
  return result;
}

Stmt in_vectors(const Expr& extent, const std::function<Stmt(const Expr& i)>& body) {
  constexpr int64_t lanes = 64;
  const Var lane("lane"), block("block");
  if (const auto known = as_int(extent); known && *known <= lanes)
    return make_stmt<For>(lane, extent, *known > 1 ? LoopKind::vectorized : LoopKind::serial, body(lane));
  const Expr blocks = simplify(floor_div(extent, lanes)), done = simplify(blocks * lanes);
  const Stmt whole = make_stmt<For>(lane, Expr(lanes), LoopKind::vectorized, body(Expr(block) * lanes + lane));
  const Stmt rest = loops_over({simplify(extent - done)}, [&](const te::Indices& i) { return body(done + i[0]); });
  return seq({make_stmt<For>(block, blocks, LoopKind::serial, whole), rest});
}

Stmt rows_in_vectors(const std::vector<Expr>& shape, const std::function<Stmt(const te::Indices&)>& body) {
  if (shape.empty()) return body({});
  return loops_over({shape.begin(), shape.end() - 1}, [&](const te::Indices& row) {
    return in_vectors(shape.back(), [&](const Expr& i) {
      te::Indices at = row;
      at.push_back(i);
      return body(at);
    });
  });
}

Stmt rows_in_parallel(const std::vector<Expr>& rows, const Expr& elements,
                      const std::function<Stmt(const te::Indices& row)>& body) {
  constexpr int64_t of_task = 4096;  // elements
  const Expr count = simplify(product_of(rows));
  if (as_int(simplify(count * elements)).value_or(2 * of_task) < 2 * of_task || is_const_int(count, 1))
    return loops_over(rows, body);
  const Expr each = simplify(max(floor_div(of_task, max(elements, Expr(1))), Expr(1)));
  const Var task("task"), row("row");
  const Expr first = Expr(task) * each;
  const Stmt of_rows = make_stmt<For>(row, simplify(min(each, count - first)), LoopKind::serial,
                                      body(unflatten_index(first + row, rows)));
  return make_stmt<For>(task, simplify(floor_div(count + each - 1, each)), LoopKind::parallel, of_rows);
}

Buffer scratch(const char* name, DType dtype, std::vector<Expr> shape) {
  BufferNode node;
  node.name = name;
  node.dtype = dtype;
  node.shape = std::move(shape);
  return Buffer(std::move(node));
}

decltype(OpDef::compute) copied_and_updated(std::string name, UpdateFunction update) {
  return [name = std::move(name), update](const OpCall& c, const std::vector<te::Tensor>& in) {
    return te::opaque(name, in, {{in[0].dtype(), in[0].shape()}}, [&](const std::vector<Buffer>& out) {
      const Stmt copied =
          rows_in_vectors(in[0].shape(), [&](const te::Indices& i) { return store(out[0], i, in[0](i)); });
      return seq({copied, update(c, in, out[0])});
    });
  };
}

}  // namespace tw::relay
