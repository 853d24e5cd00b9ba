// Every pass of passes.def, declared.  Run them through run_pass (pass.h).
#pragma once

#include "tensor_ir/ir.h"

namespace tw {

#define PASS(name, is_optional) Func name(const Func& f);
#include "tensor_ir/passes.def"

}  // namespace tw
