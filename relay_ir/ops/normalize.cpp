// Softmax and the normalisations.
#include <algorithm>

#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

using Context = OnnxNodeContext;
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
  op.attributes = {{"axis", int64_t{-1}, false, "the axis that sums to 1"}};
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
                                          return call(Intrinsic::exp, {shifted(with(s, axis, r[0]))});
                                        });
      return {te::compute(name, x.shape(), {x, largest, sum}, [&](const te::Indices& i) {
        return cast(dtype, shifted(i) - call(Intrinsic::log, {sum(without(i, axis))}));
      })};
    }
    const te::Tensor power = te::compute(name + "_exp", x.shape(), {x, largest},
                                         [&](const te::Indices& i) { return call(Intrinsic::exp, {shifted(i)}); });
    const te::Tensor sum =
        te::reduce(name + "_sum", rows, {extent}, te::Combiner::sum, {power},
                   [&](const te::Indices& s, const te::Indices& r) { return power(with(s, axis, r[0])); });
    // One division a row.
    return {te::compute(name, x.shape(), {power, sum}, [&](const te::Indices& i) {
      return cast(dtype, power(i) * (float_imm(wide, 1) / sum(without(i, axis))));
    })};
  };
  op.examples = {{{tensor_type(f32, {2, 5})}, {}},
                 {{tensor_type(f16, {2, 3, 4})}, attributes_of({{"axis", int64_t{1}}})}};
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
  op.max_inputs = is_rms ? 2 : 3;
  op.attributes = {{"axis", int64_t{-1}, false, "first of the normalised axes"},
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
      for (int d = 0; d < x.rank(); ++d) c.require(is_same_dim(shape[d], x.shape[d]), "scale and bias broadcast to x");
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
                 {{tensor_type(f16, {2, 3, 4})}, attributes_of({{"axis", int64_t{1}}, {"epsilon", 1e-3}})}};
  if (!is_rms) op.examples.push_back({{tensor_type(f32, {2, 6}), tensor_type(f32, {6}), tensor_type(f32, {6})}, {}});
  return op;
}

// Before opset 13 the axes from `axis` on are one.
OnnxRule softmax_rule(const std::string& op_type, const std::string& op, int since) {
  return rule(op_type, since, [=](Context& c) {
    const ValueId x = c.input(0);
    const int rank = rank_of(c, x);
    if (rank == 0) return c.emit(op, {emit_reshape(c, x, {1})});
    const int axis = rule_axis(c, c.attribute_int("axis", since < 13 ? 1 : -1), rank);
    if (since >= 13 || axis == rank - 1) return c.emit(op, {x}, attributes_of({{"axis", int64_t{axis}}}));
    const std::vector<Expr>& dims = c.type(x).shape;
    const std::vector<Expr> all = dims, matrix{simplify(product_of({dims.begin(), dims.begin() + axis})),
                                               simplify(product_of({dims.begin() + axis, dims.end()}))};
    return emit_reshape_open(c, c.emit(op, {emit_reshape_open(c, x, matrix)}), all);
  });
}

ValueId hardmax(Context& c, ValueId x, int axis) {
  const int64_t extent = dims_of(c, x)[axis];
  const ValueId best = c.emit("arg_max", {x}, attributes_of({{"axis", int64_t{axis}}}));
  Ints positions, shape(rank_of(c, x) - axis, 1);
  for (int64_t i = 0; i < extent; ++i) positions.push_back(i);
  shape[0] = extent;
  return emit_cast(c, c.emit("equal", {best, emit_ints(c, positions, shape, i64)}), dtype_of(c, x));
}

OnnxRule hardmax_rule(int since) {
  return rule("Hardmax", since, [=](Context& c) {
    const ValueId x = c.input(0);
    const int rank = rank_of(c, x), axis = rule_axis(c, c.attribute_int("axis", since < 13 ? 1 : -1), rank);
    if (since >= 13) return hardmax(c, x, axis);
    const Ints dims = dims_of(c, x);
    int64_t rows = 1, columns = 1;
    for (int i = 0; i < rank; ++i) (i < axis ? rows : columns) *= dims[i];
    return emit_reshape(c, hardmax(c, emit_reshape(c, x, {rows, columns}), 1), dims);
  });
}

