// The same operator on the same inputs with the same attributes is computed once; equal constants are one.
//
//   a = exp(x); b = exp(x); c = a + b   ⇒   a = exp(x); c = a + a
#include <map>
#include <utility>

#include "relay_ir/equal_constants.h"
#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/printer.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {

Graph eliminate_common(const Graph& graph) {
  GraphCopy copy(graph);
  EqualConstants equal;
  std::map<std::pair<const void*, std::string>, ValueId> constants;  // by data and type
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const auto& constant = graph.values[id].constant;
    if (!constant) continue;
    const auto [found, is_new] =
        constants.emplace(std::pair(equal.first_equal(*constant).data(), to_string(type_of(*constant))), no_value);
    if (is_new) found->second = copy[static_cast<ValueId>(id)];
    copy.set(static_cast<ValueId>(id), found->second);
  }
  std::map<std::pair<const OpDef*, std::string>, const Node*> known;
  for (const Node& node : graph.nodes) {
    std::string key;
    for (const ValueId id : node.inputs) key += " " + std::to_string(copy[id]);
    for (const auto& [name, value] : node.attributes.all()) key += " " + name + "=" + attribute_text(value);
    key += " " + tw::to_text(node.decisions);
    for (const Graph& region : node.regions) key += "\n" + to_text(region);
    const auto [first, is_new] = known.emplace(std::pair(node.op, key), &node);
    if (is_new || is_item(node)) copy.copy(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) copy.set(node.outputs[i], copy[first->second->outputs[i]]);
  }
  return copy.finish();
}

}  // namespace tw::relay
