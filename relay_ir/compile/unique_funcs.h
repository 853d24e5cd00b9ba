// Groups that compute the same share one Func, which is scheduled and compiled once.
#pragma once

#include <vector>

#include "relay_ir/compile/group.h"

namespace tw::relay {

struct UniqueFuncs {
  std::vector<Func> funcs;
  std::vector<size_t> of_group;
};

UniqueFuncs find_unique_funcs(const Graph& graph, const std::vector<Group>& groups, const Target& target);

}  // namespace tw::relay
