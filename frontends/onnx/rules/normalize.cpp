// Softmax and the normalisations, composed where they are not operators of ours.
#include <algorithm>

#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

// The axes before `axis` as one, and those from it on.
std::vector<Expr> as_matrix(const std::vector<Expr>& dims, int axis) {
  return {simplify(product_of({dims.begin(), dims.begin() + axis})),
          simplify(product_of({dims.begin() + axis, dims.end()}))};
}

// Before opset 13 the axes from `axis` on are one.
Rule softmax_rule(const std::string& op_type, const std::string& op, int since) {
  return rule(op_type, since, [=](Context& c) {
    const ValueId x = c.input(0);
    const int rank = rank_of(c, x);
    if (rank == 0) return c.emit(op, {emit_reshape(c, x, {1})});
    const int axis = rule_axis(c, c.attribute_int("axis", since < 13 ? 1 : -1), rank);
    if (since >= 13 || axis == rank - 1) return c.emit(op, {x}, attributes_of({{"axis", int64_t{axis}}}));
    const std::vector<Expr> dims = c.type(x).shape;
    return emit_reshape_open(c, c.emit(op, {emit_reshape_open(c, x, as_matrix(dims, axis))}), dims);
  });
}

ValueId hardmax(Context& c, ValueId x, int axis) {
  const Expr extent = c.type(x).shape[axis];
  const ValueId best = c.emit("arg_max", {x}, attributes_of({{"axis", int64_t{axis}}}));
  std::vector<Expr> shape(rank_of(c, x) - axis, Expr(1));
  shape[0] = extent;
  return emit_cast(c, c.emit("equal", {best, emit_range(c, extent, shape)}), dtype_of(c, x));
}

Rule hardmax_rule(int since) {
  return rule("Hardmax", since, [=](Context& c) {
    const ValueId x = c.input(0);
    const int rank = rank_of(c, x), axis = rule_axis(c, c.attribute_int("axis", since < 13 ? 1 : -1), rank);
    if (since >= 13) return hardmax(c, x, axis);
    const std::vector<Expr> dims = c.type(x).shape;
    return emit_reshape_open(c, hardmax(c, emit_reshape_open(c, x, as_matrix(dims, axis)), 1), dims);
  });
}

// y = x · (scale / √(variance + ε)) + (bias - mean · that): with constant parameters one multiply and one add a
// channel.
// In training mode by the statistics of the data, which also come as outputs, joined to those that are given.
std::vector<ValueId> import_batch_norm(Context& c) {
  const bool is_training = c.attribute_int("training_mode", 0) != 0;
  if (c.attribute_int("spatial", 1) != 1) c.refuse("spatial=0");
  if (c.opset() < 7 && c.attribute_int("is_test", 0) == 0) c.refuse("its form for training, is_test=0");
  for (size_t i = is_training ? 3 : 1; i < c.output_count(); ++i) {
    if (c.wants_output(i)) c.refuse("its statistics as outputs");
  }
  const ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  if (rank < 2) c.refuse("data of rank " + std::to_string(rank));
  const DType parameter = dtype_of(c, c.input(4)), wide = accumulator_of(parameter);
  const DType dtype = dtype_of(c, x);
  const DType at = is_half(dtype) ? f32 : dtype;
  auto read = [&](size_t i) { return emit_cast(c, c.input(i), wide); };
  ValueId mean = read(3), variance = read(4);
  std::vector<ValueId> running;
  if (is_training) {
    std::vector<int> others;
    for (int d = 0; d < rank; ++d)
      if (d != 1) others.push_back(d);
    const ValueId data = emit_cast(c, x, at), data_mean = emit_reduce(c, "reduce_mean", data, others, true);
    const ValueId centred = c.emit("subtract", {data, data_mean});
    const ValueId squares = c.emit("multiply", {centred, centred});
    const std::pair<ValueId, ValueId> known{mean, variance};
    mean = emit_cast(c, emit_reduce(c, "reduce_mean", data, others, false), wide);
    variance = emit_cast(c, emit_reduce(c, "reduce_mean", squares, others, false), wide);
    const double momentum = c.attribute_float("momentum", 0.9);
    for (const auto& [given, now] : {std::pair(known.first, mean), std::pair(known.second, variance)}) {
      const ValueId kept = c.emit("multiply", {given, emit_scalar(c, wide, momentum)});
      const ValueId added = c.emit("multiply", {now, emit_scalar(c, wide, 1 - momentum)});
      running.push_back(emit_cast(c, c.emit("add", {kept, added}), parameter));
    }
  }
  const ValueId spread = c.emit("add", {variance, emit_scalar(c, wide, c.attribute_float("epsilon", 1e-5))});
  const ValueId factor = c.emit("divide", {read(1), c.emit("sqrt", {spread})});
  const ValueId shift = c.emit("subtract", {read(2), c.emit("multiply", {mean, factor})});
  const ValueId scaled =
      c.emit("multiply", {emit_cast(c, x, at), emit_along_axis(c, emit_cast(c, factor, at), 1, rank)});
  std::vector<ValueId> results{
      emit_cast(c, c.emit("add", {scaled, emit_along_axis(c, emit_cast(c, shift, at), 1, rank)}), dtype)};
  results.insert(results.end(), running.begin(), running.end());
  return results;
}

