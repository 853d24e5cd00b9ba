// If, Loop, Scan, SequenceMap and FlexAttention: the rules of operators with graphs within them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/control.h"
#include "frontends/onnx/context.h"

namespace tw::frontends::onnx {

// Imports a graph within the node, at a place that names it, into the graph of ours that is built or, with `region`,
// into that one.  `inputs`: what its inputs are.  Gives its results; what it uses of outside is found by name.
using AddGraph = std::function<std::vector<ValueId>(const Graph& graph, const std::string& place, Region* region,
                                                    const std::vector<ValueId>& inputs)>;
// The nodes after this one, in a region that has these results of it.  Gives what is wanted of them, instead of the
// node's own results.
using AddRest =
    std::function<std::vector<ValueId>(const std::string& place, Region& region, const std::vector<ValueId>& results)>;
struct Surroundings {
  AddGraph add_graph;
  // A graph in the node's place, without inputs.
  std::function<std::vector<ValueId>(const Graph& graph)> replace;
  AddRest add_rest;
};
// `name`: of the node.
using ControlRule = std::vector<ValueId> (*)(Context& context, const std::string& name, const Surroundings& around);

// Null: no such operator has graphs within it.
ControlRule find_control_rule(std::string_view domain, std::string_view op_type);

// flex_attention.cpp
std::vector<ValueId> import_flex_attention(Context& context, const std::string& name, const Surroundings& around);

}  // namespace tw::frontends::onnx
