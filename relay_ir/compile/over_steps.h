// Sizes that change from step to step of a loop, and what they are at most in all of its steps.
#pragma once

#include "tensor_ir/ir.h"

namespace tw::relay {

// At least what e is while the variable is 0 … last, and exactly the most where e grows with it, or shrinks.
Expr most_over(const Expr& e, const Var& var, const Expr& last);

}  // namespace tw::relay
