#include "relay_ir/ops/window.h"

#include <algorithm>

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
  constexpr int64_t limit = int64_t{1} << 31;
  for (size_t d = 0; d < rank; ++d) {
    c.require(window.kernel[d] >= 1 && window.kernel[d] < limit && window.strides[d] >= 1 &&
                  window.strides[d] < limit && window.dilations[d] >= 1 && window.dilations[d] < limit,
              "kernel, strides and dilations are at least 1");
    c.require(
        window.pads[d] >= 0 && window.pads[rank + d] >= 0 && window.pads[d] < limit && window.pads[rank + d] < limit,
        "pads are not negative");
  }
  return window;
}

void append_window_shape(const OpCall& c, const Window& window, const TensorType& x, TensorType& y) {
  const size_t rank = window.kernel.size();
  for (size_t d = 0; d < rank; ++d) {
    const Expr room = x.shape[2 + d] + (window.pads[d] + window.pads[rank + d] - window.reach(d));
    if (const auto known = as_int(room)) c.require(*known >= 0, "the window is larger than the padded data");
    y.shape.push_back(floor_div(room, window.strides[d]) + 1);
  }
}

AxisUses window_axes(const OpCall& call, const Window& window) {
  AxisUses uses = aligned_axes(call);
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    const bool is_moved = window.pads[d] != 0 || window.pads[window.kernel.size() + d] != 0 || window.strides[d] != 1;
    if (window.kernel[d] == 1 && !is_moved) continue;
    const int axis = static_cast<int>(2 + d);
    uses[0][axis] = {.kind = AxisUse::Kind::window,
                     .axis = axis,
                     .step = window.strides[d],
                     .size = window.kernel[d],
                     .gap = window.dilations[d]};
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

// The dimensions that a window slides along.
static std::vector<int64_t> space_of(OnnxNodeContext& c, ValueId x) {
  const std::vector<Expr>& shape = c.type(x).shape;
  for (size_t d = 2; d < shape.size(); ++d) {
    if (!as_int(shape[d]))
      c.refuse("its pads depend on open dimension " + std::to_string(d) + " of its data; fix it with shapes=");
  }
  std::vector<int64_t> space;
  for (size_t d = 2; d < shape.size(); ++d) space.push_back(*as_int(shape[d]));
  return space;
}

Window rule_window(OnnxNodeContext& c, ValueId x, const std::vector<int64_t>& kernel, bool is_pool,
                   std::vector<int64_t>* ceil_extra) {
  Window window;
  const size_t rank = kernel.size();
  if (rank == 0 || rank_of(c, x) != static_cast<int>(rank) + 2) {
    throw Error(ErrorCode::shape, c.op_type() + ": a window of rank " + std::to_string(rank) + " on data of type " +
                                      to_string(c.type(x)) + "\n  help: data is [n, c, d…] with one d for each k");
  }
  window.kernel = kernel;
  window.strides = c.attribute_ints("strides", std::vector<int64_t>(rank, 1));
  window.dilations = c.attribute_ints("dilations", std::vector<int64_t>(rank, 1));
  window.pads = c.attribute_ints("pads", std::vector<int64_t>(2 * rank, 0));
  bool is_valid = window.strides.size() == rank && window.dilations.size() == rank && window.pads.size() == 2 * rank;
  for (size_t d = 0; is_valid && d < rank; ++d) {
    constexpr int64_t limit = int64_t{1} << 31;
    is_valid = window.kernel[d] >= 1 && window.kernel[d] < limit && window.strides[d] >= 1 &&
               window.strides[d] < limit && window.dilations[d] >= 1 && window.dilations[d] < limit &&
               window.pads[d] > -limit && window.pads[d] < limit && window.pads[rank + d] > -limit &&
               window.pads[rank + d] < limit;
  }
  if (!is_valid) {
    throw Error(ErrorCode::shape, c.op_type() + ": strides, dilations or pads do not fit a window of rank " +
                                      std::to_string(rank) + "\n  help: strides and dilations are at least 1");
  }
  const std::string auto_pad = c.attribute_string("auto_pad", "NOTSET");
  if (auto_pad == "VALID") {
    window.pads.assign(2 * rank, 0);
  } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    const std::vector<int64_t> dims = space_of(c, x);
    for (size_t d = 0; d < rank; ++d) {
      const int64_t size = (dims[d] + window.strides[d] - 1) / window.strides[d];
      const int64_t total = std::max<int64_t>(0, (size - 1) * window.strides[d] + window.reach(d) - dims[d]);
      window.pads[d] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      window.pads[rank + d] = total - window.pads[d];
    }
  } else if (auto_pad != "NOTSET" && !auto_pad.empty()) {
    c.refuse("auto_pad=\"" + auto_pad + "\"");
  }
  if (std::any_of(window.pads.begin(), window.pads.end(), [](int64_t pad) { return pad < 0; }))
    c.refuse("negative pads");
  if (ceil_extra) ceil_extra->assign(rank, 0);
  if (is_pool && c.attribute_int("ceil_mode", 0) != 0) {
    const std::vector<int64_t> dims = space_of(c, x);
    for (size_t d = 0; d < rank; ++d) {
      const int64_t padded = dims[d] + window.pads[d] + window.pads[rank + d], stride = window.strides[d];
      const int64_t room = padded - window.reach(d);
      if (room < 0) continue;
      int64_t steps = (room + stride - 1) / stride;
      // A window that would start in the end padding is left out.
      if (steps * stride >= dims[d] + window.pads[d]) --steps;
      const int64_t extra = std::max<int64_t>(0, steps * stride - room);
      window.pads[rank + d] += extra;
      if (ceil_extra) (*ceil_extra)[d] = extra;
    }
  }
  return window;
}

NodeAttributes attributes_of_window(const Window& window) {
  return attributes_of({{"strides", window.strides}, {"dilations", window.dilations}, {"pads", window.pads}});
}

}  // namespace tw::relay
