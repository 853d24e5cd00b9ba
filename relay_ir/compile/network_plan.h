// The plan of a whole network: one step or more for each group, in their order, and those of control around regions.
#pragma once

#include <vector>

#include "relay_ir/compile/plan_maker.h"
#include "relay_ir/compile/planned_graph.h"

namespace tw::relay {

// `funcs`: the different ones, of UniqueFuncs.
Plan plan_network(const PlannedGraph& planned, const std::vector<ScheduledFunc>& funcs, const Target& target,
                  ConstantPool& constants);

}  // namespace tw::relay
