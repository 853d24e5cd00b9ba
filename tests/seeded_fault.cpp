#include "tests/seeded_fault.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"

namespace tw::python {
namespace {

using relay::Graph;
using relay::GraphCopy;
using relay::Node;
using relay::ValueId;

void wrong_constant(Graph& graph, Node& node) {
  for (const ValueId id : node.inputs) {
    if (!graph.is_constant(id) || !graph.values[id].name.starts_with(node.name + ".weight")) continue;
    NDArray& array = *graph.values[id].constant;
    array = array.clone();
    for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, array.get_float(i) * 1.01);
  }
}

void wrong_axis(Graph& graph, Node& node) {
  if (!node.attributes.has("axis")) return;
  const int64_t axis = node.attributes.get_int("axis"), rank = graph.values[node.inputs[0]].type.rank();
  node.attributes.set("axis", (axis < 0 ? axis + rank : axis) - 1);
}

void wrong_epsilon(Graph&, Node& node) {
  if (node.attributes.has("epsilon")) node.attributes.set("epsilon", 100 * node.attributes.get_float("epsilon"));
}

void swapped_operand(Graph&, Node& node) {
  if (node.inputs.size() == 2) std::swap(node.inputs[0], node.inputs[1]);
}

void error(Graph&, Node& node) {
  throw Error(ErrorCode::lower, "a fault of `" + node.name + "`");
}

void crash(Graph&, Node&) {
  std::abort();
}

void hang(Graph&, Node&) {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

Graph wrong_rounding(const Graph& graph, const std::string& name) {
  GraphCopy copy(graph);
  for (const Node& node : graph.nodes) {
    copy.copy(node);
    if (!relay::is_named(node, {name})) continue;
    ValueId value = copy[node.outputs[0]];
    for (const char* type : {"bf16", "f32"})
      value = copy.to().add_node("cast", {value}, relay::attributes_of({{"to", std::string(type)}}))[0];
    copy.set(node.outputs[0], value);
  }
  return copy.finish();
}

struct Fault {
  std::string_view name, pass;
  void (*change)(Graph&, Node&);  // null: wrong_rounding, which makes other nodes
};

constexpr Fault faults[] = {
    {"wrong_constant", "fold_batch_norm", wrong_constant},
    {"wrong_rounding", "eliminate_common", nullptr},
    {"wrong_axis", "hoist_slices", wrong_axis},
    {"wrong_epsilon", "recognise", wrong_epsilon},
    {"swapped_operand", "merge_projections", swapped_operand},
    {"error", "merge_projections", error},
    {"crash", "merge_projections", crash},
    {"hang", "merge_projections", hang},
};

}  // namespace

Graph with_seeded_fault(std::string_view pass, Graph graph) {
  const char* variable = std::getenv("TW_FAULT");
  const std::string wanted = variable ? variable : "";
  const size_t at = wanted.find('@');
  if (at == std::string::npos) return graph;
  const std::string name = wanted.substr(at + 1);
  for (const Fault& fault : faults) {
    if (pass != fault.pass || wanted.substr(0, at) != fault.name) continue;
    if (!fault.change) return wrong_rounding(graph, name);
    for (Node& node : graph.nodes)
      if (relay::is_named(node, {name})) fault.change(graph, node);
  }
  return graph;
}

}  // namespace tw::python
