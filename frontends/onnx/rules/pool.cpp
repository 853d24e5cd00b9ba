// Pooling and unpooling.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontends/onnx/rules/window.h"
#include "tensor_ir/arith/simplify.h"

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
    const DType dtype = dtype_of(c, x);
    const double lowest = dtype.is_float()            ? -std::numeric_limits<double>::infinity()
                          : dtype.is_signed_integer() ? -std::ldexp(1, dtype.bits - 1)
                                                      : 0;
    x = emit_open_pads(c, x, window, emit_scalar(c, dtype, lowest));
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

// The sum of each window by how many of its elements count, which the same window sums from ones.
ValueId average_of_open_pads(Context& c, const RuleWindow& window, const std::vector<Expr>& extra, bool counts_pads) {
  return in_accumulator(c, c.input(0), [&](ValueId x) {
    const auto sums = [&](ValueId of, const RuleWindow& pads) {
      return c.emit("sum_pool", {emit_open_pads(c, of, pads)}, attributes_of_pool(window));
    };
    std::vector<Expr> counted = c.type(x).shape;
    counted[0] = counted[1] = Expr(1);
    RuleWindow uncounted = window;
    const size_t rank = counted.size();
    for (size_t d = 2; counts_pads && d < rank; ++d) {
      counted[d] = simplify(counted[d] + window.open_pads[d] + window.open_pads[rank + d] - extra[d - 2]);
      uncounted.open_pads[d] = Expr(0);
      uncounted.open_pads[rank + d] = extra[d - 2];
    }
    const ValueId one = emit_scalar(c, dtype_of(c, x), 1);
    const ValueId count = sums(emit_broadcast_open(c, one, counted), uncounted);
    return c.emit("divide", {sums(x, window), c.emit("maximum", {count, one})});
  });
}

ValueId import_average_pool(Context& c) {
  std::vector<Expr> extra;
  const RuleWindow window = rule_window(c, c.input(0), kernel_of(c), true, &extra);
  const bool counts_pads = c.attribute_int("count_include_pad", 0) != 0;
  const bool counts_all =
      counts_pads && std::all_of(extra.begin(), extra.end(), [](const Expr& rows) { return is_const_int(rows, 0); });
  if (!window.open_pads.empty() && !counts_all) return average_of_open_pads(c, window, extra, counts_pads);
  NodeAttributes attributes = attributes_of_pool(window);
  attributes.set("count_pads", int64_t{counts_pads});
  Ints uncounted;
  for (const Expr& rows : extra) uncounted.push_back(*as_int(rows));
  attributes.set("uncounted", uncounted);
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

// A float in the first opset.
int64_t norm_of(Context& c) {
  if (c.opset() >= 2) return c.attribute_int("p", 2);
  const double p = c.attribute_float("p", 2);
  if (p != std::floor(p) || p < 1 || p > 1000) c.refuse("p=" + std::to_string(p));
  return static_cast<int64_t>(p);
}

Rule global_rule(const std::string& op_type, const std::string& op) {
  return rule(op_type, 1, [=](Context& c) {
    const std::vector<int> axes = axes_from(c, c.input(0), 2);
    if (op == "lp") {
      return lp(c, norm_of(c), [&](ValueId x) { return emit_reduce(c, "reduce_sum", x, axes, true); });
    }
    return emit_reduce(c, op, c.input(0), axes, true);
  });
}

ValueId import_max_unpool(Context& c) {
  const Ints kernel = kernel_of(c);
  const std::vector<Expr> dims = c.type(c.input(0)).shape;
  const size_t rank = kernel.size();
  const Ints strides = c.attribute_ints("strides", Ints(rank, 1)), pads = c.attribute_ints("pads", Ints(2 * rank, 0));
  if (dims.size() != rank + 2 || strides.size() != rank || pads.size() != 2 * rank)
    c.refuse("attributes of another rank");
  std::vector<Expr> inferred(dims.begin(), dims.begin() + 2);
  for (size_t d = 0; d < rank; ++d) {
    inferred.push_back(simplify(dims[2 + d] * strides[d] + (kernel[d] - strides[d] - pads[d] - pads[rank + d])));
  }
  if (!c.has_input(2)) {
    return c.emit("max_unpool", {c.input(0), c.input(1)}, attributes_of({{"shape", inferred}}));
  }
  // The offsets are those of the inferred shape: its data is put into the corner of the wanted one.
  const std::vector<Expr> shape = c.read_dims(2);
  if (shape.size() != dims.size()) c.refuse("an output_shape of another rank");
  ValueId y = c.emit("max_unpool", {c.input(0), c.input(1)}, attributes_of({{"shape", inferred}}));
  std::vector<Expr> after(2 * shape.size(), Expr(0));
  for (size_t d = 0; d < shape.size(); ++d) {
    const std::string why = "an output_shape smaller than the windows need";
    Expr& rows = after[shape.size() + d] = simplify(shape[d] - inferred[d]);
    if (as_int(rows).value_or(0) < 0) c.refuse(why);
    c.require_equal(simplify(min(shape[d], inferred[d])), inferred[d], why);
  }
  return c.emit("pad", {y}, attributes_of({{"pads", after}}));
}

ValueId import_col2im(Context& c) {
  const std::vector<Expr> kernel = c.read_dims(2, {1});
  const size_t rank = kernel.size();
  return c.emit("fold", {c.input(0)},
                attributes_of({{"image", c.read_dims(1, {1})},
                               {"kernel", kernel},
                               {"strides", c.attribute_ints("strides", Ints(rank, 1))},
                               {"dilations", c.attribute_ints("dilations", Ints(rank, 1))},
                               {"pads", c.attribute_ints("pads", Ints(2 * rank, 0))}}));
}

}  // namespace

std::vector<Rule> pool_rules() {
  return {
      rule("Col2Im", 18, import_col2im),
      {"MaxPool", "", 1, import_max_pool},
      rule("AveragePool", 1, import_average_pool),
      rule("LpPool", 1,
           [](Context& c) {
             return lp(c, norm_of(c), [&](ValueId x) {
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
