// A group's nodes as one unscheduled Func: placeholders for what comes from outside, each node's tensor expression on
// top. Buffers have names by position, so that equal work of different layers is an equal Func.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "relay_ir/compile/group.h"
#include "relay_ir/compile/layout.h"
#include "relay_ir/compile/lower_selection.h"
#include "relay_ir/in_place.h"
#include "relay_ir/op.h"
#include "relay_ir/ops/loops.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

// A known single number is part of the code.
std::optional<Expr> immediate(const Value& value) {
  if (!value.constant || value.constant->size() != 1) return std::nullopt;
  const NDArray stored = value.constant->stored();
  const DType dtype = stored.dtype();
  return dtype.is_float() ? float_imm(dtype, stored.get_float(0)) : int_imm(dtype, stored.get_int(0));
}

// In row-major order a part is rows of neighbours: what is before the axis, and the axis with all behind it.
std::vector<Expr> rows_of(const std::vector<Expr>& shape, size_t axis) {
  std::vector<Expr> rows = {Expr(1), Expr(1)};
  for (size_t d = 0; d < shape.size(); ++d) rows[d >= axis] = rows[d >= axis] * shape[d];
  return rows;
}

// A concatenation alone: each part is copied to its place by a block of its own, but for the first one where the result
// lies in its place.  (Within other work it is an expression that selects, element by element.)
Func lower_concat(const Graph& graph, const Node& node, const std::unordered_map<ValueId, te::Tensor>& tensors,
                  const std::vector<te::Tensor>& inputs) {
  const TensorType& type = graph.values[node.outputs[0]].type;
  const auto axis = static_cast<size_t>(joined_axis(graph, node));
  const bool is_row_major = graph.values[node.outputs[0]].channel_block == 0 &&
                            std::all_of(node.inputs.begin(), node.inputs.end(),
                                        [&](ValueId id) { return graph.values[id].channel_block == 0; });
  const auto stored = [&](const std::vector<Expr>& shape) { return is_row_major ? rows_of(shape, axis) : shape; };
  Func func;
  func.name = "concat";
  std::unordered_map<Buffer, Buffer> stored_input;
  for (const te::Tensor& input : inputs) {
    const Buffer& buffer = input.buffer();
    BufferNode node = *buffer.get();
    node.shape = stored(buffer->shape);
    func.buffers.emplace_back(std::move(node));
    stored_input[buffer] = func.buffers.back();
  }
  const Buffer output("concat", type.dtype.stored(), stored(type.shape));
  std::vector<Stmt> statements;
  Expr offset(0);
  for (size_t part = 0; part < node.inputs.size(); ++part) {
    const ValueId id = node.inputs[part];
    const std::vector<Expr> shape = stored(graph.values[id].type.shape);
    const size_t stored_axis = is_row_major ? 1 : axis;
    const Expr begin = offset;
    offset = offset + shape[stored_axis];
    if (is_const_int(shape[stored_axis], 0) || (part == 0 && is_in_place(node))) continue;
    statements.push_back(loops_over(shape, [&](const te::Indices& loops) {
      std::vector<IterVar> iters;
      te::Indices from;
      for (size_t d = 0; d < shape.size(); ++d) {
        const Var iter("vi" + std::to_string(d));
        iters.push_back({iter, shape[d], IterKind::spatial, loops[d]});
        from.push_back(iter);
      }
      te::Indices to = from;
      to[stored_axis] = to[stored_axis] + begin;
      const auto number = immediate(graph.values[id]);
      const Expr value = number ? *number : load(stored_input.at(tensors.at(id).buffer()), from);
      return make_stmt<Block>("concat_" + std::to_string(part), iters, Expr(), Stmt(), store(output, to, value));
    }));
  }
  func.buffers.push_back(output);
  func.output_count = 1;
  func.parameters = variables_of(graph);
  func.body = seq(std::move(statements));
  return func;
}

// In place: the writes alone, to a result that holds the first argument.
std::vector<te::Tensor> compute_node(const OpCall& call, bool is_in_place, const std::vector<te::Tensor>& arguments) {
  if (!is_in_place) return call.op.compute(call, arguments);
  const TensorType& type = call.outputs[0];
  std::vector<te::Tensor> present;
  std::copy_if(arguments.begin(), arguments.end(), std::back_inserter(present),
               [](const te::Tensor& argument) { return argument.is_defined(); });
  return te::opaque(call.op.name, present, {{type.dtype.stored(), type.shape}}, [&](const std::vector<Buffer>& result) {
    return call.op.facts.update(call, arguments, result[0]);
  });
}

