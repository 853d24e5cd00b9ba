// A part of a graph, or a graph with other outputs: for looking at values that a model does not give.
#pragma once

#include <vector>

#include "relay_ir/graph.h"

namespace tw::relay {

// Whether a caller can give the value: its sizes are known from the graph's inputs.
bool may_be_given(const Graph& graph, ValueId id);

// The graph whose outputs are `wanted`, called as these values are, and whose inputs are followed by those that are
// `given`: nodes read them in place of what is computed.  A value may be both: the output is what is computed of it.
//
//   a = exp(x); b = log(a); return b        given a, wanted a and b:
//                                     ⇒     a_1 = exp(x); b = log(a); return a_1 "a", b "b"
//
// Outputs are tensors, those that lists are made of too.  Error(input): a value that may not be given.
Graph cut(const Graph& graph, const std::vector<ValueId>& given, const std::vector<ValueId>& wanted);

}  // namespace tw::relay
