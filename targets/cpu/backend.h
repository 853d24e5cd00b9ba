// CPUs: kernels by LLVM, whose tasks the runtime's workers share.
#pragma once

#include "targets/backend.h"

namespace tw::cpu {

const Backend& backend();

}  // namespace tw::cpu
