// Windows that move over the spatial dimensions of [n, c, d…]: of convolutions and pools.
#pragma once

#include "relay_ir/ops/common.h"

namespace tw::relay {

// Of each attribute, so that no sum of them overflows.
inline constexpr int64_t window_limit = int64_t{1} << 31;

struct Window {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads;  // begin of each dimension, then end of each
  int64_t reach(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
};

std::vector<AttributeDef> window_attributes();  // strides, dilations, pads
Window window_of(const OpCall& call, std::vector<int64_t> kernel);
// How many windows there are along a dimension of this extent, where each reaches over so many rows.
Expr window_count(const OpCall& call, const Window& window, size_t d, const Expr& extent, const Expr& reach);
// The spatial extents of the result, appended to y.
void append_window_shape(const OpCall& call, const Window& window, const TensorType& x, TensorType& y);
// How positions of [n, c, d…] read those of input 0; nothing is known of other inputs.
AxisUses window_axes(const OpCall& call, const Window& window);
// x with zeros around it, as this type; x itself when there are no pads.
te::Tensor pad_window(const te::Tensor& x, const Window& window, DType dtype);

}  // namespace tw::relay
