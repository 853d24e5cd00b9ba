#include "frontends/onnx/rules/window.h"

#include <algorithm>

namespace tw::frontends::onnx {

// The dimensions that a window slides along.
static Ints space_of(Context& c, ValueId x) {
  const std::vector<Expr>& shape = c.type(x).shape;
  for (size_t d = 2; d < shape.size(); ++d) {
    if (!as_int(shape[d]))
      c.refuse("its pads depend on open dimension " + std::to_string(d) + " of its data; fix it with shapes=");
  }
  Ints space;
  for (size_t d = 2; d < shape.size(); ++d) space.push_back(*as_int(shape[d]));
  return space;
}

Window rule_window(Context& c, ValueId x, const Ints& kernel, bool is_pool, Ints* ceil_extra) {
  Window window;
  const size_t rank = kernel.size();
  if (rank == 0 || rank_of(c, x) != static_cast<int>(rank) + 2) {
    throw Error(ErrorCode::shape, c.op() + ": a window of rank " + std::to_string(rank) + " on data of type " +
                                      to_string(c.type(x)) + "\n  help: data is [n, c, d…] with one d for each k");
  }
  window.kernel = kernel;
  window.strides = c.attribute_ints("strides", Ints(rank, 1));
  window.dilations = c.attribute_ints("dilations", Ints(rank, 1));
  window.pads = c.attribute_ints("pads", Ints(2 * rank, 0));
  bool is_valid = window.strides.size() == rank && window.dilations.size() == rank && window.pads.size() == 2 * rank;
  for (size_t d = 0; is_valid && d < rank; ++d) {
    constexpr int64_t limit = int64_t{1} << 31;
    is_valid = window.kernel[d] >= 1 && window.kernel[d] < limit && window.strides[d] >= 1 &&
               window.strides[d] < limit && window.dilations[d] >= 1 && window.dilations[d] < limit &&
               window.pads[d] > -limit && window.pads[d] < limit && window.pads[rank + d] > -limit &&
               window.pads[rank + d] < limit;
  }
  if (!is_valid) {
    throw Error(ErrorCode::shape, c.op() + ": strides, dilations or pads do not fit a window of rank " +
                                      std::to_string(rank) + "\n  help: strides and dilations are at least 1");
  }
  const std::string auto_pad = c.attribute_string("auto_pad", "NOTSET");
  if (auto_pad == "VALID") {
    window.pads.assign(2 * rank, 0);
  } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    const Ints dims = space_of(c, x);
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
    const Ints dims = space_of(c, x);
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

}  // namespace tw::frontends::onnx
