// Windows of convolutions and pools, as attributes of ONNX's nodes.
#pragma once

#include "frontends/onnx/rules.h"
#include "relay_ir/ops/window.h"

namespace tw::frontends::onnx {

// From the node's attributes: auto_pad and, for pools, ceil_mode become pads.  `ceil_extra` receives how much of the
// end pads is there only to round the result up.
Window rule_window(Context& c, ValueId x, const Ints& kernel, bool is_pool, Ints* ceil_extra = nullptr);
NodeAttributes attributes_of_window(const Window& window);

// A convolution with the node's own attributes.  `result`: type of the result, as the attribute of that name;
// `pad_value`: a scalar of x's type that stands around x instead of zeros.
ValueId emit_conv(Context& c, ValueId x, ValueId weight, const std::string& result = "", ValueId pad_value = no_value);

}  // namespace tw::frontends::onnx
