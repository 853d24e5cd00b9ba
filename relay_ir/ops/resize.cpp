// Resize and Upsample: interpolation along one axis at a time, from tables that the rule computes.
#include <algorithm>
#include <cmath>
#include <utility>

#include "relay_ir/ops/common.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;
AxisUses interpolate_axes(const OpCall& c) {
  AxisUses uses = aligned_axes(c);
  const int axis = normal_axis(c, c.attributes.get_int("axis"), c.inputs[0].rank());
  uses[0][axis] = {.kind = AxisUse::Kind::window, .axis = axis};
  for (const size_t table : {1, 2}) {
    uses[table].assign(uses[0].size(), fixed_axis());
    uses[table][axis] = same_axis(0);
  }
  return uses;
}

OpDef interpolate_op() {
  OpDef op;
  op.name = "interpolate";
  op.kind = OpKind::reduction;
  op.doc =
      "Along an axis: y[…, o, …] = Σₜ weights[o, t] · x[…, indices[o, t], …], with tables of constants.  f16 and bf16 "
      "accumulate in f32.";
  op.input_names = {"x", "indices", "weights"};
  op.attributes = {{"axis", 0, true, "the axis that is interpolated"}};
  op.facts = plain_facts(interpolate_axes, Rounding::exact, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    TensorType y = c.inputs[0];
    c.require(y.dtype.is_float(), "takes floats");
    c.require(c.inputs[1].dtype == i64 && c.inputs[1].rank() == 2, "indices are i64 [out, taps]");
    c.require(c.inputs[2].dtype == accumulator_of(y.dtype) && c.inputs[2].rank() == 2,
              "weights are floats [out, taps]");
    const int axis = normal_axis(c, c.attributes.get_int("axis"), y.rank());
    const Expr extent = std::exchange(y.shape[axis], c.inputs[1].shape[0]);
    if (as_int(y.shape[axis]).value_or(0) > 0) c.require_at_most(Expr(1), extent, "the axis is empty");
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    const DType wide = accumulator_of(x.dtype());
    const te::Tensor sum = te::reduce("interpolate", c.outputs[0].shape, {in[1].shape()[1]}, te::Combiner::sum, in,
                                      [&](const te::Indices& s, const te::Indices& r) {
                                        te::Indices i = s;
                                        i[axis] = data_index(in[1]({s[axis], r[0]}), x.shape()[axis]);
                                        return cast(wide, x(i)) * in[2]({s[axis], r[0]});
                                      });
    return {cast_stage(sum, x.dtype())};
  };
  op.examples = {{{tensor_type(f32, {2, 3}), tensor_type(i64, {2, 2}), tensor_type(f32, {2, 2})},
                  attributes_of({{"axis", 1}}),
                  {NDArray(), int_array({0, 1, 1, 2}).reshape({2, 2})}}};
  return op;
}

}  // namespace

std::vector<OpDef> resize_family() {
  return {interpolate_op()};
}

}  // namespace tw::relay
