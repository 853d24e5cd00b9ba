// The passes of compile(), in their order.
#include <algorithm>

#include "relay_ir/compile/compile.h"
#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

// The source's choice, or analysis's; `decisions` knows of both.
Choice decide(GraphDecision decision, const DecisionSource& source, std::vector<GraphDecision>* decisions) {
  AskedDecision& asked = decision.asked;
  if (source) {
    const Choice choice = source(decision);
    const auto is_chosen = [&](const Candidate& candidate) { return candidate.value == choice; };
    const auto found = std::find_if(asked.candidates.begin(), asked.candidates.end(), is_chosen);
    check(found != asked.candidates.end(), "optimise: a choice is one of the candidates");
    asked.chosen = static_cast<size_t>(found - asked.candidates.begin());
  }
  const Choice chosen = asked.candidates[asked.chosen].value;
  if (decisions) decisions->push_back(std::move(decision));
  return chosen;
}

}  // namespace

Graph optimise(const Graph& graph, const Target& target, const CompileOptions& options,
               std::vector<GraphDecision>* decisions) {
  const DecisionSource asked = [&](const GraphDecision& decision) {
    return decide(decision, options.decide, decisions);
  };
  return run_passes(graph, {target, options.precision, options.winograd, options.in_place, asked});
}

}  // namespace tw::relay
