// How much arithmetic there is, for `explain` and for profiles.
#pragma once

#include <optional>

#include "relay_ir/graph.h"
#include "tensor_ir/ir.h"

namespace tw::relay {

// Floating-point operations of an unscheduled Func: every add, multiply, compare … and mathematical function counts as
// one. Nothing when an extent is symbolic.
std::optional<double> flops_of(const Func& func);
std::optional<double> flops_of(const Graph& graph, const Node& node);

}  // namespace tw::relay
