// Strassen's product of matrices (V. Strassen, "Gaussian Elimination is not Optimal", Numerische Mathematik 13, 1969):
// the four blocks of C = A B from seven products of sums of blocks instead of eight, and so on within these.
//
//   C = output · ((data · A) ⊙ (weight · B))      of the blocks 11, 12, 21, 22
#pragma once

#include <vector>

#include "runtime/ndarray.h"

namespace tw::relay {

inline constexpr int64_t strassen_most_levels = 2;

// Products of blocks: 7^levels.
constexpr int64_t strassen_points(int64_t levels) {
  return levels == 0 ? 1 : 7 * strassen_points(levels - 1);
}

struct StrassenTransform {
  std::vector<std::vector<double>> data;    // 7 × 4
  std::vector<std::vector<double>> weight;  // 7 × 4
  std::vector<std::vector<double>> output;  // 4 × 7
};

// Of one level; without any, one product of one block.
const StrassenTransform& strassen_transform(bool is_split);

// f32[k, n] → f32[7^levels, k / 2^levels, n / 2^levels], computed in double precision: blocks of the first level's
// sums are split by the second.  `jobs`: threads; 0: one a core.
NDArray strassen_weight(const NDArray& weight, int64_t levels, int jobs = 0);

// How unequal what is summed is: the norm of the largest column of a block by that of the smallest column of the matrix
// that it is summed with.  So many times the rounding of a plain product is that column's.  f32[k, n]; infinite where a
// column is zeros or sums are beyond f32.
double strassen_spread(const NDArray& weight, int64_t levels);

}  // namespace tw::relay
