// Reductions over axes, arg max, and what ONNX composes from them.
#include <cmath>

#include "relay_ir/ops/common.h"

namespace tw::relay {
namespace {

using Context = OnnxNodeContext;

std::vector<Expr> reduced_shape(const std::vector<Expr>& shape, const std::vector<int>& axes, bool keepdims) {
  std::vector<Expr> result;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    if (!contains(axes, i))
      result.push_back(shape[i]);
    else if (keepdims)
      result.emplace_back(1);
  }
  return result;
}

std::vector<int> axes_of_call(const OpCall& c) {
  return normal_axes(c, c.attributes.get_ints("axes"), c.inputs[0].rank());
}

// Input indices from the output's and the reduced ones.
te::Indices merge(int rank, const std::vector<int>& axes, bool keepdims, const te::Indices& s, const te::Indices& r) {
  te::Indices result;
  size_t next_spatial = 0, next_reduce = 0;
  for (int i = 0; i < rank; ++i) {
    if (contains(axes, i)) {
      result.push_back(r[next_reduce++]);
      if (keepdims) ++next_spatial;
    } else {
      result.push_back(s[next_spatial++]);
    }
  }
  return result;
}

te::Tensor reduce_axes(const OpCall& c, const std::string& name, te::Combiner combiner, const te::Tensor& x) {
  const std::vector<int> axes = axes_of_call(c);
  const bool keepdims = c.attributes.get_int("keepdims") != 0;
  std::vector<Expr> extents;
  for (const int axis : axes) extents.push_back(x.shape()[axis]);
  const DType accumulator = accumulator_of(x.dtype());
  return te::reduce(name, reduced_shape(x.shape(), axes, keepdims), extents, combiner, {x},
                    [&](const te::Indices& s, const te::Indices& r) {
                      return cast(accumulator, x(merge(x.rank(), axes, keepdims, s, r)));
                    });
}
AxisUses reduced_axes(const OpCall& c, const std::vector<int>& axes) {
  AxisUses uses = unknown_axes(c);
  const bool keepdims = c.attributes.get_int("keepdims") != 0;
  size_t to = 0;
  for (int axis = 0; axis < c.inputs[0].rank(); ++axis) {
    const bool is_reduced = contains(axes, axis);
    if (!is_reduced || keepdims) uses[0][to++] = is_reduced ? whole_axis(axis) : same_axis(axis);
  }
  return uses;
}

OpDef reduce_op(const std::string& name, Rounding rounding, const std::string& doc, te::Combiner combiner,
                bool is_mean = false) {
  OpDef op;
  op.name = name;
  op.kind = OpKind::reduction;
  op.doc = doc + "  f16 and bf16 accumulate in f32.";
  op.input_names = {"x"};
  op.attributes = {{"axes", std::vector<int64_t>{}, true, "the axes that are reduced"},
                   {"keepdims", int64_t{1}, false, "1: they stay, with extent 1"}};
  const bool is_logical = combiner == te::Combiner::logical_and || combiner == te::Combiner::logical_or;
  op.facts = plain_facts([](const OpCall& c) { return reduced_axes(c, axes_of_call(c)); }, rounding);
  op.infer = [is_logical](const OpCall& c) -> std::vector<TensorType> {
    c.require(c.inputs[0].dtype.is_bool() == is_logical, is_logical ? "takes bools" : "takes numbers");
    const std::vector<int> axes = axes_of_call(c);
    return {{c.inputs[0].dtype, reduced_shape(c.inputs[0].shape, axes, c.attributes.get_int("keepdims") != 0)}};
  };
  op.compute = [=](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    te::Tensor result = reduce_axes(c, name, combiner, in[0]);
    if (is_mean) {
      std::vector<Expr> extents;
      for (const int axis : axes_of_call(c)) extents.push_back(in[0].shape()[axis]);
      const te::Tensor sum = result;
      const Expr count = product_of(extents);
      result = te::compute(name, sum.shape(), {sum}, [&](const te::Indices& i) {
        return cast(in[0].dtype(), sum(i) / cast(sum.dtype(), count));
      });
    }
    return {cast_stage(result, in[0].dtype())};
  };
  for (const DType dtype : is_logical ? std::vector<DType>{boolean} : std::vector<DType>{f32, f16, i32}) {
    op.examples.push_back({{tensor_type(dtype, {2, 3, 4})}, attributes_of({{"axes", std::vector<int64_t>{1}}})});
    op.examples.push_back({{tensor_type(dtype, {2, 3, 4})},
                           attributes_of({{"axes", std::vector<int64_t>{0, -1}}, {"keepdims", int64_t{0}}})});
  }
  return op;
}

// Two stages: the extremum, then the first (or last) index that has it.  NaN counts as the extremum.
OpDef arg_op(const std::string& name, bool is_max) {
  OpDef op;
  op.name = name;
  op.kind = OpKind::composite;
  op.doc = std::string("Index of the ") + (is_max ? "largest" : "smallest") + " element along an axis, as i64.";
  op.input_names = {"x"};
  op.attributes = {{"axis", int64_t{0}, true, "the axis that is searched"},
                   {"keepdims", int64_t{1}, false, "1: it stays, with extent 1"},
                   {"select_last", int64_t{0}, false, "1: of equals the last"}};
  op.facts = plain_facts(
      [](const OpCall& c) {
        return reduced_axes(c, {normal_axis(c, c.attributes.get_int("axis"), c.inputs[0].rank())});
      },
      Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType& x = c.inputs[0];
    c.require(!x.dtype.is_bool(), "takes numbers");
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    c.require(!is_const_int(x.shape[axis], 0), "the axis is empty");
    return {{i64, reduced_shape(x.shape, {axis}, c.attributes.get_int("keepdims") != 0)}};
  };
  op.compute = [=](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    const bool keepdims = c.attributes.get_int("keepdims") != 0, last = c.attributes.get_int("select_last") != 0;
    const std::vector<Expr>& shape = c.outputs[0].shape;
    const Expr extent = x.shape()[axis];
    const te::Tensor best = te::reduce(
        name + "_value", shape, {extent}, is_max ? te::Combiner::max : te::Combiner::min, {x},
        [&](const te::Indices& s, const te::Indices& r) { return x(merge(x.rank(), {axis}, keepdims, s, r)); });
    return {te::reduce(name, shape, {extent}, last ? te::Combiner::max : te::Combiner::min, {x, best},
                       [&](const te::Indices& s, const te::Indices& r) {
                         const Expr value = x(merge(x.rank(), {axis}, keepdims, s, r));
                         Expr is_best = equal(value, best(s));
                         if (value.dtype().is_float()) is_best = is_best || call(Intrinsic::is_nan, {value});
                         return select(is_best, r[0], last ? Expr(-1) : extent);
                       })};
  };
  op.examples = {{{tensor_type(f32, {3, 4})}, attributes_of({{"axis", int64_t{1}}})},
                 {{tensor_type(i32, {3, 4})},
                  attributes_of({{"axis", int64_t{0}}, {"keepdims", int64_t{0}}, {"select_last", int64_t{1}}})}};
  return op;
}

struct ReduceArguments {
  ValueId x;
  std::vector<int> axes;
  bool keepdims;
  bool is_noop;
};

ReduceArguments arguments_of(Context& c) {
  const ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  ReduceArguments result{x, rule_axes(c, axes_of(c, 1), rank), c.attribute_int("keepdims", 1) != 0, false};
  if (result.axes.empty()) {
    result.is_noop = c.attribute_int("noop_with_empty_axes", 0) != 0;
    if (!result.is_noop) {
      for (int i = 0; i < rank; ++i) result.axes.push_back(i);
    }
  }
  return result;
}

using Step = ValueId (*)(Context&, ValueId);

// before(x), reduced, after(…).  With noop_with_empty_axes only the elementwise steps remain.
OnnxRule reduce_rule(const std::string& op_type, const std::string& op, Step before = nullptr, Step after = nullptr) {
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

OnnxRule extremum_rule(const std::string& op_type, const std::string& of_numbers, const std::string& of_bools) {
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

OnnxRule arg_rule(const std::string& op_type, const std::string& op) {
  return rule(op_type, 1, [=](Context& c) {
    const ValueId x = c.input(0);
    return c.emit(op, {x},
                  attributes_of({{"axis", int64_t{rule_axis(c, c.attribute_int("axis", 0), rank_of(c, x))}},
                                 {"keepdims", c.attribute_int("keepdims", 1)},
                                 {"select_last", c.attribute_int("select_last_index", 0)}}));
  });
}

}  // namespace

OpFamily reduce_family() {
  OpFamily family;
  family.ops = {
      reduce_op("reduce_sum", Rounding::keeps, "Sum over axes.", te::Combiner::sum),
      reduce_op("reduce_mean", Rounding::keeps, "Arithmetic mean over axes.", te::Combiner::sum, true),
      reduce_op("reduce_prod", Rounding::exact, "Product over axes.", te::Combiner::product),
      reduce_op("reduce_max", Rounding::keeps, "Largest element over axes.", te::Combiner::max),
      reduce_op("reduce_min", Rounding::keeps, "Smallest element over axes.", te::Combiner::min),
      reduce_op("reduce_all", Rounding::exact, "Whether all elements over axes hold.", te::Combiner::logical_and),
      reduce_op("reduce_any", Rounding::exact, "Whether any element over axes holds.", te::Combiner::logical_or),
      arg_op("arg_max", true),
      arg_op("arg_min", false),
  };
  family.onnx_rules = {
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
  return family;
}

}  // namespace tw::relay