// y = x · (scale / √(variance + ε)) + (bias - mean · that): with constant parameters one multiply and one add a
// channel.
std::vector<ValueId> import_batch_norm(Context& c) {
  if (c.attribute_int("training_mode", 0) != 0) c.refuse("training_mode=1");
  if (c.attribute_int("spatial", 1) != 1) c.refuse("spatial=0");
  for (size_t i = 1; i < c.output_count(); ++i) {
    if (c.wants_output(i)) c.refuse("its statistics as outputs");
  }
  const ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  if (rank < 2) c.refuse("data of rank " + std::to_string(rank));
  const DType parameter = dtype_of(c, c.input(4)), wide = accumulator_of(parameter);
  auto read = [&](size_t i) { return emit_cast(c, c.input(i), wide); };
  const ValueId variance = emit_binary(c, "add", read(4), emit_scalar(c, wide, c.attribute_float("epsilon", 1e-5)));
  const ValueId factor = emit_binary(c, "divide", read(1), c.emit("sqrt", {variance}));
  const ValueId shift = emit_binary(c, "subtract", read(2), emit_binary(c, "multiply", read(3), factor));
  const DType dtype = dtype_of(c, x);
  const DType at = is_half(dtype) ? f32 : dtype;
  const ValueId scaled =
      emit_binary(c, "multiply", emit_cast(c, x, at), emit_along_axis(c, emit_cast(c, factor, at), 1, rank));
  return {emit_cast(c, emit_binary(c, "add", scaled, emit_along_axis(c, emit_cast(c, shift, at), 1, rank)), dtype)};
}

// Statistics over groups of channels and all of space; scale and bias belong to channels (or, before opset 21, to
// groups).
ValueId group_norm(Context& c, int64_t groups, double epsilon, bool parameters_of_groups) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  const auto channels = dims.size() < 2 ? std::nullopt : as_int(dims[1]);
  if (!channels || groups < 1 || *channels % groups != 0) c.refuse("groups that do not divide the channels");
  Expr rest(*channels / groups);
  for (size_t i = 2; i < dims.size(); ++i) rest = rest * dims[i];
  return in_accumulator(c, x, [&](ValueId wide) {
    ValueId y = c.emit("layer_norm", {emit_reshape_open(c, wide, {dims[0], Expr(groups), simplify(rest)})},
                       attributes_of({{"axis", int64_t{2}}, {"epsilon", epsilon}}));
    const DType dtype = dtype_of(c, wide);
    auto parameter = [&](size_t i, int rank) { return emit_along_axis(c, emit_cast(c, c.input(i), dtype), 1, rank); };
    if (parameters_of_groups) {
      y = emit_binary(c, "add", emit_binary(c, "multiply", y, parameter(1, 3)), parameter(2, 3));
      return emit_reshape_open(c, y, dims);
    }
    y = emit_reshape_open(c, y, dims);
    const int rank = static_cast<int>(dims.size());
    return emit_binary(c, "add", emit_binary(c, "multiply", y, parameter(1, rank)), parameter(2, rank));
  });
}

struct Statistics {
  ValueId mean, deviation;  // of the axes from `axis` on, kept with extent 1; deviation is 1 / √(variance + ε)
};

Statistics statistics(Context& c, ValueId x, int axis, double epsilon) {
  std::vector<int> axes;
  for (int i = axis; i < rank_of(c, x); ++i) axes.push_back(i);
  const ValueId mean = emit_reduce(c, "reduce_mean", x, axes, true);
  const ValueId centred = emit_binary(c, "subtract", x, mean);
  const ValueId variance = emit_reduce(c, "reduce_mean", emit_binary(c, "multiply", centred, centred), axes, true);
  const DType dtype = dtype_of(c, x);
  return {mean,
          c.emit("reciprocal", {c.emit("sqrt", {emit_binary(c, "add", variance, emit_scalar(c, dtype, epsilon))})})};
}

