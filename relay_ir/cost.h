// How much arithmetic there is, for `explain` and for profiles.
#pragma once

#include <optional>

#include "relay_ir/graph.h"
#include "tensor_ir/ir.h"

namespace tw::relay {

// Floating-point operations of an unscheduled Func: every add, multiply, compare … and mathematical function counts as
// one. Nothing when an extent is symbolic.
Expr flops_of(const Func& func);  // of its parameters
Expr flops_of(const Graph& graph, const Node& node);

// What a core has to do for it: arithmetic of all types, that of indices included, or a move; a function is as much as
// it is computed with.  0: the number depends on data.
Expr operations_of(const Func& func);  // of its parameters

}  // namespace tw::relay
