// Contractions as products of matrices, C[…, i, j] += A[…, i, k] * B[…, j, k], for templates that know nothing else:
// convolutions come to them as implicit GEMM.
#pragma once

#include <array>
#include <utility>

#include "targets/analysis/block_analysis.h"

namespace tw::cuda {

// What stands between a product of matrices and the contraction that it was made of.
struct Matrices {
  std::array<std::optional<BlockRef>, 2> copies;  // of each operand, where it is not read as it lies
  std::optional<BlockRef> out;                    // what takes the sums to their places, its epilogue included
};

// Iterations of one operand alone become its rows or columns, those that are summed over become one, along the memory
// of what is no constant; iterations of both stay.  A constant gets the layout of its matrix.
Matrices make_matrices(Schedule& schedule, const BlockRef& block);
// Extents become multiples: operands have zeros around them, and sums beyond the result's are dropped.
void pad_to_multiples(Schedule& schedule, const BlockRef& block, Matrices& matrices,
                      const std::vector<std::pair<Var, int64_t>>& multiples);

}  // namespace tw::cuda
