// What has no elements needs nothing computed: only its shape is left.
//
//   y = matmul(x, w) : f32[0, n]   ⇒   y = broadcast_to(0) {shape = [0, n]}
//   y = loop(_, h …) of 0 steps    ⇒   y = h
#include <algorithm>

#include "relay_ir/op.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

NDArray scalar_zero(DType dtype) {
  NDArray zero(dtype, {});
  std::fill_n(static_cast<std::byte*>(zero.data()), zero.byte_size(), std::byte{0});
  return zero;
}

}  // namespace

bool has_no_elements(const TensorType& type) {
  return std::any_of(type.shape.begin(), type.shape.end(), [](const Expr& dim) { return is_const_int(dim, 0); });
}

Graph fold_empty(const Graph& graph) {
  GraphCopy copy(graph);
  const auto none_of = [&](ValueId id, const Node& node) {
    const Value& value = graph.values[id];
    NodeAttributes attributes;
    attributes.set("shape", value.type.shape);
    const ValueId zero = copy.to().add_constant(value.name + ".none", scalar_zero(value.type.dtype));
    const ValueId now = copy.to().add_node("broadcast_to", {zero}, std::move(attributes), node.name)[0];
    copy.to().rename_value(now, value.name);
    return now;
  };
  for (const Node& node : graph.nodes) {
    // Its region has nothing to work on.
    if (is_loop(node) && is_const_int(steps_of(node), 0)) {
      for (const LoopSize& size : sizes_of(node)) {
        const std::vector<Expr> values{size_before(graph, node, size)};
        const auto number = copy.to().add_node("sizes", {}, attributes_of({{"values", values}, {"shape", Shape{}}}));
        copy.to().add_node("item", number, attributes_of({{"number", std::vector<Expr>{size.behind}}}), node.name);
      }
      for (size_t i = 0; i < node.outputs.size(); ++i)
        copy.set(node.outputs[i], i < carried_by(node) ? copy[node.inputs[1 + i]] : none_of(node.outputs[i], node));
      continue;
    }
    const auto is_empty = [&](ValueId id) { return has_no_elements(graph.values[id].type); };
    const bool is_known =
        std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return graph.is_constant(id); });
    const bool says_numbers = !numbers_read_by(graph, node).empty();  // how many steps were done, say
    const bool has_elements = !std::all_of(node.outputs.begin(), node.outputs.end(), is_empty);
    if (node.outputs.empty() || is_known || says_numbers || has_elements) {
      copy.copy(node);
      continue;
    }
    for (const ValueId id : node.outputs) copy.set(id, none_of(id, node));
  }
  return copy.finish();
}

}  // namespace tw::relay
