// Conditions as lists of what must hold together.
#pragma once

#include <vector>

#include "tensor_ir/ir.h"

namespace tw {

// Appends the parts of `a && b && …`, left to right.
void split_conjunction(const Expr& e, std::vector<Expr>& parts);

}  // namespace tw
