// Reductions over axes, and what is composed from them.
#include <cmath>

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {
namespace {

struct ReduceArguments {
  ValueId x;
  std::vector<int> axes;
  bool keepdims;
  bool is_noop;
};

ReduceArguments arguments_of(Context& c) {
  const ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  ReduceArguments result{x, {}, c.attribute_int("keepdims", 1) != 0, false};
  // As many axes as there are, whatever their order: all of them.
  const bool has_all =
      c.has_input(1) && !c.is_known(1) && rank > 0 && is_const_int(product_of(c.type(c.input(1)).shape), rank);
  result.axes = has_all ? axes_from(c, x) : rule_axes(c, axes_of(c, 1), rank);
  if (result.axes.empty()) {
    result.is_noop = c.attribute_int("noop_with_empty_axes", 0) != 0;
    if (!result.is_noop) result.axes = axes_from(c, x);
  }
  return result;
}

using Step = ValueId (*)(Context&, ValueId);

// before(x), reduced, after(…).  With noop_with_empty_axes only the elementwise steps remain.
Rule reduce_rule(const std::string& op_type, const std::string& op, Step before = nullptr, Step after = nullptr) {
  return rule(op_type, 1, [=](Context& c) {
    const ReduceArguments a = arguments_of(c);
    auto all = [&](ValueId x) {
      if (before) x = before(c, x);
      if (!a.is_noop) x = emit_reduce(c, op, x, a.axes, a.keepdims);
      return after ? after(c, x) : x;
    };
    return before || after ? in_accumulator(c, a.x, all) : all(a.x);
  });
}

Rule extremum_rule(const std::string& op_type, const std::string& of_numbers, const std::string& of_bools) {
  return rule(op_type, 1, [=](Context& c) {
    const ReduceArguments a = arguments_of(c);
    if (a.is_noop) return a.x;
    const bool is_bool = dtype_of(c, a.x).is_bool();
    return emit_reduce(c, is_bool ? of_bools : of_numbers, a.x, a.axes, a.keepdims);
  });
}

ValueId square(Context& c, ValueId x) {
  return c.emit("multiply", {x, x});
}
ValueId absolute(Context& c, ValueId x) {
  return c.emit("abs", {x});
}
ValueId logarithm(Context& c, ValueId x) {
  return c.emit("log", {x});
}
ValueId root(Context& c, ValueId x) {
  const DType dtype = dtype_of(c, x);
  return dtype.is_float() ? c.emit("sqrt", {x}) : emit_cast(c, c.emit("sqrt", {emit_cast(c, x, f64)}), dtype);
}

// log Σ eˣ = m + log Σ e^(x-m) with m the largest x, or 0 where that is infinite.
ValueId import_log_sum_exp(Context& c) {
  const ReduceArguments a = arguments_of(c);
  if (!dtype_of(c, a.x).is_float()) c.refuse("integers");
  if (a.is_noop) return a.x;
  return in_accumulator(c, a.x, [&](ValueId x) {
    const DType dtype = dtype_of(c, x);
    ValueId largest = emit_reduce(c, "reduce_max", x, a.axes, true);
    largest = c.emit("where", {c.emit("is_inf", {largest}), emit_scalar(c, dtype, 0), largest});
    const ValueId sum = emit_reduce(c, "reduce_sum", c.emit("exp", {c.emit("subtract", {x, largest})}), a.axes, true);
    const ValueId result = c.emit("add", {c.emit("log", {sum}), largest});
    if (a.keepdims) return result;
    std::vector<Expr> shape;
    const std::vector<Expr>& dims = c.type(result).shape;
    for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
      if (!contains(a.axes, i)) shape.push_back(dims[i]);
    }
    return emit_reshape_open(c, result, shape);
  });
}

Rule arg_rule(const std::string& op_type, const std::string& op) {
  return rule(op_type, 1, [=](Context& c) {
    const ValueId x = c.input(0);
    return c.emit(op, {x},
                  attributes_of({{"axis", int64_t{rule_axis(c, c.attribute_int("axis", 0), rank_of(c, x))}},
                                 {"keepdims", c.attribute_int("keepdims", 1)},
                                 {"select_last", c.attribute_int("select_last_index", 0)}}));
  });
}

}  // namespace

std::vector<Rule> reduce_rules() {
  return {
      reduce_rule("ReduceSum", "reduce_sum"),
      reduce_rule("ReduceMean", "reduce_mean"),
      reduce_rule("ReduceProd", "reduce_prod"),
      extremum_rule("ReduceMax", "reduce_max", "reduce_any"),
      extremum_rule("ReduceMin", "reduce_min", "reduce_all"),
      reduce_rule("ReduceL1", "reduce_sum", absolute),
      reduce_rule("ReduceL2", "reduce_sum", square, root),
      reduce_rule("ReduceSumSquare", "reduce_sum", square),
      reduce_rule("ReduceLogSum", "reduce_sum", nullptr, logarithm),
      rule("ReduceLogSumExp", 1, import_log_sum_exp),
      arg_rule("ArgMax", "arg_max"),
      arg_rule("ArgMin", "arg_min"),
  };
}

}  // namespace tw::frontends::onnx
