// Pooling and unpooling.
#include <algorithm>
#include <limits>

#include "frontends/onnx/rules/window.h"

namespace tw::frontends::onnx {
namespace {

Ints kernel_of(Context& c) {
  const Ints kernel = c.attribute_ints("kernel_shape", {});
  if (kernel.empty()) c.refuse("no kernel_shape");
  return kernel;
}

NodeAttributes attributes_of_pool(const Window& window) {
  NodeAttributes attributes = attributes_of_window(window);
  attributes.set("kernel", window.kernel);
  return attributes;
}

std::vector<ValueId> import_max_pool(Context& c) {
  const RuleWindow window = rule_window(c, c.input(0), kernel_of(c), true);
  const NodeAttributes attributes = attributes_of_pool(window);
  ValueId x = c.input(0);
  if (!window.open_pads.empty()) {
    if (!dtype_of(c, x).is_float()) c.refuse("pads that depend on open dimensions, of " + to_string(dtype_of(c, x)));
    x = emit_open_pads(c, x, window, emit_scalar(c, dtype_of(c, x), -std::numeric_limits<double>::infinity()));
  }
  std::vector<ValueId> outputs{c.emit("max_pool", {x}, attributes)};
  if (c.wants_output(1) && !window.open_pads.empty()) c.refuse("indices with pads that depend on open dimensions");
  if (c.output_count() > 1) {
    NodeAttributes with_order = attributes;
    with_order.set("column_major", c.attribute_int("storage_order", 0));
    outputs.push_back(c.wants_output(1) ? c.emit("max_pool_indices", {c.input(0)}, with_order) : no_value);
  }
  return outputs;
}

ValueId import_average_pool(Context& c) {
  Ints extra;
  const RuleWindow window = rule_window(c, c.input(0), kernel_of(c), true, &extra);
  const bool counts_pads = c.attribute_int("count_include_pad", 0) != 0;
  if (!window.open_pads.empty() && !counts_pads) c.refuse("pads that depend on open dimensions, and are not counted");
  NodeAttributes attributes = attributes_of_pool(window);
  attributes.set("count_pads", int64_t{counts_pads});
  attributes.set("uncounted", extra);
  return c.emit("average_pool", {emit_open_pads(c, c.input(0), window)}, attributes);
}

// (Σ |x|ᵖ)^(1/p) over windows, or over all spatial dimensions.
ValueId lp(Context& c, int64_t p, const std::function<ValueId(ValueId)>& sum) {
  if (p < 1) c.refuse("p=" + std::to_string(p));
  return in_accumulator(c, c.input(0), [&](ValueId x) {
    const DType dtype = dtype_of(c, x);
    if (p == 1) return sum(c.emit("abs", {x}));
    if (p == 2) return c.emit("sqrt", {sum(c.emit("multiply", {x, x}))});
    const auto power = [&](ValueId v, double e) { return c.emit("power", {v, emit_scalar(c, dtype, e)}); };
    return power(sum(power(c.emit("abs", {x}), static_cast<double>(p))), 1.0 / static_cast<double>(p));
  });
}

Rule global_rule(const std::string& op_type, const std::string& op) {
  return rule(op_type, 1, [=](Context& c) {
    const std::vector<int> axes = axes_from(c, c.input(0), 2);
    if (op == "lp") {
      return lp(c, c.attribute_int("p", 2), [&](ValueId x) { return emit_reduce(c, "reduce_sum", x, axes, true); });
    }
    return emit_reduce(c, op, c.input(0), axes, true);
  });
}

ValueId import_max_unpool(Context& c) {
  const Ints kernel = kernel_of(c), dims = dims_of(c, c.input(0));
  const size_t rank = kernel.size();
  const Ints strides = c.attribute_ints("strides", Ints(rank, 1)), pads = c.attribute_ints("pads", Ints(2 * rank, 0));
  if (dims.size() != rank + 2 || strides.size() != rank || pads.size() != 2 * rank)
    c.refuse("attributes of another rank");
  Ints inferred(dims.begin(), dims.begin() + 2);
  for (size_t d = 0; d < rank; ++d) {
    inferred.push_back((dims[2 + d] - 1) * strides[d] - pads[d] - pads[rank + d] + kernel[d]);
  }
  if (!c.has_input(2)) {
    return c.emit("max_unpool", {c.input(0), c.input(1)}, attributes_of({{"shape", inferred}}));
  }
  // The offsets are those of the inferred shape: its data is put into the corner of the wanted one.
  const Ints shape = c.constant_ints(2);
  if (shape.size() != dims.size()) c.refuse("an output_shape of another rank");
  ValueId y = c.emit("max_unpool", {c.input(0), c.input(1)}, attributes_of({{"shape", inferred}}));
  Ints after(2 * shape.size(), 0);
  for (size_t d = 0; d < shape.size(); ++d) {
    after[shape.size() + d] = shape[d] - inferred[d];
    if (after[shape.size() + d] < 0) c.refuse("an output_shape smaller than the windows need");
  }
  return c.emit("pad", {y}, attributes_of({{"pads", after}}));
}

}  // namespace

std::vector<Rule> pool_rules() {
  return {
      {"MaxPool", "", 1, import_max_pool},
      rule("AveragePool", 1, import_average_pool),
      rule("LpPool", 2,
           [](Context& c) {
             return lp(c, c.attribute_int("p", 2), [&](ValueId x) {
               const RuleWindow window = rule_window(c, x, kernel_of(c), true);
               return c.emit("sum_pool", {emit_open_pads(c, x, window)}, attributes_of_pool(window));
             });
           }),
      global_rule("GlobalAveragePool", "reduce_mean"),
      global_rule("GlobalMaxPool", "reduce_max"),
      global_rule("GlobalLpPool", "lp"),
      rule("MaxUnpool", 9, import_max_unpool),
  };
}

}  // namespace tw::frontends::onnx
