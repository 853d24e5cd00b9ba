#include "relay_ir/verify.h"

#include <algorithm>
#include <unordered_set>

#include "relay_ir/op.h"
#include "runtime/plan/plan.h"
#include "tensor_ir/match.h"

namespace tw::relay {

namespace {

// Whether all sizes in the node are made of what is known there.
bool is_in_scope(const Graph& graph, const Node& node, const std::unordered_set<Var>& known) {
  const auto all_known = [&](const std::vector<Expr>& dims) {
    return std::all_of(dims.begin(), dims.end(), [&](const Expr& dim) {
      if (as_int(dim)) return true;
      const auto vars = free_vars(dim);
      return std::all_of(vars.begin(), vars.end(), [&](const Var& var) { return known.count(var) > 0; });
    });
  };
  for (const auto& [name, value] : node.attributes.all()) {
    const auto* dims = std::get_if<std::vector<Expr>>(&value);
    if (dims && !all_known(*dims)) return false;
  }
  return std::all_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return all_known(graph.values[id].type.shape); });
}

}  // namespace

void verify(const Graph& graph) {
  std::string problems;
  auto require = [&](bool holds, const std::string& what) {
    if (!holds) problems += "\n  " + what;
  };
  const auto count = static_cast<ValueId>(graph.values.size());
  auto is_value = [&](ValueId id) { return id >= 0 && id < count; };
  std::vector<bool> is_defined(graph.values.size(), false);
  std::unordered_set<std::string> value_names, node_names;
  for (ValueId id = 0; id < count; ++id) {
    const Value& value = graph.values[id];
    require(value_names.insert(value.name).second, "two values are called `" + value.name + "`");
    if (value.channel_block > 0) {
      require(value.type.rank() >= 2, "`" + value.name + "` has a blocked layout, but no second axis");
    }
    if (!value.constant) continue;
    is_defined[id] = true;
    require(type_of(*value.constant) == value.type, "constant `" + value.name + "` is not of its type");
  }
  for (const ValueId id : graph.inputs) {
    if (!is_value(id)) {
      require(false, "an input is no value");
      continue;
    }
    require(!is_defined[id], "input `" + graph.values[id].name + "` is defined twice");
    is_defined[id] = true;
  }
  std::unordered_set<Var> known(graph.symbols.begin(), graph.symbols.end());
  for (const Node& node : graph.nodes) {
    const std::string label = "node `" + node.name + "`";
    require(node_names.insert(node.name).second, "two nodes are called `" + node.name + "`");
    if (!node.op) {
      require(false, label + " has no operator");
      continue;
    }
    bool is_sound = true;
    for (const ValueId id : node.inputs) {
      const bool holds = id == no_value || (is_value(id) && is_defined[id]);
      require(holds, label + " uses " + (is_value(id) ? "`" + graph.values[id].name + "`" : "what is no value") +
                         " before it is defined");
      is_sound = is_sound && holds;
    }
    for (const ValueId id : node.outputs) {
      if (!is_value(id) || is_defined[id]) {
        require(false, label + " defines a value that is not its own");
        is_sound = false;
        continue;
      }
      is_defined[id] = true;
    }
    if (!is_sound) continue;
    for (const Var& number : numbers_read_by(graph, node)) known.insert(number);
    require(is_in_scope(graph, node, known), label + " has a size that is not known there");
    const OpCall call = make_call(graph, node);
    NodeAttributes attributes = node.attributes;
    try {
      require_open(*node.op, node.decisions);
      const auto types =
          infer_types(*node.op, call.inputs, call.present, call.constants, attributes, graph.equalities, node.regions);
      require(types.size() == call.outputs.size(), label + " has another number of results");
      for (size_t i = 0; i < types.size() && i < call.outputs.size(); ++i) {
        require(types[i] == call.outputs[i], label + ": result " + std::to_string(i) + " is " + to_string(types[i]) +
                                                 ", not " + to_string(call.outputs[i]));
      }
    } catch (const Error& error) {
      require(false, label + ": " + error.what());
    }
    for (const Graph& region : node.regions) {
      try {
        verify(region);
      } catch (const Error& error) {
        require(false, label + ": " + error.message());
      }
    }
    if (node.op->kind == OpKind::view) {
      require(graph.values[node.inputs[0]].channel_block == 0 && graph.values[node.outputs[0]].channel_block == 0,
              label + " is a view of a value in a blocked layout");
    }
  }
  for (const ValueId id : graph.outputs) {
    require(is_value(id) && is_defined[id], "an output is not defined");
    if (is_value(id)) require(graph.values[id].channel_block == 0, "output `" + graph.values[id].name + "` is blocked");
  }
  for (const ValueId id : graph.inputs) {
    if (is_value(id)) require(graph.values[id].channel_block == 0, "input `" + graph.values[id].name + "` is blocked");
  }
  if (graph.has_random_state) {
    const bool holds = !graph.inputs.empty() && is_value(graph.inputs.back()) &&
                       graph.values[graph.inputs.back()].type == TensorType{u64, {Expr(2)}};
    require(holds, "the random state is no last input of type u64[2]");
  }
  const auto check_lists = [&](const std::vector<ListInfo>& lists, const std::vector<ValueId>& ids) {
    std::vector<TensorInfo> tensors;
    for (const ValueId id : ids)
      if (is_value(id)) tensors.push_back({"", graph.values[id].type.dtype, Shape(graph.values[id].type.shape.size())});
    const std::string problem = find_list_problem(lists, tensors);
    require(problem.empty(), problem);
  };
  check_lists(graph.input_lists, {graph.inputs.begin(), graph.inputs.begin() + graph.inputs_of_caller()});
  check_lists(graph.output_lists, graph.outputs);
  require(graph.output_names.empty() || graph.output_names.size() == graph.outputs.size(), "every output has a name");
  if (!problems.empty()) throw Error(ErrorCode::verify, "graph `" + graph.name + "`:" + problems);
}

}  // namespace tw::relay
