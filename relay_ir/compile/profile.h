// A model for some sizes of its open dimensions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "relay_ir/graph.h"
#include "tensor_ir/dimension.h"

namespace tw::relay {

struct SizeRange {
  int64_t low = 1, high = 1;                      // both included
  std::optional<int64_t> typical = std::nullopt;  // that matters most
};
// By name of an open dimension: what its size is held to.  Dimensions that it does not name stay as they are.
using Profile = std::map<std::string, SizeRange>;
std::string to_string(const Profile& profile);  // "batch=1, seq=1..64"

struct SpecialGraph {
  Graph graph;                         // the same inputs, outputs and nodes; dimensions of one size are numbers
  std::vector<DimensionBounds> sizes;  // by symbol of the model: for which it is
};
// What the profile says, and what follows from it by the model's equalities; every other dimension has an element or
// more, and so has one whose range begins at 0.  Error(shape): the model has no such dimension, or cannot have that
// size.  `others_may_be_empty`: unless that is said.
SpecialGraph specialise(const Graph& model, const Profile& profile, bool others_may_be_empty = false);

// The model for runs in which every open dimension has an element.
Graph with_elements(const Graph& model);
// Whether 0 is one of its sizes.
bool may_be_empty(const Var& symbol);

}  // namespace tw::relay
