#include "relay_ir/cost.h"

#include <algorithm>

#include "relay_ir/op.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

// Operations of one execution of `s`, loops inside it multiplied out.
Expr count(const Stmt& s) {
  if (!s.is_defined()) return 0;
  if (const auto* loop = s.as<For>()) {
    const Expr body = count(loop->body);
    return is_const_int(body, 0) ? body : loop->extent * body;
  }
  if (const auto* block = s.as<Block>()) return count(block->body);  // the init is one in a reduction's many
  int64_t own = 0;
  Expr inner = 0;
  for_each_child(
      s,
      [&](const Expr& e) {
        visit(
            e, [&](const Binary& b) { own += b.a.dtype().is_float() * b.a.dtype().lanes; },
            [&](const Unary& u) { own += u.dtype.is_float() * u.dtype.lanes; },
            [&](const Call& c) {
              own += c.dtype.is_float() * c.dtype.lanes * (c.intrinsic == Intrinsic::fma ? 2 : 1);
            });
      },
      [&](const Stmt& child) { inner = inner + count(child); });
  return inner + own;
}

}  // namespace

Expr flops_of(const Func& func) {
  const Expr total = simplify(count(func.body));
  bool is_known = true;  // no loop's extent depends on another loop
  visit(total, [&](const VarNode& var) {
    is_known = is_known && std::any_of(func.parameters.begin(), func.parameters.end(),
                                       [&](const Var& parameter) { return parameter.get() == &var; });
  });
  return is_known ? total : Expr(0);
}

Expr flops_of(const Graph& graph, const Node& node) {
  if (node.op->kind == OpKind::view || node.op->kind == OpKind::injective) return 0;
  if (!node.regions.empty()) {  // of branches the dearer one
    Expr most = 0;
    for (const Graph& region : node.regions) {
      Expr flops = 0;
      for (const Node& inner : region.nodes) flops = flops + flops_of(region, inner);
      most = max(most, flops);
    }
    return simplify(is_loop(node) ? most * steps_of(node) : most);
  }
  if (is_item(node)) return 0;
  const OpCall call = make_call(graph, node);
  std::vector<te::Tensor> inputs, placeholders;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs.push_back(call.has_input(i)
                         ? te::placeholder("x" + std::to_string(i), call.inputs[i].shape, call.inputs[i].dtype)
                         : te::Tensor());
    if (call.has_input(i)) placeholders.push_back(inputs.back());
  }
  return flops_of(te::make_func(node.op->name, placeholders, node.op->compute(call, inputs), variables_of(graph)));
}

}  // namespace tw::relay
