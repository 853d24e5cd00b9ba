// AVX512_BF16, VNNI and AMX.
#pragma once

#include <string>
#include <vector>

#include "targets/machine_instruction.h"

namespace tw::x86 {

// Those of a CPU with these features of LLVM's.
std::vector<MachineInstruction> instructions_of(const std::vector<std::string>& features);

TileUnit tiles_of(const std::vector<std::string>& features);

}  // namespace tw::x86
