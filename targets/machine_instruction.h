// How a target's instructions (tensor_ir/instruction.h says what they mean) are emitted.
#pragma once

#include <algorithm>
#include <vector>

#include "tensor_ir/ir.h"

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace tw {

// An intrinsic of kind `dot` that the machine has in vectors of some numbers of lanes, ascending, or one of kind
// `matrix`, whose lanes are those of its sums.  `emit` takes an accumulator of one of them and the i32 words of each
// operand: as many.
struct MachineInstruction {
  Intrinsic intrinsic;
  std::vector<int> lanes;
  llvm::Value* (*emit)(llvm::IRBuilderBase& builder, llvm::Value* accumulator, llvm::Value* a, llvm::Value* b);
  // Cycles that one vector keeps a multiply-add port busy for: above 1 where it is microcoded.
  double cycles = 1;
};

// Elements of a table of 256 bytes in memory, one for each byte of a vector, by permutations of registers.
struct ByteLookup {
  unsigned lanes = 0;  // of the vector; 0: the machine loads one element at a time
  llvm::Value* (*emit)(llvm::IRBuilderBase& builder, llvm::Value* table, llvm::Value* codes) = nullptr;
};

// A unit that multiplies tiles: registers of rows of words, numbered from 0, whose sizes are set before they are used.
struct TileUnit {
  int registers = 0;  // 0: the machine has none
  int rows = 0, row_bytes = 0;
  int product_latency = 0;          // cycles, and one more a row; a product keeps the unit busy for one cycle a row
  int load_cycles = 0;              // of a register that lies in the first cache
  std::vector<Intrinsic> products;  // of kind `tile`

  struct Size {
    int rows = 0, row_bytes = 0;
    bool operator==(const Size&) const = default;
  };
  // Sets the sizes of all registers; what they hold is zero then.
  void (*configure)(llvm::IRBuilderBase& builder, const std::vector<Size>& sizes) = nullptr;
  void (*release)(llvm::IRBuilderBase& builder) = nullptr;  // before the kernel returns
  void (*zero)(llvm::IRBuilderBase& builder, int tile) = nullptr;
  void (*load)(llvm::IRBuilderBase& builder, int tile, llvm::Value* first, llvm::Value* stride_bytes) = nullptr;
  void (*store)(llvm::IRBuilderBase& builder, int tile, llvm::Value* first, llvm::Value* stride_bytes) = nullptr;
  void (*multiply)(llvm::IRBuilderBase& builder, Intrinsic product, int sum, int a, int b) = nullptr;

  bool has(Intrinsic product) const { return std::find(products.begin(), products.end(), product) != products.end(); }
};

}  // namespace tw
