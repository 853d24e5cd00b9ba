// Random numbers.  ONNX leaves the generator open; ours is that of frontends/random.h.
#include "frontends/random.h"

#include <algorithm>
#include <bit>

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {
namespace {

// Seeds are floats, whose bits are as good as others; of Dropout they are integers.
ValueId stream_of(Context& c) {
  if (!c.has_attribute("seed")) return emit_random_stream(c);
  return emit_random_stream(c, std::bit_cast<uint64_t>(c.attribute_float("seed", 0)));
}

ValueId stream_of_dropout(Context& c) {
  if (!c.has_attribute("seed")) return emit_random_stream(c);
  return emit_random_stream(c, static_cast<uint64_t>(c.attribute_int("seed", 0)));
}

DType float_type(Context& c, DType otherwise) {
  const DType dtype = c.has_attribute("dtype") ? c.attribute_dtype("dtype") : otherwise;
  if (!dtype.is_float()) c.refuse("random numbers of type " + to_string(dtype));
  return dtype;
}

// In what the numbers are computed in; the result has the type that is wanted.
ValueId import_uniform(Context& c, std::vector<Expr> shape, DType dtype) {
  const double low = c.attribute_float("low", 0), high = c.attribute_float("high", 1);
  const ValueId unit = emit_uniform(c, stream_of(c), shape, dtype);
  if (low == 0 && high == 1) return unit;
  return in_accumulator(c, unit, [&](ValueId x) {
    const DType wide = dtype_of(c, x);
    return c.emit("add", {c.emit("multiply", {x, emit_scalar(c, wide, high - low)}), emit_scalar(c, wide, low)});
  });
}

ValueId import_normal(Context& c, std::vector<Expr> shape, DType dtype) {
  const double mean = c.attribute_float("mean", 0), scale = c.attribute_float("scale", 1);
  const DType wide = relay::accumulator_of(dtype);
  ValueId x = emit_normal(c, stream_of(c), shape, wide);
  if (scale != 1) x = c.emit("multiply", {x, emit_scalar(c, wide, scale)});
  if (mean != 0) x = c.emit("add", {x, emit_scalar(c, wide, mean)});
  return emit_cast(c, x, dtype);
}

using Draw = ValueId (*)(Context&, std::vector<Expr>, DType);

// Of a shape that the node says.
Rule shaped(const std::string& op_type, Draw draw) {
  return rule(op_type, 1, [=](Context& c) {
    if (!c.has_attribute("shape")) malformed("node of " + op_type + ": attribute `shape` is missing");
    const Ints shape = c.attribute_ints("shape", {});
    if (std::any_of(shape.begin(), shape.end(), [](int64_t dim) { return dim < 0; })) c.refuse("a negative dimension");
    return draw(c, {shape.begin(), shape.end()}, float_type(c, f32));
  });
}

// …of that of an input, and of its type unless the node says another.
Rule alike(const std::string& op_type, Draw draw) {
  return rule(op_type, 1, [=](Context& c) {
    const ValueId x = c.input(0);
    return draw(c, c.type(x).shape, float_type(c, dtype_of(c, x)));
  });
}

ValueId import_bernoulli(Context& c) {
  const ValueId x = c.input(0);
  if (!dtype_of(c, x).is_float()) c.refuse("probabilities of type " + to_string(dtype_of(c, x)));
  const DType dtype = c.has_attribute("dtype") ? c.attribute_dtype("dtype") : dtype_of(c, x);
  return emit_cast(c, emit_bernoulli(c, stream_of(c), x), dtype);
}

ValueId import_multinomial(Context& c) {
  const ValueId x = c.input(0);
  const DType dtype = c.has_attribute("dtype") ? c.attribute_dtype("dtype") : i32;
  const int64_t samples = c.attribute_int("sample_size", 1);
  if (rank_of(c, x) != 2 || !dtype_of(c, x).is_float()) c.refuse("logarithms in " + to_string(c.type(x)));
  if (dtype != i32 && dtype != i64) c.refuse("classes of type " + to_string(dtype));
  if (samples < 0) c.refuse("a negative number of samples");
  return emit_multinomial(c, stream_of(c), x, Expr(samples), dtype);
}

ValueId scalar(Context& c, ValueId x) {
  if (!is_const_int(relay::product_of(c.type(x).shape), 1)) c.refuse("a ratio or mode that is no single value");
  return emit_reshape(c, x, {});
}

// Before opset 7 nodes drop unless they say that they are tested, until 11 they never do, then as an input says.
std::vector<ValueId> import_dropout(Context& c) {
  const ValueId x = c.input(0);
  ValueId mode = no_value, ratio = no_value;
  bool is_training = c.opset() < 7 && c.attribute_int("is_test", 0) == 0;
  if (c.opset() >= 12 && c.has_input(2)) {
    mode = scalar(c, c.input(2));
    if (const NDArray* known = c.constant(mode)) {
      is_training = known->get_int(0) != 0;
      mode = no_value;
    }
  }
  if (is_training || mode != no_value) {
    ratio = c.opset() >= 12 && c.has_input(1)
                ? scalar(c, c.input(1))
                : emit_scalar(c, f32, c.opset() >= 12 ? 0.5 : c.attribute_float("ratio", 0.5));
    if (const NDArray* known = c.constant(ratio)) {
      const double value = known->get_float(0);
      if (!(value >= 0 && value < 1)) c.refuse("a ratio of " + std::to_string(value));
      if (value == 0) is_training = false, mode = no_value;
    }
  }
  std::vector<ValueId> outputs{x};
  ValueId mask = no_value;
  if (is_training || mode != no_value) {
    const auto [y, kept] = emit_dropout(c, stream_of_dropout(c), x, ratio, mode);
    outputs[0] = y, mask = kept;
  }
  if (!c.wants_output(1)) return outputs;
  if (mask == no_value) mask = emit_broadcast_open(c, emit_scalar(c, boolean, 1), c.type(x).shape);
  outputs.push_back(c.opset() < 10 ? emit_cast(c, mask, dtype_of(c, x)) : mask);
  return outputs;
}

}  // namespace

std::vector<Rule> random_rules() {
  return {shaped("RandomNormal", import_normal),    shaped("RandomUniform", import_uniform),
          alike("RandomNormalLike", import_normal), alike("RandomUniformLike", import_uniform),
          rule("Bernoulli", 15, import_bernoulli),  rule("Multinomial", 7, import_multinomial),
          {"Dropout", "", 1, import_dropout}};
}

}  // namespace tw::frontends::onnx
