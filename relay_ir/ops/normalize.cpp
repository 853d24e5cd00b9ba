// Softmax and the normalisations.
#include <algorithm>

#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

te::Indices without(const te::Indices& indices, int axis) {
  te::Indices result = indices;
  result.erase(result.begin() + axis);
  return result;
}

te::Indices with(const te::Indices& indices, int axis, const Expr& index) {
  te::Indices result = indices;
  result.insert(result.begin() + axis, index);
  return result;
}
// From the first axis on that is normalised, or along that one alone, every result reads all.
AxisUses normalised_axes(const OpCall& c, bool is_one_axis) {
  AxisUses uses = broadcast_axes(c);
  const int rank = c.inputs[0].rank(), axis = normal_axis(c, c.attributes.get_int("axis"), rank);
  for (int d = axis; d < (is_one_axis ? axis + 1 : rank); ++d) uses[0][d] = whole_axis(d);
  return uses;
}

// Stages: largest, e^(x - largest), its sum, quotient.  The logarithm: largest, sum of e^(x - largest), x - largest -
// log.
OpDef softmax_op(bool is_log) {
  OpDef op;
  op.name = is_log ? "log_softmax" : "softmax";
  op.kind = OpKind::composite;
  op.doc = is_log ? "log(eˣ / Σ eˣ) along an axis." : "eˣ / Σ eˣ along an axis.";
  op.input_names = {"x"};
  op.attributes = {{"axis", -1, false, "the axis that sums to 1"}};
  op.facts = plain_facts([](const OpCall& c) { return normalised_axes(c, true); }, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    c.require(c.inputs[0].dtype.is_float(), "takes floats");
    normal_axis(c, c.attributes.get_int("axis"), c.inputs[0].rank());
    return {c.inputs[0]};
  };
  op.compute = [is_log, name = op.name](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    const DType dtype = x.dtype(), wide = accumulator_of(dtype);
    std::vector<Expr> rows = x.shape();
    rows.erase(rows.begin() + axis);
    const Expr extent = x.shape()[axis];
    const te::Tensor largest =
        te::reduce(name + "_max", rows, {extent}, te::Combiner::max, {x},
                   [&](const te::Indices& s, const te::Indices& r) { return cast(wide, x(with(s, axis, r[0]))); });
    auto shifted = [&](const te::Indices& i) { return cast(wide, x(i)) - largest(without(i, axis)); };
    if (is_log) {
      const te::Tensor sum = te::reduce(name + "_sum", rows, {extent}, te::Combiner::sum, {x, largest},
                                        [&](const te::Indices& s, const te::Indices& r) {
                                          return call(Intrinsic::exp_nonpositive, {shifted(with(s, axis, r[0]))});
                                        });
      return {te::compute(name, x.shape(), {x, largest, sum}, [&](const te::Indices& i) {
        return cast(dtype, shifted(i) - call(Intrinsic::log, {sum(without(i, axis))}));
      })};
    }
    const te::Tensor power = te::compute(name + "_exp", x.shape(), {x, largest}, [&](const te::Indices& i) {
      return call(Intrinsic::exp_nonpositive, {shifted(i)});
    });
    const te::Tensor sum =
        te::reduce(name + "_sum", rows, {extent}, te::Combiner::sum, {power},
                   [&](const te::Indices& s, const te::Indices& r) { return power(with(s, axis, r[0])); });
    // One division a row.
    return {te::compute(name, x.shape(), {power, sum}, [&](const te::Indices& i) {
      return cast(dtype, power(i) * (float_imm(wide, 1) / sum(without(i, axis))));
    })};
  };
  op.examples = {{{tensor_type(f32, {2, 5})}, {}}, {{tensor_type(f16, {2, 3, 4})}, attributes_of({{"axis", 1}})}};
  return op;
}