// Statistics over groups of channels and all of space; scale and bias belong to channels (or, before opset 21, to
// groups).
ValueId group_norm(Context& c, const Expr& groups, double epsilon, bool parameters_of_groups) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  const std::string why = "groups that do not divide the channels";
  if (dims.size() < 2 || as_int(groups).value_or(1) < 1) c.refuse(why);
  const Expr members = is_same_dim(groups, dims[1]) ? Expr(1) : simplify(floor_div(dims[1], groups));
  if (as_int(dims[1]) && !is_same_dim(dims[1], members * groups)) c.refuse(why);
  c.require_equal(dims[1], simplify(members * groups), why);
  Expr rest = members;
  for (size_t i = 2; i < dims.size(); ++i) rest = rest * dims[i];
  return in_accumulator(c, x, [&](ValueId wide) {
    ValueId y = c.emit("layer_norm", {emit_reshape_open(c, wide, {dims[0], groups, simplify(rest)})},
                       attributes_of({{"axis", int64_t{2}}, {"epsilon", epsilon}}));
    const DType dtype = dtype_of(c, wide);
    auto parameter = [&](size_t i, int rank) { return emit_along_axis(c, emit_cast(c, c.input(i), dtype), 1, rank); };
    if (parameters_of_groups) {
      y = c.emit("add", {c.emit("multiply", {y, parameter(1, 3)}), parameter(2, 3)});
      return emit_reshape_open(c, y, dims);
    }
    y = emit_reshape_open(c, y, dims);
    const int rank = static_cast<int>(dims.size());
    return c.emit("add", {c.emit("multiply", {y, parameter(1, rank)}), parameter(2, rank)});
  });
}

struct Statistics {
  ValueId mean, deviation;  // of the axes from `axis` on, kept with extent 1; deviation is 1 / √(variance + ε)
};

Statistics statistics(Context& c, ValueId x, int axis, double epsilon) {
  const std::vector<int> axes = axes_from(c, x, axis);
  const ValueId mean = emit_reduce(c, "reduce_mean", x, axes, true);
  const ValueId centred = c.emit("subtract", {x, mean});
  const ValueId variance = emit_reduce(c, "reduce_mean", c.emit("multiply", {centred, centred}), axes, true);
  const DType dtype = dtype_of(c, x);
  return {mean, c.emit("reciprocal", {c.emit("sqrt", {c.emit("add", {variance, emit_scalar(c, dtype, epsilon)})})})};
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
    results.push_back(emit_cast(c, s.mean, f32));  // as stash_type says, whatever the data's type
    results.push_back(emit_cast(c, s.deviation, f32));
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
  const std::vector<Expr> dims = c.type(c.input(0)).shape;
  if (dims.size() < 2) c.refuse("data of rank below 2");
  const Expr rest = simplify(product_of({dims.begin() + 2, dims.end()}));
  return in_accumulator(c, c.input(0), [&](ValueId x) {
    const DType dtype = dtype_of(c, x);
    auto number = [&](double value) { return emit_scalar(c, dtype, value); };
    const ValueId squares = emit_reshape_open(c, c.emit("multiply", {x, x}), {dims[0], Expr(1), dims[1], rest});
    const ValueId sums =
        c.emit("sum_pool", {squares},
               attributes_of({{"kernel", Ints{size, 1}}, {"pads", Ints{(size - 1) / 2, 0, size / 2, 0}}}));
    const ValueId mean = c.emit("multiply", {emit_reshape_open(c, sums, dims),
                                             number(c.attribute_float("alpha", 1e-4) / static_cast<double>(size))});
    const ValueId base = c.emit("add", {mean, number(c.attribute_float("bias", 1))});
    return c.emit("divide", {x, c.emit("power", {base, number(c.attribute_float("beta", 0.75))})});
  });
}

