// From expressions of a Func's parameters to the sizes of a plan.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/plan/size.h"
#include "tensor_ir/ir.h"

namespace tw {

// Numbers of Plan::counters, by the variables that stand for them.
using Counters = std::unordered_map<Var, int64_t>;

// An i64 of constants, `symbols`, each of which is its position in the list, and counters; nothing when `e` has
// anything else in it.
std::optional<Size> as_size(const Expr& e, const std::vector<Var>& symbols, const Counters& counters = {});
// …of which it is known that there is nothing else.
Size plan_size(const Expr& e, const std::vector<Var>& symbols, const Counters& counters = {});

}  // namespace tw
