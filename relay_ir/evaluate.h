// Graphs by the oracle: each node by the interpreter of its mathematics, control flow as its operators say.
#pragma once

#include <unordered_map>
#include <vector>

#include "relay_ir/graph.h"

namespace tw::relay {

// Every value of the graph for these inputs; undefined where nothing is computed.  Open dimensions are as the inputs
// say, or as `symbols` does.  Without the last of them, a graph's random state is that of the first run with seed 0.
std::vector<NDArray> evaluate_values(const Graph& graph, const std::vector<NDArray>& inputs,
                                     std::unordered_map<Var, Expr> symbols = {});
// The graph's outputs.
std::vector<NDArray> evaluate(const Graph& graph, const std::vector<NDArray>& inputs,
                              std::unordered_map<Var, Expr> symbols = {});

}  // namespace tw::relay