std::vector<ValueId> layer_norm(Context& c, ValueId x, std::vector<ValueId> parameters, int64_t axis, double epsilon) {
  parameters.insert(parameters.begin(), x);
  while (parameters.back() == no_value) parameters.pop_back();
  return {c.emit("layer_norm", parameters, attributes_of({{"axis", axis}, {"epsilon", epsilon}}))};
}

std::vector<ValueId> import_layer_norm(Context& c) {
  const ValueId x = c.input(0);
  const int axis = rule_axis(c, c.attribute_int("axis", -1), rank_of(c, x));
  const double epsilon = c.attribute_float("epsilon", 1e-5);
  if (c.attribute_int("stash_type", 1) != 1) c.refuse("stash_type other than 1");
  std::vector<ValueId> results = layer_norm(c, x, {c.input(1), c.has_input(2) ? c.input(2) : no_value}, axis, epsilon);
  if (c.wants_output(1) || c.wants_output(2)) {
    const Statistics s = statistics(c, emit_cast(c, x, accumulator_of(dtype_of(c, x))), axis, epsilon);
    results.push_back(s.mean);
    results.push_back(s.deviation);
  }
  return results;
}

std::vector<ValueId> import_rms_norm(Context& c) {
  if (c.attribute_int("stash_type", 1) != 1) c.refuse("stash_type other than 1");
  const ValueId x = c.input(0);
  const int axis = rule_axis(c, c.attribute_int("axis", -1), rank_of(c, x));
  return {c.emit("rms_norm", {x, c.input(1)},
                 attributes_of({{"axis", int64_t{axis}}, {"epsilon", c.attribute_float("epsilon", 1e-5)}}))};
}

// y = x / (bias + alpha / size · Σ x² over neighbouring channels)^beta
ValueId import_lrn(Context& c) {
  const int64_t size = c.attribute_int("size", 0);
  if (size < 1) c.refuse("size=" + std::to_string(size));
  const Ints dims = dims_of(c, c.input(0));
  if (dims.size() < 2) c.refuse("data of rank below 2");
  int64_t rest = 1;
  for (size_t i = 2; i < dims.size(); ++i) rest *= dims[i];
  return in_accumulator(c, c.input(0), [&](ValueId x) {
    const DType dtype = dtype_of(c, x);
    auto number = [&](double value) { return emit_scalar(c, dtype, value); };
    const ValueId squares = emit_reshape(c, emit_binary(c, "multiply", x, x), {dims[0], 1, dims[1], rest});
    const ValueId sums =
        c.emit("sum_pool", {squares},
               attributes_of({{"kernel", Ints{size, 1}}, {"pads", Ints{(size - 1) / 2, 0, size / 2, 0}}}));
    const ValueId mean = emit_binary(c, "multiply", emit_reshape(c, sums, dims),
                                     number(c.attribute_float("alpha", 1e-4) / static_cast<double>(size)));
    const ValueId base = emit_binary(c, "add", mean, number(c.attribute_float("bias", 1)));
    return emit_binary(c, "divide", x, emit_binary(c, "power", base, number(c.attribute_float("beta", 0.75))));
  });
}

ValueId import_lp_normalization(Context& c) {
  const int64_t p = c.attribute_int("p", 2);
  if (p != 1 && p != 2) c.refuse("p=" + std::to_string(p));
  const int axis = rule_axis(c, c.attribute_int("axis", -1), rank_of(c, c.input(0)));
  return in_accumulator(c, c.input(0), [&](ValueId x) {
    const DType dtype = dtype_of(c, x);
    const ValueId terms = p == 1 ? c.emit("abs", {x}) : emit_binary(c, "multiply", x, x);
    ValueId norm = emit_reduce(c, "reduce_sum", terms, {axis}, true);
    if (p == 2) norm = c.emit("sqrt", {norm});
    const ValueId zero = emit_scalar(c, dtype, 0), is_zero = emit_binary(c, "equal", norm, zero);
    return c.emit("where", {is_zero, zero, emit_binary(c, "divide", x, norm)});
  });
}

