// A group's nodes as one unscheduled Func: placeholders for what comes from outside, each node's tensor expression on
// top. Buffers have names by position, so that equal work of different layers is an equal Func.
#include <unordered_map>

#include "relay_ir/compile.h"
#include "relay_ir/layout.h"
#include "relay_ir/op.h"

namespace tw::relay {
namespace {

// A known single number is part of the code.
std::optional<Expr> immediate(const Value& value) {
  if (!value.constant || value.constant->size() != 1) return std::nullopt;
  const DType dtype = value.type.dtype;
  return dtype.is_float() ? float_imm(dtype, value.constant->get_float(0)) : int_imm(dtype, value.constant->get_int(0));
}

}  // namespace

bool is_immediate(const Graph& graph, ValueId id) {
  return graph.is_constant(id) && graph.values[id].constant->size() == 1;
}

Func lower_group(const Graph& graph, const Group& group) {
  std::unordered_map<ValueId, te::Tensor> tensors;
  std::vector<te::Tensor> inputs;
  std::vector<std::string> constants;
  for (const ValueId id : group.inputs) {
    const Value& value = graph.values[id];
    if (const auto number = immediate(value)) {
      tensors[id] = te::compute("number", value.type.shape, {}, [&](const te::Indices&) { return *number; });
      continue;
    }
    const std::string name = (value.constant ? "w" : "x") + std::to_string(inputs.size());
    inputs.push_back(te::placeholder(name, value.type.shape, value.type.dtype));
    tensors[id] = inputs.back();
    if (value.constant) constants.push_back(name);
  }
  for (const int index : group.nodes) {
    const Node& node = graph.nodes[index];
    std::vector<te::Tensor> arguments;
    for (const ValueId id : node.inputs) arguments.push_back(id == no_value ? te::Tensor() : tensors.at(id));
    const std::vector<te::Tensor> results = node.op->compute(make_call(graph, node), arguments);
    check(results.size() == node.outputs.size(), "lower_group: an operator computes all of its results");
    for (size_t i = 0; i < results.size(); ++i) {
      check(results[i].dtype() == graph.values[node.outputs[i]].type.dtype,
            "lower_group: an operator computes what it infers");
      tensors[node.outputs[i]] = results[i];
    }
  }
  std::vector<te::Tensor> outputs;
  for (const ValueId id : group.outputs) outputs.push_back(tensors.at(group.nodes.empty() ? group.inputs[0] : id));
  const std::string name = group.nodes.empty() ? "copy" : graph.nodes[group.nodes.front()].op->name;
  Func func = te::make_func(name, inputs, outputs, graph.symbols);
  for (const std::string& constant : constants) func.attributes["constant:" + constant] = int64_t{1};
  return apply_layouts(graph, group, func);
}

}  // namespace tw::relay
