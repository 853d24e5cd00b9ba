// Dot products of Armv8.2 (dotprod) and Armv8.6 (i8mm, bf16), and tables.
#pragma once

#include <vector>

#include "targets/target.h"

namespace tw::arm {

// Those of a CPU with these features of LLVM's.
std::vector<MachineInstruction> instructions_of(const Target& target);

// Of AArch64.
ByteLookup byte_lookup();

}  // namespace tw::arm
