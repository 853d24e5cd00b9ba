// Checks the invariants of graphs: single assignment, topological order, known operators, types as inferred, unique
// names, layouts only where they fit.  Error(verify) names every violation.
#pragma once

#include "relay_ir/graph.h"

namespace tw::relay {

void verify(const Graph& graph);

}  // namespace tw::relay
