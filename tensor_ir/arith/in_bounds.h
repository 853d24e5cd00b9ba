// Whether every access of a Func is inside of its buffer, for Funcs that others than we have written.
#pragma once

#include <string>

#include "tensor_ir/ir.h"

namespace tw {

// The first access of which it cannot be proven, as text ("x[i + 1]: 0 <= i + 1 < 8"); "": there is none.  The ranges
// of loops and blocks count, and the predicates of loads and blocks.
std::string find_unproven_access(const Func& func);

}  // namespace tw
