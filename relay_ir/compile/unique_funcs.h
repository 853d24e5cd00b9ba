// Groups that compute the same share one Func, which is scheduled and compiled once.
#pragma once

#include <unordered_map>
#include <vector>

#include "relay_ir/compile/group.h"

namespace tw::relay {

class UniqueFuncs {
 public:
  // The position of each group's Func among all().
  std::vector<size_t> add(const Graph& graph, const std::vector<Group>& groups, const Target& target);
  const std::vector<Func>& all() const { return funcs_; }

 private:
  std::vector<Func> funcs_;
  std::unordered_map<uint64_t, std::vector<size_t>> by_hash_;
};

}  // namespace tw::relay
