#include "relay_ir/in_place.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include "relay_ir/view.h"

namespace tw::relay {

DecisionDef in_place_decision() {
  return {"in_place", "1: the result is stored where the first input is"};
}

bool is_in_place(const Node& node) {
  return decided(node.decisions, "in_place") != 0;
}

bool overwrites(const Node& node) {
  return node.op->facts.update && is_in_place(node);
}

void order_groups(const Graph& graph, std::vector<Group>& groups) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), overwrites)) return;
  const std::vector<ValueId> seen = viewed_values(graph);  // an updated value is one of its own
  std::unordered_map<ValueId, size_t> made_by, overwritten_by;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const ValueId id : groups[g].outputs) made_by[seen[id]] = g;
    for (const int node : groups[g].nodes) {
      if (overwrites(graph.nodes[node])) overwritten_by[seen[graph.nodes[node].inputs[0]]] = g;
    }
  }
  std::vector<std::vector<size_t>> after(groups.size());
  std::vector<int> before(groups.size(), 0);  // how many groups must still come first
  const auto put_before = [&](size_t first, size_t second) {
    if (first == second) return;
    after[first].push_back(second);
    ++before[second];
  };
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const ValueId id : groups[g].inputs) {
      if (const auto maker = made_by.find(seen[id]); maker != made_by.end()) put_before(maker->second, g);
      if (const auto update = overwritten_by.find(seen[id]); update != overwritten_by.end()) {
        put_before(g, update->second);
      }
    }
  }
  // What a size is made of is read before it is used: groups after one that reads stay after it.
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].nodes.empty()) continue;
    const Node& node = graph.nodes[groups[g].nodes[0]];
    if (!is_item(node) || node.op->is_demand) continue;
    for (size_t later = g + 1; later < groups.size(); ++later) put_before(g, later);
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (before[g] == 0) ready.push(g);
  }
  std::vector<Group> ordered;
  while (!ready.empty()) {
    const size_t g = ready.top();
    ready.pop();
    for (const size_t next : after[g]) {
      if (--before[next] == 0) ready.push(next);
    }
    ordered.push_back(groups[g]);
  }
  if (ordered.size() < groups.size()) {
    std::string readers;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const ValueId id : groups[g].inputs) {
        const auto update = overwritten_by.find(seen[id]);
        if (update == overwritten_by.end() || update->second == g || before[g] == 0 || before[update->second] == 0)
          continue;
        readers += "\n  `" + groups[g].name + "` reads `" + graph.values[seen[id]].name + "`, which `" +
                   groups[update->second].name + "` overwrites";
      }
    }
    throw Error(ErrorCode::unsupported, "old elements are read by what needs the new ones, too:" + readers +
                                            "\n  help: leave these out of in_place; their values are the same, in "
                                            "arrays of their own");
  }
  groups = std::move(ordered);
}

}  // namespace tw::relay
