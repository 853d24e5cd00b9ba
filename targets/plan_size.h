// From expressions of a Func's parameters to the sizes of a plan.
#pragma once

#include <vector>

#include "runtime/plan/size.h"
#include "tensor_ir/ir.h"

namespace tw {

// `e` is an i64 of constants and `symbols`; a symbol is its position in the list.
Size plan_size(const Expr& e, const std::vector<Var>& symbols);

}  // namespace tw
