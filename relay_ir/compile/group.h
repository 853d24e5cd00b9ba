// Groups of nodes, and the mathematics of each as one Func.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "relay_ir/graph.h"

namespace tw::relay {

// A set of nodes that become one Func: at most one contraction or composite, with the elementwise and injective
// operators around it.
struct Group {
  std::vector<int> nodes;  // indices into the graph's, in order
  std::vector<ValueId> inputs, outputs;
  std::map<ValueId, ValueId> copies = {};  // outputs that are other values once more
  std::string name;                        // "conv1+relu1"
};
// `unfused`: names of nodes (is_named) whose values and operands are stored, whatever that costs.
std::vector<Group> fuse(const Graph& graph, const std::set<std::string>& unfused = {});

// These nodes, in order: what they read of others, and the last one's results.
Group group_of(const Graph& graph, std::vector<int> nodes, std::string name);

// The node that the group is, where no kernel computes it: of control flow, or a function of the host; null: another.
const Node* control_of(const Graph& graph, const Group& group);

// By buffer of the group's Func: inputs but constants of one element, which are code; then outputs.
std::vector<ValueId> buffer_values(const Graph& graph, const Group& group);

// The group's mathematics, of buffers in the layout in which they are stored.
Func lower_group(const Graph& graph, const Group& group);

}  // namespace tw::relay
