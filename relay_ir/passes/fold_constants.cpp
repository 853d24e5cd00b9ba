// Nodes whose inputs are all constants become constants.
//
//   t = transpose(w) {perm = [1, 0]}; y = matmul(x, t)   ⇒   y = matmul(x, t'), t' the transposed constant
//
// So does a range whose dimensions are numbers.  Small ones by the oracle.  Large ones are compiled for this machine
// and run, all of them as one graph.
#include <algorithm>

#include "relay_ir/compile/compile.h"
#include "relay_ir/op.h"
#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

constexpr int64_t max_oracle_elements = 1 << 13;
constexpr int64_t max_grown_elements = 1 << 20;  // results that are larger than their inputs stay computed

class ConstantFolder {
 public:
  explicit ConstantFolder(const Graph& graph) : graph_(graph), is_deferred_(graph.values.size()) {}

  Graph run() {
    std::vector<bool> is_folded;
    for (const Node& node : graph_.nodes) is_folded.push_back(fold(node));
    if (!deferred_.empty()) evaluate_deferred(is_folded);
    GraphCopy copy(graph_);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!is_folded[i] && !is_met(graph_.nodes[i])) copy.copy(graph_.nodes[i]);
    }
    return copy.finish();
  }

 private:
  NDArray known(ValueId id) const { return id == no_value ? NDArray() : *graph_.values[id].constant; }

  // Whether it demands what is known to be so.
  bool is_met(const Node& node) const {
    if (!node.op->is_demand || !graph_.is_constant(node.inputs[0])) return false;
    return graph_.values[node.inputs[0]].constant->get_int(0) == as_int(number_of(node));
  }

  bool fold(const Node& node) {
    if (node.attributes.are_open() || !node.regions.empty()) return false;
    int64_t in = 0, out = 0;
    if (is_item(node) || node.op->is_on_host) return false;
    bool is_now = true;
    for (const ValueId id : node.inputs) {
      if (id == no_value) continue;
      if (!graph_.is_constant(id) && !is_deferred_[id]) return false;
      const auto shape = static_shape(graph_.values[id].type);
      if (!shape) return false;
      in += element_count(*shape);
      is_now = is_now && !is_deferred_[id];
    }
    for (const ValueId id : node.outputs) {
      const auto shape = static_shape(graph_.values[id].type);
      if (!shape) return false;
      out += element_count(*shape);
    }
    if (out > 2 * in && out > max_grown_elements) return false;
    const OpKind kind = node.op->kind;
    if (kind == OpKind::view && is_now) {
      graph_.values[node.outputs[0]].constant = view(node);
      return true;
    }
    const bool is_small = in + out <= max_oracle_elements && kind != OpKind::contraction && kind != OpKind::composite;
    if (is_now && is_small) {
      std::vector<NDArray> arrays;
      for (const ValueId id : node.inputs) arrays.push_back(known(id));
      const auto results = evaluate_op(*node.op, node.attributes, arrays);
      for (size_t i = 0; i < results.size(); ++i) graph_.values[node.outputs[i]].constant = results[i];
      return true;
    }
    deferred_.push_back(&node);
    for (const ValueId id : node.outputs) is_deferred_[id] = true;
    return true;
  }

  // The same storage under another type.
  NDArray view(const Node& node) const {
    const NDArray input = known(node.inputs[0]);
    const TensorType& type = graph_.values[node.outputs[0]].type;
    return NDArray(type.dtype, *static_shape(type), const_cast<void*>(input.data()),
                   std::make_shared<const NDArray>(input));
  }

  // The deferred nodes as a graph of their own, whose inputs are what is known.
  void evaluate_deferred(const std::vector<bool>& is_folded) {
    const Uses uses(graph_);
    const auto is_wanted = [&](ValueId id) {
      const auto& users = uses.users[id];
      return uses.is_output[id] || std::any_of(users.begin(), users.end(), [&](int user) { return !is_folded[user]; });
    };
    Graph program;
    program.name = "constants";
    std::vector<ValueId> map(graph_.values.size(), no_value), results;
    std::vector<NDArray> inputs;
    for (const Node* node : deferred_) {
      std::vector<ValueId> arguments;
      for (const ValueId id : node->inputs) {
        if (id != no_value && map[id] == no_value) {
          map[id] = program.add_value(graph_.values[id].name, graph_.values[id].type);
          program.inputs.push_back(map[id]);
          inputs.push_back(known(id));
        }
        arguments.push_back(id == no_value ? no_value : map[id]);
      }
      const auto outputs = program.add_node(*node->op, arguments, node->attributes, node->name);
      for (size_t i = 0; i < outputs.size(); ++i) {
        map[node->outputs[i]] = outputs[i];
        if (!is_wanted(node->outputs[i])) continue;
        program.outputs.push_back(outputs[i]);
        results.push_back(node->outputs[i]);
      }
    }
    if (results.empty()) return;
    const std::vector<NDArray> values = compile(program, parse_target("cpu")).run(inputs);
    for (size_t i = 0; i < results.size(); ++i) graph_.values[results[i]].constant = values[i];
  }

  Graph graph_;                    // in which results become constants as they are known
  std::vector<bool> is_deferred_;  // by ValueId
  std::vector<const Node*> deferred_;
};

}  // namespace

Graph fold_constants(const Graph& graph) {
  return ConstantFolder(graph).run();
}

}  // namespace tw::relay