ValueId import_lp_normalization(Context& c) {
  const int64_t p = c.attribute_int("p", 2);
  if (p != 1 && p != 2) c.refuse("p=" + std::to_string(p));
  const int axis = rule_axis(c, c.attribute_int("axis", -1), rank_of(c, c.input(0)));
  return in_accumulator(c, c.input(0), [&](ValueId x) {
    const DType dtype = dtype_of(c, x);
    const ValueId terms = p == 1 ? c.emit("abs", {x}) : c.emit("multiply", {x, x});
    ValueId norm = emit_reduce(c, "reduce_sum", terms, {axis}, true);
    if (p == 2) norm = c.emit("sqrt", {norm});
    const ValueId zero = emit_scalar(c, dtype, 0), is_zero = c.emit("equal", {norm, zero});
    return c.emit("where", {is_zero, zero, c.emit("divide", {x, norm})});
  });
}

ValueId import_mean_variance(Context& c) {
  const Ints given = c.attribute_ints("axes", {0, 2, 3});
  const std::vector<int> axes = rule_axes(c, given, rank_of(c, c.input(0)));
  return in_accumulator(c, c.input(0), [&](ValueId x) {
    const ValueId centred = c.emit("subtract", {x, emit_reduce(c, "reduce_mean", x, axes, true)});
    const ValueId variance = emit_reduce(c, "reduce_mean", c.emit("multiply", {centred, centred}), axes, true);
    return c.emit("divide",
                  {centred, c.emit("add", {c.emit("sqrt", {variance}), emit_scalar(c, dtype_of(c, x), 1e-9)})});
  });
}

// x + skip (+ bias), normalised.  The sum is the fourth result.
std::vector<ValueId> import_skip_norm(Context& c, bool is_rms) {
  ValueId sum = c.emit("add", {c.input(0), c.input(1)});
  const size_t bias = is_rms ? 3 : 4;
  if (c.has_input(bias)) sum = c.emit("add", {sum, c.input(bias)});
  if (c.wants_output(1) || c.wants_output(2)) c.refuse("its statistics as outputs");
  const double epsilon = c.attribute_float("epsilon", 1e-5);
  const ValueId y = is_rms ? c.emit("rms_norm", {sum, c.input(2)}, attributes_of({{"epsilon", epsilon}}))
                           : layer_norm(c, sum, {c.input(2), c.has_input(3) ? c.input(3) : no_value}, -1, epsilon)[0];
  return {y, no_value, no_value, sum};
}

}  // namespace

std::vector<Rule> normalize_rules() {
  return {
      softmax_rule("Softmax", "softmax", 1),
      softmax_rule("Softmax", "softmax", 13),
      softmax_rule("LogSoftmax", "log_softmax", 1),
      softmax_rule("LogSoftmax", "log_softmax", 13),
      hardmax_rule(1),
      hardmax_rule(13),
      {"BatchNormalization", "", 1, import_batch_norm},
      rule("InstanceNormalization", 1,
           [](Context& c) {
             const Expr channels = rank_of(c, c.input(0)) < 2 ? Expr(0) : c.type(c.input(0)).shape[1];
             return group_norm(c, channels, c.attribute_float("epsilon", 1e-5), false);
           }),
      rule("GroupNormalization", 18,
           [](Context& c) {
             const int64_t groups = c.attribute_int("num_groups", 0);
             return group_norm(c, Expr(groups), c.attribute_float("epsilon", 1e-5), c.opset() < 21);
           }),
      {"LayerNormalization", "", 1, import_layer_norm},
      {"RMSNormalization", "", 23, import_rms_norm},
      {"SimplifiedLayerNormalization", "", 1, import_rms_norm},
      rule("LRN", 1, import_lrn),
      rule("LpNormalization", 1, import_lp_normalization),
      rule("MeanVarianceNormalization", 9, import_mean_variance),
      {"SkipLayerNormalization", microsoft, 1, [](Context& c) { return import_skip_norm(c, false); }},
      {"SkipSimplifiedLayerNormalization", microsoft, 1, [](Context& c) { return import_skip_norm(c, true); }},
  };
}

}  // namespace tw::frontends::onnx
