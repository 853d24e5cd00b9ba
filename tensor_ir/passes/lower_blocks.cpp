// Blocks become the statements that they stand for.
//
//   for i … for k …                                    for i … for k …
//     block C(spatial vi: 64 = i, reduce vk: 32 = k)     if (k == 0) C[i] = 0
//       init { C[vi] = 0 }                           ⇒   C[i] = C[i] + A[i, k]
//       C[vi] = C[vi] + A[vi, vk]
//
// A predicate becomes an If around both.  Parameters that a block with the attribute "streaming" writes are `streamed`.
#include <set>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"

namespace tw {
namespace {

// v*c + w*d + …, of variables and positive constants.
bool is_sum_of_products(const Expr& e) {
  if (e.kind() == NodeKind::Var) return true;
  const auto* b = e.as<Binary>();
  if (!b) return false;
  if (b->op == BinaryOp::add) return is_sum_of_products(b->a) && is_sum_of_products(b->b);
  const auto factor = as_int(b->b);
  return b->op == BinaryOp::mul && b->a.kind() == NodeKind::Var && factor && *factor > 0;
}

Expr each_var_is_zero(const Expr& e) {
  Expr result = bool_imm(true);
  for (const Var& var : free_vars(e)) result = result && equal(var, 0);
  return result;
}

// A sum of products of loop variables (which are ≥ 0) by positive constants is zero where every variable is; written
// so, each loop's first iteration can be told apart on its own.
Expr is_zero(const Expr& e) {
  return is_sum_of_products(e) ? each_var_is_zero(e) : equal(e, 0);
}

}  // namespace

Func lower_blocks(const Func& f) {
  Func result = f;
  std::set<Buffer> streamed;
  result.body = rewrite(f.body, [&](const Block& block) -> Stmt {
    Substitution values;
    Expr is_first = bool_imm(true);
    for (const IterVar& iter : block.iters) {
      values[iter.var] = iter.binding;
      if (iter.kind == IterKind::reduce && !is_const_int(iter.extent, 1)) is_first = is_first && is_zero(iter.binding);
    }
    Stmt body = fold_substitute(block.body, values);
    if (block.init.is_defined()) {
      Stmt init = fold_substitute(block.init, values);
      if (!is_const_int(is_first, 1)) init = make_stmt<If>(is_first, init);
      body = seq({init, body});
    }
    if (block.attributes.count("streaming")) {
      for (const Buffer& buffer : buffers_written(block.body)) streamed.insert(buffer);
    }
    if (block.predicate.is_defined() && !is_const_int(block.predicate, 1)) body = make_stmt<If>(block.predicate, body);
    return body;
  });
  for (Buffer& buffer : result.buffers) {
    if (!streamed.count(buffer)) continue;
    BufferNode node = *buffer.get();
    node.is_streamed = true;
    const Buffer changed(std::move(node));
    result.body = replace_buffer(result.body, buffer, changed);
    buffer = changed;
  }
  return result;
}

}  // namespace tw
