// How a target's instructions (tensor_ir/instruction.h says what they mean) are emitted.
#pragma once

#include <vector>

#include "tensor_ir/ir.h"

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace tw {

// An intrinsic of kind `dot` that the machine has in vectors of some numbers of lanes, ascending.  `emit` takes an
// accumulator of one of them and as many i32 words of each operand.
struct MachineInstruction {
  Intrinsic intrinsic;
  std::vector<int> lanes;
  llvm::Value* (*emit)(llvm::IRBuilderBase& builder, llvm::Value* accumulator, llvm::Value* a, llvm::Value* b);
};

}  // namespace tw
