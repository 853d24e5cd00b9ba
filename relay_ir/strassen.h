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

// f32[n]: what the columns of f32[k, n] are divided by before they are summed, so that each is rounded by its own size
// ("outside scaling": G. Ballard, A. R. Benson, A. Druinsky, B. Lipshitz, O. Schwartz, "Improving the Numerical
// Stability of Fast Matrix Multiplication", SIAM Journal on Matrix Analysis and Applications 37, 2016).  A power of two
// near the column's largest element, or near that of the largest column that it meets where this is not four times as
// large.  All elements are finite.
NDArray strassen_scale(const NDArray& weight, int64_t levels);

// f32[k, n] and its scale → f32[7^levels, k / 2^levels, n / 2^levels], computed in double precision: blocks of the
// first level's sums are split by the second.  `jobs`: threads; 0: one a core.
NDArray strassen_weight(const NDArray& weight, const NDArray& scale, int64_t levels, int jobs = 0);

}  // namespace tw::relay
