// Checks the invariants that ir.h states.  Error(verify) lists every violation, each with the text of its node.
#pragma once

#include "tensor_ir/ir.h"

namespace tw {

void verify(const Func& f);

}  // namespace tw
