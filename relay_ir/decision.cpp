#include "relay_ir/decision.h"

#include <algorithm>

#include "relay_ir/compile/group.h"

namespace tw::relay {
namespace {

constexpr char name_attribute[] = "decision";

}  // namespace

Choice fastest_way(const std::vector<Candidate>& ways, double share_of_plain) {
  const auto best = std::ranges::min_element(ways, {}, &Candidate::cost);
  return best->cost < share_of_plain * ways.front().cost ? best->value : ways.front().value;
}

bool is_of_decision(const Func& func) {
  return func.attributes.count(name_attribute) > 0;
}

GraphDecision make_decision(const Graph& graph, const std::vector<size_t>& nodes, AskedDecision asked,
                            Precision precision) {
  const std::string& first = graph.nodes[nodes.front()].name;
  const Group alone = group_of(graph, {nodes.begin(), nodes.end()}, first);
  GraphDecision decision{first, lower_group(graph, alone), std::move(asked), {}};
  decision.func.attributes[name_attribute] = decision.asked.name;
  if (precision != Precision::f32) decision.func.attributes["precision"] = to_string(precision);  // other ways compete
  return decision;
}

}  // namespace tw::relay
