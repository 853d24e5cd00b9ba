// Contractions as products of matrices, C[…, i, j] += A[…, i, k] * B[…, j, k], for templates that know nothing else:
// convolutions come to them as implicit GEMM.
#pragma once

#include <array>
#include <utility>

#include "targets/analysis/block_analysis.h"
#include "targets/cuda/default_schedule.h"

namespace tw::cuda {

// The iterations of a contraction by the part that they have in a product: of both operands, of one alone, summed over.
// Columns run along the result's memory where one of the two does; what is summed over, along that of the operand that
// is no constant, the innermost last.
struct MatrixAxes {
  std::vector<Var> others, rows, columns, reduce;
};
MatrixAxes find_matrix_axes(const Schedule& schedule, const BlockRef& block);

// Zeros around what a window slides over become a condition of its reads.  Its channels, where there are many, are
// summed up in pieces of so many, each for the whole window: then neighbours of a block read again what it has just
// read.
void open_window(Schedule& schedule, const BlockRef& block, int64_t piece);

// A product of matrices, and what stands between it and the contraction that it was made of.
struct Matrices {
  Product product;
  std::array<std::optional<BlockRef>, 2> copies = {};  // of each operand, where it is not read as it lies
  std::array<bool, 2> has_near_rows = {};  // its rows are nearer to each other in memory than pieces of one row
  std::optional<BlockRef> out = {};        // what takes the sums to their places, its epilogue included
};
// The iterations of each part become one.  A constant gets the layout of its matrix.  Nothing: rows, columns or a
// second operand are missing.
std::optional<Matrices> make_matrices(Schedule& schedule, const BlockRef& block);
// Extents become multiples: operands have zeros around them, and sums beyond the result's are dropped.
void pad_to_multiples(Schedule& schedule, const BlockRef& block, Matrices& matrices,
                      const std::vector<std::pair<Var, int64_t>>& multiples);

}  // namespace tw::cuda
