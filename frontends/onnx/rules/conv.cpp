// Convolutions and their transposes.
#include <algorithm>
#include <utility>

#include "frontends/onnx/rules/window.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw::frontends::onnx {
namespace {

ValueId add_bias(Context& c, ValueId y, size_t bias_input) {
  if (!c.has_input(bias_input)) return y;
  return c.emit("add", {y, emit_along_axis(c, c.input(bias_input), 1, rank_of(c, y))});
}

Ints kernel_of(Context& c, ValueId weight) {
  const Ints dims = dims_of(c, weight);
  const Ints kernel(dims.begin() + std::min<size_t>(2, dims.size()), dims.end());
  if (c.attribute_ints("kernel_shape", kernel) != kernel) c.refuse("a kernel_shape other than the weight's");
  return kernel;
}

ValueId import_conv_transpose(Context& c) {
  const ValueId x = c.input(0), weight = c.input(1);
  const std::vector<Expr>& dims = c.type(x).shape;
  const Ints kernel = kernel_of(c, weight);
  const size_t rank = kernel.size();
  Ints strides = c.attribute_ints("strides", Ints(rank, 1));
  Ints dilations = c.attribute_ints("dilations", Ints(rank, 1));
  Ints pads = c.attribute_ints("pads", Ints(2 * rank, 0));
  Ints extra = c.attribute_ints("output_padding", Ints(rank, 0));
  Ints wanted = c.attribute_ints("output_shape", {});
  if (wanted.size() > rank) wanted.erase(wanted.begin(), wanted.end() - static_cast<std::ptrdiff_t>(rank));
  const std::string auto_pad = c.attribute_string("auto_pad", "NOTSET");
  if (dims.size() != rank + 2 || strides.size() != rank || dilations.size() != rank || pads.size() != 2 * rank ||
      extra.size() != rank || (!wanted.empty() && wanted.size() != rank)) {
    throw Error(ErrorCode::shape, "ConvTranspose: its attributes do not fit data of type " + to_string(c.type(x)) +
                                      "\n  help: one number for each spatial dimension, two for pads");
  }
  if (auto_pad == "VALID") pads.assign(2 * rank, 0);
  std::vector<Expr> same(wanted.begin(), wanted.end());
  if (wanted.empty() && (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER")) {
    for (size_t d = 0; d < rank; ++d) same.push_back(dims[2 + d] * strides[d]);
  }
  for (size_t d = 0; d < same.size(); ++d) {
    const Expr whole = dims[2 + d] * strides[d] - strides[d] + (extra[d] + (kernel[d] - 1) * dilations[d] + 1);
    const auto left = as_int(simplify(whole - same[d]));
    if (!left) c.refuse("an output_shape for open dimension `" + to_text(dims[2 + d]) + "`; fix it with shapes=");
    int64_t total = *left;
    if (total < 0) extra[d] -= total, total = 0;
    const int64_t half = total / 2;
    pads[d] = auto_pad == "SAME_UPPER" ? half : total - half;
    pads[rank + d] = total - pads[d];
  }
  for (size_t d = 0; d < 2 * rank; ++d) {
    if (pads[d] < 0 || extra[d % rank] < 0) c.refuse("negative pads");
  }
  return add_bias(c,
                  c.emit("conv_transpose", {x, weight},
                         attributes_of({{"strides", strides},
                                        {"dilations", dilations},
                                        {"pads", pads},
                                        {"output_padding", extra},
                                        {"groups", c.attribute_int("group", 1)}})),
                  2);
}

}  // namespace

ValueId emit_conv(Context& c, ValueId x, ValueId weight, const std::string& result, ValueId pad_value) {
  RuleWindow window = rule_window(c, x, kernel_of(c, weight), false);
  x = emit_open_pads(c, x, window, pad_value);
  if (pad_value != no_value && window.open_pads.empty()) {
    const size_t rank = window.kernel.size();
    Ints pads(2 * (rank + 2), 0);
    for (size_t d = 0; d < rank; ++d) {
      pads[2 + d] = std::exchange(window.pads[d], 0);
      pads[rank + 4 + d] = std::exchange(window.pads[rank + d], 0);
    }
    x = c.emit("pad", {x, pad_value}, attributes_of({{"pads", pads}}));
  }
  NodeAttributes attributes = attributes_of_window(window);
  attributes.set("groups", c.attribute_int("group", 1));
  if (!result.empty()) attributes.set("result", result);
  return c.emit("conv", {x, weight}, attributes);
}

std::vector<Rule> conv_rules() {
  return {
      rule("Conv", 1, [](Context& c) { return add_bias(c, emit_conv(c, c.input(0), c.input(1)), 2); }),
      rule("ConvTranspose", 1, import_conv_transpose),
  };
}

}  // namespace tw::frontends::onnx