// (x - mean) / √(variance + ε), or x / √(mean of squares + ε), over the axes from `axis` on, then scale and bias.
OpDef layer_norm_op(bool is_rms) {
  OpDef op;
  op.name = is_rms ? "rms_norm" : "layer_norm";
  op.kind = OpKind::composite;
  op.doc = is_rms ? "x / √(mean of x² + epsilon) over the axes from `axis` on, times scale."
                  : "(x - mean) / √(variance + epsilon) over the axes from `axis` on, times scale, plus bias.";
  op.doc += "  scale and bias broadcast to x.  f16 and bf16 are computed in f32.";
  op.input_names = {"x", "scale", "bias"};
  if (is_rms) op.input_names.pop_back();
  op.optional_inputs = is_rms ? 1 : 2;
  op.attributes = {{"axis", -1, false, "first of the normalised axes"},
                   {"epsilon", 1e-5, false, "added to the variance"}};
  op.facts = plain_facts([](const OpCall& c) { return normalised_axes(c, false); }, Rounding::widens, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType& x = c.inputs[0];
    c.require(x.dtype.is_float(), "takes floats");
    normal_axis(c, c.attributes.get_int("axis"), x.rank());
    for (size_t i = 1; i < c.inputs.size(); ++i) {
      if (!c.has_input(i)) continue;
      c.require(c.inputs[i].dtype.is_float(), "scale and bias are floats");
      c.require(c.inputs[i].rank() <= x.rank(), "scale and bias broadcast to x");
      const std::vector<Expr> shape = broadcast_shapes(c, {x.shape, c.inputs[i].shape});
      for (int d = 0; d < x.rank(); ++d) c.require_equal(shape[d], x.shape[d], "scale and bias broadcast to x");
    }
    return {x};
  };
  op.compute = [is_rms, name = op.name](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    const DType dtype = x.dtype(), wide = accumulator_of(dtype);
    const std::vector<Expr> rows(x.shape().begin(), x.shape().begin() + axis),
        extents(x.shape().begin() + axis, x.shape().end());
    const Expr count = cast(wide, product_of(extents)), epsilon = float_imm(wide, c.attributes.get_float("epsilon"));
    auto row = [&](const te::Indices& i) { return te::Indices(i.begin(), i.begin() + axis); };
    auto join = [](te::Indices s, const te::Indices& r) {
      s.insert(s.end(), r.begin(), r.end());
      return s;
    };
    te::Tensor mean;
    if (!is_rms) {
      const te::Tensor sum =
          te::reduce(name + "_sum", rows, extents, te::Combiner::sum, {x},
                     [&](const te::Indices& s, const te::Indices& r) { return cast(wide, x(join(s, r))); });
      mean = te::compute(name + "_mean", rows, {sum}, [&](const te::Indices& s) { return sum(s) / count; });
    }
    std::vector<te::Tensor> of_x{x};
    if (mean.is_defined()) of_x.push_back(mean);
    auto centred = [&](const te::Indices& i) {
      const Expr value = cast(wide, x(i));
      return mean.is_defined() ? value - mean(row(i)) : value;
    };
    const te::Tensor squares = te::reduce(name + "_squares", rows, extents, te::Combiner::sum, of_x,
                                          [&](const te::Indices& s, const te::Indices& r) {
                                            const Expr value = centred(join(s, r));
                                            return value * value;
                                          });
    const te::Tensor factor = te::compute(name + "_factor", rows, {squares}, [&](const te::Indices& s) {
      return float_imm(wide, 1) / call(Intrinsic::sqrt, {squares(s) / count + epsilon});
    });
    std::vector<te::Tensor> uses = of_x;
    uses.push_back(factor);
    for (size_t i = 1; i < in.size(); ++i) {
      if (in[i].is_defined()) uses.push_back(in[i]);
    }
    return {te::compute(name, x.shape(), uses, [&](const te::Indices& i) {
      Expr y = centred(i) * factor(row(i));
      if (c.has_input(1)) y = y * cast(wide, broadcast_read(in[1], i, c.outputs[0].shape));
      if (c.has_input(2)) y = y + cast(wide, broadcast_read(in[2], i, c.outputs[0].shape));
      return cast(dtype, y);
    })};
  };
  op.examples = {{{tensor_type(f32, {2, 6}), tensor_type(f32, {6})}, {}},
                 {{tensor_type(f16, {2, 3, 4})}, attributes_of({{"axis", 1}, {"epsilon", 1e-3}})}};
  if (!is_rms) op.examples.push_back({{tensor_type(f32, {2, 6}), tensor_type(f32, {6}), tensor_type(f32, {6})}, {}});
  return op;
}

}  // namespace

std::vector<OpDef> normalize_family() {
  return {softmax_op(false), softmax_op(true), layer_norm_op(false), layer_norm_op(true)};
}

}  // namespace tw::relay
