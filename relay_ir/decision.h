// What a pass of graphs could do in several ways with a node: asked as templates ask with Schedule::decide
// (schedule/decisions.h), and answered by analysis where nobody decides otherwise.  PassContext::decide (pass.h) asks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "relay_ir/graph.h"
#include "relay_ir/precision.h"

namespace tw::relay {

struct GraphDecision {
  std::string node;  // by name: the first, where it is about several
  // Their mathematics by itself, row-major, without the values of its constants; the decision's name, and a precision
  // other than f32, are attributes: what a choice is stored for.
  Func func;
  AskedDecision asked;  // every candidate is admissible: it rounds as well as the pass demands
  std::string group;    // in a CompileReport: the steps that compute the node have this name
};

// By analysis alone a way is taken if it needs less than this of the plain one's predicted time.
constexpr double least_gain = 0.9;
// The fastest of the ways, of which the first is the plain one.
Choice fastest_way(const std::vector<Candidate>& ways, double share_of_plain = least_gain);

// Gives one of the candidates' values.
using DecisionSource = std::function<Choice(const GraphDecision&)>;

// `nodes`: of the graph, in order; the last one's results alone are used elsewhere.  `precision`: as in PassContext.
GraphDecision make_decision(const Graph& graph, const std::vector<size_t>& nodes, AskedDecision asked,
                            Precision precision);

// Whether the Func is a decision's, and no kernel.
bool is_of_decision(const Func& func);

}  // namespace tw::relay
