// Reductions over axes, and what is composed from them.
#include <cmath>

#include "frontends/computed.h"
#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

struct ReduceArguments {
  ValueId x;
  std::vector<int> axes;
  bool keepdims;
  bool is_noop;
  ValueId computed = no_value;  // bool[rank]: which axes, where only a run knows them
  int computed_count = 0;
};

ReduceArguments arguments_of(Context& c) {
  const ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  ReduceArguments result{x, {}, c.attribute_int("keepdims", 1) != 0, false};
  // As many axes as there are, whatever their order: all of them.
  const bool has_all =
      c.has_input(1) && !c.is_known(1) && rank > 0 && is_const_int(product_of(c.type(c.input(1)).shape), rank);
  if (c.has_input(1) && !c.is_known(1) && !has_all && rank > 0) {
    result.computed_count = c.count_items(c.input(1));
    result.computed = emit_is_chosen(c, c.input(1), rank);
    return result;
  }
  result.axes = has_all ? axes_from(c, x) : rule_axes(c, axes_of(c, 1), rank);
  if (result.axes.empty()) {
    result.is_noop = c.attribute_int("noop_with_empty_axes", 0) != 0;
    if (!result.is_noop) result.axes = axes_from(c, x);
  }
  return result;
}

using Reduction = std::function<ValueId(ValueId x, const std::vector<int>& axes, bool keepdims)>;

// Axes that only a run knows are taken one after the other: each is reduced and left as it is, and one of both chosen.
ValueId reduce(Context& c, ValueId x, const ReduceArguments& a, const Reduction& by) {
  if (a.computed == no_value) return by(x, a.axes, a.keepdims);
  Integers n(c);
  for (int axis = 0; axis < rank_of(c, x); ++axis) {
    const ValueId is_reduced = n.at(a.computed, axis);
    std::vector<Expr> shape = c.type(x).shape;
    shape[axis] = c.emit_item(n.where(is_reduced, n.number(1), n.size(shape[axis])));
    const ValueId reduced = emit_broadcast_open(c, by(x, {axis}, true), shape);
    const ValueId same =
        c.emit("gather", {x, emit_range(c, shape[axis], {shape[axis]})}, attributes_of({{"axis", int64_t{axis}}}));
    x = c.emit("where", {is_reduced, reduced, same});
  }
  return a.keepdims ? x : emit_squeeze(c, x, a.computed, a.computed_count);
}

Reduction reduction_by(Context& c, const std::string& op) {
  return [&c, op](ValueId x, const std::vector<int>& axes, bool keepdims) {
    return emit_reduce(c, op, x, axes, keepdims);
  };
}

using Step = ValueId (*)(Context&, ValueId);

// before(x), reduced, after(…).  With noop_with_empty_axes only the elementwise steps remain.
Rule reduce_rule(const std::string& op_type, const std::string& op, Step before = nullptr, Step after = nullptr) {
  return rule(op_type, 1, [=](Context& c) {
    const ReduceArguments a = arguments_of(c);
    auto all = [&](ValueId x) {
      if (before) x = before(c, x);
      if (!a.is_noop) x = reduce(c, x, a, reduction_by(c, op));
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
    return reduce(c, a.x, a, reduction_by(c, is_bool ? of_bools : of_numbers));
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
  const Reduction by = [&](ValueId x, const std::vector<int>& axes, bool keepdims) {
    const DType dtype = dtype_of(c, x);
    ValueId largest = emit_reduce(c, "reduce_max", x, axes, true);
    largest = c.emit("where", {c.emit("is_inf", {largest}), emit_scalar(c, dtype, 0), largest});
    const ValueId sum = emit_reduce(c, "reduce_sum", c.emit("exp", {c.emit("subtract", {x, largest})}), axes, true);
    const ValueId result = c.emit("add", {c.emit("log", {sum}), largest});
    if (keepdims) return result;
    std::vector<Expr> shape;
    const std::vector<Expr>& dims = c.type(result).shape;
    for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
      if (!contains(axes, i)) shape.push_back(dims[i]);
    }
    return emit_reshape_open(c, result, shape);
  };
  return in_accumulator(c, a.x, [&](ValueId x) { return reduce(c, x, a, by); });
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
