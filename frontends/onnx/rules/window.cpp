#include "frontends/onnx/rules/window.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {

RuleWindow rule_window(Context& c, ValueId x, const Ints& kernel, bool is_pool, std::vector<Expr>* ceil_extra) {
  RuleWindow window;
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
  const std::vector<Expr>& shape = c.type(x).shape;
  std::vector<Expr> pads(window.pads.begin(), window.pads.end());
  const std::string auto_pad = c.attribute_string("auto_pad", "NOTSET");
  if (auto_pad == "VALID") {
    pads.assign(2 * rank, Expr(0));
  } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    for (size_t d = 0; d < rank; ++d) {
      const Expr& extent = shape[2 + d];
      const int64_t stride = window.strides[d];
      const Expr steps = floor_div(extent + (stride - 1), stride) - 1;
      const Expr total = simplify(max(steps * stride + window.reach(d) - extent, Expr(0)));
      const Expr less = simplify(floor_div(total, 2)), more = simplify(total - less);
      pads[d] = auto_pad == "SAME_UPPER" ? less : more;
      pads[rank + d] = auto_pad == "SAME_UPPER" ? more : less;
    }
  } else if (auto_pad != "NOTSET" && !auto_pad.empty()) {
    c.refuse("auto_pad=\"" + auto_pad + "\"");
  }
  if (std::any_of(pads.begin(), pads.end(), [](const Expr& pad) { return as_int(pad).value_or(0) < 0; }))
    c.refuse("negative pads");
  if (ceil_extra) ceil_extra->assign(rank, Expr(0));
  if (is_pool && c.attribute_int("ceil_mode", 0) != 0) {
    for (size_t d = 0; d < rank; ++d) {
      const int64_t stride = window.strides[d];
      const Expr room = simplify(shape[2 + d] + pads[d] + pads[rank + d] - window.reach(d));
      if (as_int(room).value_or(0) < 0) continue;
      // As many steps as cover the data; a window that would start in the end padding is left out.
      const Expr steps = min(floor_div(room + (stride - 1), stride), floor_div(shape[2 + d] + pads[d] - 1, stride));
      const Expr extra = simplify(max(steps * stride - room, Expr(0)));
      pads[rank + d] = simplify(pads[rank + d] + extra);
      if (ceil_extra) (*ceil_extra)[d] = extra;
    }
  }
  window.pads.clear();
  for (const Expr& pad : pads) window.pads.push_back(as_int(pad).value_or(0));
  if (std::all_of(pads.begin(), pads.end(), [](const Expr& pad) { return as_int(pad).has_value(); })) return window;
  window.pads.assign(2 * rank, 0);
  window.open_pads.assign(2 * (rank + 2), Expr(0));
  for (size_t d = 0; d < rank; ++d) window.open_pads[2 + d] = pads[d], window.open_pads[rank + 4 + d] = pads[rank + d];
  return window;
}

ValueId emit_open_pads(Context& c, ValueId x, const RuleWindow& window, ValueId value) {
  if (window.open_pads.empty()) return x;
  return c.emit("pad", {x, value}, attributes_of({{"pads", window.open_pads}}));
}

NodeAttributes attributes_of_window(const Window& window) {
  return attributes_of({{"strides", window.strides}, {"dilations", window.dilations}, {"pads", window.pads}});
}

}  // namespace tw::frontends::onnx
