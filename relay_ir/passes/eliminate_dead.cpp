// What no output needs goes.  Inputs stay: they are the model's signature.
//
//   a = exp(x); b = log(x); return b   ⇒   b = log(x); return b
#include "relay_ir/pass.h"

namespace tw::relay {

Graph eliminate_dead(const Graph& graph) {
  const Uses uses(graph);
  std::vector<bool> is_needed(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    for (const ValueId id : graph.nodes[i].outputs) {
      if (uses.is_output[id]) is_needed[i] = true;
      for (const int user : uses.users[id]) {
        if (is_needed[user]) is_needed[i] = true;
      }
    }
  }
  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (is_needed[i]) copy.copy(graph.nodes[i]);
  }
  return copy.finish();
}

}  // namespace tw::relay