// Of a loop's steps many do not depend on their number.
Func with_used_parameters(Func func) {
  std::unordered_set<const ExprNode*> used;
  const auto note = [&](const VarNode& var) { used.insert(&var); };
  visit(func.body, note);
  for (const Buffer& buffer : func.buffers)
    for (const Expr& extent : buffer->shape) visit(extent, note);
  std::erase_if(func.parameters, [&](const Var& parameter) { return used.count(parameter.get()) == 0; });
  return func;
}

Func lower_nodes(const Graph& graph, const Group& group);

}  // namespace

std::vector<ValueId> buffer_values(const Graph& graph, const Group& group) {
  std::vector<ValueId> values;
  for (const ValueId id : group.inputs) {
    if (!immediate(graph.values[id])) values.push_back(id);
  }
  values.insert(values.end(), group.outputs.begin(), group.outputs.end());
  return values;
}

Func lower_group(const Graph& graph, const Group& group) {
  Func func = with_used_parameters(lower_nodes(graph, group));
  std::string schedules;
  for (const int n : group.nodes) {
    const NodeAttributes& attributes = graph.nodes[n].attributes;
    if (!attributes.has("schedule") || attributes.get_string("schedule").empty()) continue;
    schedules += (schedules.empty() ? "" : "\n") + attributes.get_string("schedule");
  }
  if (!schedules.empty()) func.attributes["schedules"] = schedules;
  return func;
}

namespace {

Func lower_nodes(const Graph& graph, const Group& group) {
  std::unordered_map<ValueId, te::Tensor> tensors;
  std::vector<te::Tensor> inputs;
  for (const ValueId id : group.inputs) {
    const Value& value = graph.values[id];
    if (const auto number = immediate(value)) {
      tensors[id] = te::compute("number", value.type.shape, {}, [&](const te::Indices&) { return *number; });
      continue;
    }
    BufferNode node;
    node.name = (value.constant ? "w" : "x") + std::to_string(inputs.size());
    node.dtype = value.type.dtype.stored(), node.shape = value.type.shape;
    node.is_constant = value.constant.has_value();
    inputs.push_back(te::placeholder(Buffer(std::move(node))));
    tensors[id] = inputs.back();
  }
  const bool has_selection = std::any_of(group.nodes.begin(), group.nodes.end(),
                                         [&](int index) { return is_blocked_selection(graph, graph.nodes[index]); });
  if (has_selection) return apply_layouts(graph, group, lower_selection(graph, group, tensors, inputs));
  if (group.nodes.size() == 1 && joins_whole(graph, graph.nodes[group.nodes[0]])) {
    return apply_layouts(graph, group, lower_concat(graph, graph.nodes[group.nodes[0]], tensors, inputs));
  }
  for (const int index : group.nodes) {
    const Node& node = graph.nodes[index];
    std::vector<te::Tensor> arguments;
    for (const ValueId id : node.inputs) arguments.push_back(id == no_value ? te::Tensor() : tensors.at(id));
    const std::vector<te::Tensor> results = compute_node(make_call(graph, node), is_in_place(node), arguments);
    check(results.size() == node.outputs.size(), "lower_group: an operator computes all of its results");
    for (size_t i = 0; i < results.size(); ++i) {
      check(results[i].dtype() == graph.values[node.outputs[i]].type.dtype.stored(),
            "lower_group: an operator computes what it infers");
      tensors[node.outputs[i]] = results[i];
    }
  }
  std::vector<te::Tensor> outputs;
  for (const ValueId id : group.outputs) {
    const auto copied = group.copies.find(id);
    outputs.push_back(tensors.at(copied == group.copies.end() ? id : copied->second));
  }
  const std::string name = group.nodes.empty() ? "copy" : graph.nodes[group.nodes.front()].op->name;
  return apply_layouts(graph, group, te::make_func(name, inputs, outputs, variables_of(graph)));
}

}  // namespace

}  // namespace tw::relay
