// The plan of a whole network: one step or more for each group, in their order.
#pragma once

#include <vector>

#include "relay_ir/compile/aliases.h"
#include "relay_ir/compile/plan_maker.h"

namespace tw::relay {

// `funcs`: the different ones; `func_of`: by group.
Plan plan_network(const Graph& graph, const std::vector<Group>& groups, const Aliases& aliases,
                  const std::vector<ScheduledFunc>& funcs, const std::vector<size_t>& func_of, const Target& target,
                  ConstantPool& constants);

}  // namespace tw::relay
