// Winograd's minimal filtering F(m×m, 3×3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
// CVPR 2016): an output tile of m×m from an input tile of (m+2)×(m+2) by (m+2)² products a channel pair instead of 9m².
//
//   Y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A
//
// A window of 3 along one axis, of 1×3 elements or of a sequence, is filtered along that axis alone, by m+2 products
// instead of 3m.
//
// With stride 2 the input's even elements meet the filter's first and last, by F(m, 2), and its odd ones meet the one
// in the middle, each by itself: (2m+1)² products.
#pragma once

#include <vector>

#include "runtime/ndarray.h"

namespace tw::relay {

struct WinogradTransform {
  int tile = 4, stride = 1;                 // m
  std::vector<std::vector<double>> input;   // Bᵀ: size × size
  std::vector<std::vector<double>> weight;  // G:  size × window
  std::vector<std::vector<double>> output;  // Aᵀ: m × size
  // m+2, or 2m+1 with stride 2: products along an axis, and elements of the input tile.
  int size() const { return static_cast<int>(input.size()); }
  int window() const { return static_cast<int>(weight[0].size()); }
};

// m: 2 (points 0, ±1; with stride 2: 0, 1) or 4 (points 0, ±1, ±2; with stride 2: 0, ±1, 2).  stride: 1 or 2.
// m of 1 filters nothing: a window of one element.
const WinogradTransform& winograd_transform(int64_t tile, int64_t stride = 1);

// Of the axes that a window of these extents has, those that are filtered: the last one or two of 3 elements.
std::vector<size_t> filtered_axes(const std::vector<int64_t>& window);

// Along both filtered axes; where there is one, nothing is filtered along the rows.
struct WinogradFilter {
  const WinogradTransform &rows, &columns;
  int points() const { return rows.size() * columns.size(); }
  int window() const { return rows.window() * columns.window(); }
};
WinogradFilter winograd_filter(int64_t tile, int64_t stride, size_t axes);

// f32[outputs, inputs, 3, 3] → f32[points, inputs, outputs], computed in double precision.  Where the window is a sum
// over slices, f32[outputs, inputs, slices, 3, 3] → f32[points, slices · inputs, outputs].  `jobs`: threads; 0: one a
// core.
NDArray winograd_weight(const NDArray& weight, const WinogradFilter& filter, int jobs = 0);

// The largest error of an f32 convolution by this filter on seeded normal data, against the direct sum in double
// precision, over the largest result: for the given weights, on some output channels.
double winograd_error(const NDArray& weight, const WinogradFilter& filter);

}  // namespace tw::relay
