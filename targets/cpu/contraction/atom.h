// Atoms: what one instruction of a CPU multiplies and adds.
//
//   C[m, n] += Σ over k of A[m, k] · B[k, n]
//
// What it means is a TensorInstruction (tensor_ir/instruction.h), how it is emitted a MachineInstruction or the
// TileUnit of the target: to know another one takes a row there and, where it is of a new shape, one in atom.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "targets/target.h"
#include "tensor_ir/instruction.h"

namespace tw::cpu {

struct Atom {
  const TensorInstruction* instruction = nullptr;  // null: a multiply-add in each lane
  int64_t m = 1, n = 1;                            // rows and columns of its sums
  // Extents of its loops along k, outermost first, the last of which is over a word: neighbours of A's in memory; none:
  // it takes one element.
  std::vector<int64_t> steps;

  bool is_on_tiles() const { return instruction && instruction->is_tile(); }  // sums are in registers of the tile unit
  bool is_matrix() const { return instruction && instruction->is_matrix(); }  // a vector has sums of m rows
  // It takes several rows, with a loop of its own over them; sums leave through memory.
  bool spans_rows() const { return is_on_tiles() || is_matrix(); }
  int64_t k() const {
    int64_t elements = 1;
    for (const int64_t extent : steps) elements *= extent;
    return elements;
  }
};

// The target's instruction on vectors that adds products of words of these types, in either order.
std::optional<Atom> dot_of(DType a, DType b, DType sum, const Target& target);
// …that does so on matrices in vectors: of these types in this order.
std::optional<Atom> matrix_product_of(DType a, DType b, DType sum, const Target& target);
// …and on tiles; m and the loops along k are as large as they can be.
std::optional<Atom> tile_product_of(DType a, DType b, DType sum, const Target& target);

}  // namespace tw::cpu
