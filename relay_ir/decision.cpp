#include "relay_ir/decision.h"

#include "relay_ir/compile.h"

namespace tw::relay {

GraphDecision make_decision(const Graph& graph, size_t node, std::string name, std::vector<Candidate> candidates,
                            size_t analytic) {
  const Node& made = graph.nodes[node];
  Group alone{{static_cast<int>(node)}, {}, made.outputs, made.name};
  for (const ValueId id : made.inputs)
    if (id != no_value) alone.inputs.push_back(id);
  GraphDecision decision{made.name, lower_group(graph, alone), {std::move(name), std::move(candidates)}, {}};
  decision.func.attributes["decision"] = decision.asked.name;
  decision.asked.analytic = decision.asked.chosen = analytic;
  return decision;
}

}  // namespace tw::relay
