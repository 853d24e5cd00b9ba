// Selections of channels alone in their group.
#pragma once

#include <unordered_map>

#include "relay_ir/graph.h"
#include "tensor_ir/te.h"

namespace tw::relay {

// Each run is copied to its place by blocks of its own.  Values in blocks of channels are walked position by position:
// pieces of runs that cross no block are copied one after the other.  `inputs`: the buffers of the Func, in order;
// `tensors`: those that the node reads.
Func lower_selection(const Graph& graph, const Node& node, const std::unordered_map<ValueId, te::Tensor>& tensors,
                     const std::vector<te::Tensor>& inputs);

}  // namespace tw::relay
