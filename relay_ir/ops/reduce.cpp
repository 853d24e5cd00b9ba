// Reductions over axes, and arg max.
#include <cmath>

#include "relay_ir/ops/common.h"

namespace tw::relay {
namespace {

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
                   {"keepdims", 1, false, "1: they stay, with extent 1"}};
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
    op.examples.push_back(
        {{tensor_type(dtype, {2, 3, 4})}, attributes_of({{"axes", std::vector<int64_t>{0, -1}}, {"keepdims", 0}})});
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
  op.attributes = {{"axis", 0, true, "the axis that is searched"},
                   {"keepdims", 1, false, "1: it stays, with extent 1"},
                   {"select_last", 0, false, "1: of equals the last"}};
  op.facts = plain_facts(
      [](const OpCall& c) {
        return reduced_axes(c, {normal_axis(c, c.attributes.get_int("axis"), c.inputs[0].rank())});
      },
      Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType& x = c.inputs[0];
    c.require(!x.dtype.is_bool(), "takes numbers");
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    c.require_at_most(Expr(1), x.shape[axis], "the axis is empty");
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
  op.examples = {{{tensor_type(f32, {3, 4})}, attributes_of({{"axis", 1}})},
                 {{tensor_type(i32, {3, 4})}, attributes_of({{"axis", 0}, {"keepdims", 0}, {"select_last", 1}})}};
  return op;
}

}  // namespace

std::vector<OpDef> reduce_family() {
  return {
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
}

}  // namespace tw::relay
