#include "frontends/onnx/names.h"

namespace tw::frontends::onnx {
namespace {

// Names that a graph's nodes use and that it does not define itself.
void add_captures(const Graph& graph, std::unordered_set<std::string_view>& into) {
  std::unordered_set<std::string_view> used, defined;
  for (const ValueInfo& input : graph.inputs) defined.insert(input.name);
  for (const Tensor& tensor : graph.initializers) defined.insert(tensor.name);
  for (const Node& node : graph.nodes) {
    used.merge(names_used(node));
    for (const std::string_view name : node.outputs) defined.insert(name);
  }
  for (const ValueInfo& output : graph.outputs) used.insert(output.name);
  for (const std::string_view name : used) {
    if (!defined.count(name)) into.insert(name);
  }
}

}  // namespace

std::unordered_set<std::string_view> names_used(const Node& node) {
  std::unordered_set<std::string_view> names;
  for (const std::string_view name : node.inputs) {
    if (!name.empty()) names.insert(name);
  }
  for (const Attribute& attribute : node.attributes) {
    if (attribute.graph) add_captures(*attribute.graph, names);
  }
  return names;
}

}  // namespace tw::frontends::onnx
