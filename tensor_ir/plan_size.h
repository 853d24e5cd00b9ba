// From expressions of a Func's parameters to the sizes of a plan.
#pragma once

#include <optional>
#include <vector>

#include "runtime/plan/size.h"
#include "tensor_ir/ir.h"

namespace tw {

// An i64 of constants, `symbols` and `counters`, each of which is its position in the list; nothing when `e` has anything
// else in it.
std::optional<Size> as_size(const Expr& e, const std::vector<Var>& symbols, const std::vector<Var>& counters = {});
// …of which it is known that there is nothing else.
Size plan_size(const Expr& e, const std::vector<Var>& symbols, const std::vector<Var>& counters = {});

}  // namespace tw