ValueId import_mean_variance(Context& c) {
  const Ints given = c.attribute_ints("axes", {0, 2, 3});
  const std::vector<int> axes = rule_axes(c, given, rank_of(c, c.input(0)));
  return in_accumulator(c, c.input(0), [&](ValueId x) {
    const ValueId centred = emit_binary(c, "subtract", x, emit_reduce(c, "reduce_mean", x, axes, true));
    const ValueId variance = emit_reduce(c, "reduce_mean", emit_binary(c, "multiply", centred, centred), axes, true);
    return emit_binary(c, "divide", centred,
                       emit_binary(c, "add", c.emit("sqrt", {variance}), emit_scalar(c, dtype_of(c, x), 1e-9)));
  });
}

// x + skip (+ bias), normalised.  The sum is the fourth result.
std::vector<ValueId> import_skip_norm(Context& c, bool is_rms) {
  ValueId sum = emit_binary(c, "add", c.input(0), c.input(1));
  const size_t bias = is_rms ? 3 : 4;
  if (c.has_input(bias)) sum = emit_binary(c, "add", sum, c.input(bias));
  if (c.wants_output(1) || c.wants_output(2)) c.refuse("its statistics as outputs");
  const double epsilon = c.attribute_float("epsilon", 1e-5);
  const ValueId y = is_rms ? c.emit("rms_norm", {sum, c.input(2)}, attributes_of({{"epsilon", epsilon}}))
                           : layer_norm(c, sum, {c.input(2), c.has_input(3) ? c.input(3) : no_value}, -1, epsilon)[0];
  return {y, no_value, no_value, sum};
}

}  // namespace

OpFamily normalize_family() {
  OpFamily family;
  family.ops = {softmax_op(false), softmax_op(true), layer_norm_op(false), layer_norm_op(true)};
  const std::string microsoft = "com.microsoft";
  family.onnx_rules = {
      softmax_rule("Softmax", "softmax", 1),
      softmax_rule("Softmax", "softmax", 13),
      softmax_rule("LogSoftmax", "log_softmax", 1),
      softmax_rule("LogSoftmax", "log_softmax", 13),
      hardmax_rule(1),
      hardmax_rule(13),
      {"BatchNormalization", "", 7, import_batch_norm},
      rule("InstanceNormalization", 6,
           [](Context& c) {
             const Ints dims = dims_of(c, c.input(0));
             return group_norm(c, dims.size() < 2 ? 0 : dims[1], c.attribute_float("epsilon", 1e-5), false);
           }),
      rule("GroupNormalization", 18,
           [](Context& c) {
             const int64_t groups = c.attribute_int("num_groups", 0);
             return group_norm(c, groups, c.attribute_float("epsilon", 1e-5), c.opset() < 21);
           }),
      {"LayerNormalization", "", 1, import_layer_norm},
      {"RMSNormalization", "", 23, import_rms_norm},
      {"SimplifiedLayerNormalization", "", 1, import_rms_norm},
      rule("LRN", 1, import_lrn),
      rule("LpNormalization", 1, import_lp_normalization),
      rule("MeanVarianceNormalization", 9, import_mean_variance),
      rule_of_domain(microsoft, "SkipLayerNormalization", [](Context& c) { return import_skip_norm(c, false); }),
      rule_of_domain(microsoft, "SkipSimplifiedLayerNormalization",
                     [](Context& c) { return import_skip_norm(c, true); }),
  };
  return family;
}

}  // namespace tw::relay
