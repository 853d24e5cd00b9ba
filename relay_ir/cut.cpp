#include "relay_ir/cut.h"

#include <algorithm>
#include <unordered_map>

#include "relay_ir/pass.h"

namespace tw::relay {

bool may_be_given(const Graph& graph, ValueId id) {
  const std::vector<Expr>& shape = graph.values[id].type.shape;
  return std::all_of(shape.begin(), shape.end(), [&](const Expr& dim) { return is_made_of(dim, graph.symbols); });
}

Graph cut(const Graph& graph, const std::vector<ValueId>& given, const std::vector<ValueId>& wanted) {
  Graph from = graph;
  from.outputs = wanted;
  from.output_names.clear(), from.output_lists.clear();
  for (const ValueId id : wanted) from.output_names.push_back(graph.values[id].name);
  GraphCopy copy(from);
  std::unordered_map<ValueId, ValueId> inputs;
  for (const ValueId id : given) {
    const Value& value = graph.values[id];
    if (!may_be_given(graph, id))
      throw Error(ErrorCode::input,
                  "`" + value.name + "` " + to_string(value.type) +
                      " cannot be given: only a run knows its sizes\n  help: cut the graph elsewhere");
    if (!inputs.emplace(id, copy.to().add_value(value.name, value.type)).second) continue;
    std::vector<ValueId>& all = copy.to().inputs;
    all.insert(all.end() - (graph.has_random_state ? 1 : 0), inputs[id]);
  }
  for (const Node& node : from.nodes) {
    std::vector<ValueId> operands;
    for (const ValueId id : node.inputs) {
      const auto found = inputs.find(id);
      operands.push_back(found == inputs.end() ? copy[id] : found->second);
    }
    copy.copy(node, std::move(operands));
  }
  return eliminate_dead(copy.finish());
}

}  // namespace tw::relay
