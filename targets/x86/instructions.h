// AVX512_BF16, VNNI, VBMI and AMX.
#pragma once

#include <vector>

#include "targets/target.h"

namespace tw::x86 {

// Those of a CPU with these features of LLVM's.
std::vector<MachineInstruction> instructions_of(const Target& target);

ByteLookup byte_lookup_of(const Target& target);

TileUnit tiles_of(const Target& target);

}  // namespace tw::x86
