// Windows of convolutions and pools, as attributes of ONNX's nodes.
#pragma once

#include "frontends/onnx/rules.h"
#include "relay_ir/ops/window.h"

namespace tw::frontends::onnx {

struct RuleWindow : Window {
  std::vector<Expr> open_pads;  // not empty: of all dimensions, before the window, which then has none
};

// From the node's attributes: auto_pad and, for pools, ceil_mode become pads.  `ceil_extra` receives how much of the
// end pads is there only to round the result up.
RuleWindow rule_window(Context& c, ValueId x, const Ints& kernel, bool is_pool,
                       std::vector<Expr>* ceil_extra = nullptr);
// x with the open pads, which hold `value` (a scalar of x's type; otherwise 0).
ValueId emit_open_pads(Context& c, ValueId x, const RuleWindow& window, ValueId value = no_value);
NodeAttributes attributes_of_window(const Window& window);

// A convolution with the node's own attributes.  `result`: type of the result, as the attribute of that name;
// `pad_value`: a scalar of x's type that stands around x instead of zeros.
ValueId emit_conv(Context& c, ValueId x, ValueId weight, const std::string& result = "", ValueId pad_value = no_value);

}  // namespace tw::frontends::onnx
