#include "relay_ir/ops/window.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"

namespace tw::relay {

std::vector<AttributeDef> window_attributes() {
  return {{"strides", std::vector<int64_t>{}, false, "step of the window in each dimension; empty: 1"},
          {"dilations", std::vector<int64_t>{}, false, "step within the window in each dimension; empty: 1"},
          {"pads", std::vector<int64_t>{}, false, "rows before each dimension, then after each; empty: none"}};
}

Window window_of(const OpCall& c, std::vector<int64_t> kernel) {
  Window window;
  const size_t rank = kernel.size();
  window.kernel = std::move(kernel);
  window.strides = c.attributes.get_ints("strides");
  window.dilations = c.attributes.get_ints("dilations");
  window.pads = c.attributes.get_ints("pads");
  if (window.strides.empty()) window.strides.assign(rank, 1);
  if (window.dilations.empty()) window.dilations.assign(rank, 1);
  if (window.pads.empty()) window.pads.assign(2 * rank, 0);
  c.require(c.inputs[0].rank() == static_cast<int>(rank) + 2, "data has two dimensions more than the window");
  c.require(window.strides.size() == rank && window.dilations.size() == rank && window.pads.size() == 2 * rank,
            "strides, dilations and pads fit the window's rank");
  for (size_t d = 0; d < rank; ++d) {
    c.require(window.kernel[d] >= 1 && window.kernel[d] < window_limit && window.strides[d] >= 1 &&
                  window.strides[d] < window_limit && window.dilations[d] >= 1 && window.dilations[d] < window_limit,
              "kernel, strides and dilations are at least 1");
    c.require(window.pads[d] >= 0 && window.pads[rank + d] >= 0 && window.pads[d] < window_limit &&
                  window.pads[rank + d] < window_limit,
              "pads are not negative");
  }
  return window;
}

Expr window_count(const OpCall& c, const Window& window, size_t d, const Expr& extent, const Expr& reach) {
  const Expr room = extent + simplify(window.pads[d] + window.pads[window.kernel.size() + d] - reach);
  // Of no data, a window of one element makes no results.
  const bool is_one = !as_int(room) && is_const_int(reach, 1);
  c.require_at_most(Expr(is_one ? -1 : 0), room, "the window is larger than the padded data");
  return floor_div(room, window.strides[d]) + 1;
}

void append_window_shape(const OpCall& c, const Window& window, const TensorType& x, TensorType& y) {
  for (size_t d = 0; d < window.kernel.size(); ++d)
    y.shape.push_back(window_count(c, window, d, x.shape[2 + d], Expr(window.reach(d))));
}

AxisUses window_axes(const OpCall& call, const Window& window) {
  AxisUses uses = aligned_axes(call);
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    const bool is_moved = window.pads[d] != 0 || window.pads[window.kernel.size() + d] != 0 || window.strides[d] != 1;
    if (window.kernel[d] == 1 && !is_moved) continue;
    const int axis = static_cast<int>(2 + d);
    uses[0][axis] = {.kind = AxisUse::Kind::window,
                     .axis = axis,
                     .stride = window.strides[d],
                     .size = window.kernel[d],
                     .dilation = window.dilations[d]};
  }
  return uses;
}

te::Tensor pad_window(const te::Tensor& x, const Window& window, DType dtype) {
  if (std::all_of(window.pads.begin(), window.pads.end(), [](int64_t pad) { return pad == 0; })) return x;
  const size_t rank = window.kernel.size();
  std::vector<Expr> shape{x.shape()[0], x.shape()[1]};
  for (size_t d = 0; d < rank; ++d) shape.push_back(x.shape()[2 + d] + (window.pads[d] + window.pads[rank + d]));
  return te::compute("pad", shape, {x}, [&](const te::Indices& s) {
    te::Indices indices{s[0], s[1]};
    Expr inside = bool_imm(true);
    for (size_t d = 0; d < rank; ++d) {
      indices.push_back(s[2 + d] - window.pads[d]);
      if (window.pads[d] != 0) inside = inside && indices.back() >= 0;
      if (window.pads[rank + d] != 0) inside = inside && indices.back() < x.shape()[2 + d];
    }
    return cast(dtype, load(x.buffer(), indices, inside));
  });
}

}  // namespace tw::relay
