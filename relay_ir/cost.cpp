#include "relay_ir/cost.h"

#include "relay_ir/op.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

// Operations of one execution of `s`, loops inside it multiplied out.
std::optional<double> count(const Stmt& s) {
  if (!s.is_defined()) return 0;
  if (const auto* loop = s.as<For>()) {
    const auto extent = as_int(loop->extent);
    const auto body = count(loop->body);
    if (!body) return std::nullopt;
    if (*body == 0) return 0;
    if (!extent) return std::nullopt;
    return static_cast<double>(*extent) * *body;
  }
  if (const auto* block = s.as<Block>()) return count(block->body);  // the init is one in a reduction's many
  double total = 0;
  bool is_known = true;
  for_each_child(
      s,
      [&](const Expr& e) {
        visit(
            e, [&](const Binary& b) { total += b.a.dtype().is_float() * b.a.dtype().lanes; },
            [&](const Unary& u) { total += u.dtype.is_float() * u.dtype.lanes; },
            [&](const Call& c) {
              total += c.dtype.is_float() * c.dtype.lanes * (c.intrinsic == Intrinsic::fma ? 2 : 1);
            });
      },
      [&](const Stmt& child) {
        const auto inner = count(child);
        is_known = is_known && inner;
        total += inner.value_or(0);
      });
  if (!is_known) return std::nullopt;
  return total;
}

}  // namespace

std::optional<double> flops_of(const Func& func) {
  return count(func.body);
}

std::optional<double> flops_of(const Graph& graph, const Node& node) {
  if (node.op->kind == OpKind::view || node.op->kind == OpKind::injective) return 0;
  const OpCall call = make_call(graph, node);
  std::vector<te::Tensor> inputs, placeholders;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs.push_back(call.has_input(i)
                         ? te::placeholder("x" + std::to_string(i), call.inputs[i].shape, call.inputs[i].dtype)
                         : te::Tensor());
    if (call.has_input(i)) placeholders.push_back(inputs.back());
  }
  return flops_of(te::make_func(node.op->name, placeholders, node.op->compute(call, inputs)));
}

}  // namespace tw::relay
