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
// What the profile says, and what follows from it by the model's equalities.  Error(shape): the model has no such
// dimension, or cannot have that size.
SpecialGraph specialise(const Graph& model, const Profile& profile);

}  // namespace tw::relay
