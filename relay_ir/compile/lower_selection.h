// Channels that are put together from several values: selections and concatenations along axis 1 of values in blocks of
// channels, with the elementwise operators behind them.
#pragma once

#include <unordered_map>

#include "relay_ir/compile/group.h"
#include "tensor_ir/te.h"

namespace tw::relay {

// Whether the node is of this kind: its result and its inputs are stored in blocks.
bool is_blocked_selection(const Graph& graph, const Node& node);

// The group is such a node and elementwise ones of its result's shape.  Each run of channels is computed by a
// block of its own, in one nest over the positions; runs are cut where they would cross a block of the layout.
// `tensors`: placeholders of what the group reads; `inputs`: those that are buffers of the Func, in order.
Func lower_selection(const Graph& graph, const Group& group, std::unordered_map<ValueId, te::Tensor> tensors,
                     const std::vector<te::Tensor>& inputs);

}  // namespace tw::relay
