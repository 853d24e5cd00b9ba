#include "frontends/random.h"

#include <cmath>
#include <numbers>

#include "frontends/control.h"
#include "frontends/emit.h"

namespace tw::frontends {
namespace {

ValueId emit_bits(Builder& b, ValueId stream, std::vector<Expr> shape, const Expr& first = 0) {
  return b.emit("random_bits", {stream}, attributes_of({{"shape", shape}, {"first", std::vector<Expr>{first}}}));
}

// The stream of that number that it leads to.
ValueId emit_branch_stream(Builder& b, ValueId stream, const Expr& number) {
  return emit_bits(b, stream, {Expr(2)}, number * 2);
}

ValueId emit_words(Builder& b, const std::vector<uint64_t>& words) {
  NDArray array(u64, {static_cast<int64_t>(words.size())});
  for (size_t i = 0; i < words.size(); ++i) array.set_int(static_cast<int64_t>(i), static_cast<int64_t>(words[i]));
  return b.emit_constant(array);
}

// The upper `count` bits as floats: whole numbers.
ValueId emit_upper_bits(Builder& b, ValueId bits, int count, DType dtype) {
  const ValueId upper = b.emit("shift", {bits, emit_scalar(b, u64, 64 - count)}, attributes_of({{"left", int64_t{0}}}));
  return emit_cast(b, emit_cast(b, upper, count < 32 ? i32 : i64), dtype);
}

ValueId emit_scaled(Builder& b, ValueId x, double factor) {
  return b.emit("multiply", {x, emit_scalar(b, dtype_of(b, x), factor)});
}

int significant_bits(DType dtype) {
  return dtype == f64 ? 53 : dtype == f32 ? 24 : dtype == f16 ? 11 : 8;
}

DType computed_in(DType dtype) {
  return dtype == f64 ? f64 : f32;
}

}  // namespace

ValueId emit_random_stream(Builder& b, std::optional<uint64_t> seed) {
  Import& import = b.import();
  ValueId stream = import.emit_random_state();
  if (seed) {
    NDArray is_run(boolean, {2});
    is_run.set_int(0, 0), is_run.set_int(1, 1);
    stream = b.emit("where", {b.emit_constant(is_run), stream, emit_words(b, {*seed, 0})});
    ++import.random_nodes;
  } else {
    stream = emit_branch_stream(b, stream, Expr(int64_t{import.random_nodes++}));
  }
  if (import.region)
    for (const Var& step : import.region->steps()) stream = emit_branch_stream(b, stream, step);
  return stream;
}

ValueId emit_uniform(Builder& b, ValueId stream, std::vector<Expr> shape, DType dtype) {
  const int count = significant_bits(dtype);
  const ValueId whole = emit_upper_bits(b, emit_bits(b, stream, shape), count, computed_in(dtype));
  return emit_cast(b, emit_scaled(b, whole, std::ldexp(1.0, -count)), dtype);
}

// Box and Muller, Annals of Mathematical Statistics 29 (1958): a distance from 0 and an angle, of which f32 gets both
// from one element's bits.
ValueId emit_normal(Builder& b, ValueId stream, std::vector<Expr> shape, DType dtype) {
  const DType wide = computed_in(dtype);
  const int of_distance = wide == f64 ? 53 : 31, of_angle = significant_bits(wide);
  ValueId for_distance, angle;
  if (wide == f64) {
    for_distance = emit_bits(b, emit_branch_stream(b, stream, 0), shape);
    angle = emit_upper_bits(b, emit_bits(b, emit_branch_stream(b, stream, 1), shape), of_angle, wide);
  } else {
    for_distance = emit_bits(b, stream, shape);
    const ValueId lower = b.emit("bit_and", {for_distance, emit_scalar(b, u64, std::ldexp(1.0, of_angle) - 1)});
    angle = emit_cast(b, emit_cast(b, lower, i32), wide);
  }
  // Above 0, and 1 at most.
  const ValueId whole = emit_upper_bits(b, for_distance, of_distance, wide);
  const ValueId part = emit_scaled(b, b.emit("add", {whole, emit_scalar(b, wide, 0.5)}), std::ldexp(1.0, -of_distance));
  const ValueId distance = b.emit("sqrt", {emit_scaled(b, b.emit("log", {part}), -2)});
  const ValueId cosine = b.emit("cos", {emit_scaled(b, angle, std::ldexp(2 * std::numbers::pi, -of_angle))});
  return emit_cast(b, b.emit("multiply", {distance, cosine}), dtype);
}

ValueId emit_bernoulli(Builder& b, ValueId stream, ValueId probabilities) {
  const DType wide = computed_in(dtype_of(b, probabilities));
  const ValueId drawn = emit_uniform(b, stream, b.type(probabilities).shape, wide);
  return b.emit("less", {drawn, emit_cast(b, probabilities, wide)});
}

// By the inverse of the distribution: the class is how many of the sums of the first classes are at most what is drawn.
// That is below the sum of all, also rounded, so classes of probability 0 are never chosen.
ValueId emit_multinomial(Builder& b, ValueId stream, ValueId x, const Expr& samples, DType dtype) {
  const std::vector<Expr> shape = b.type(x).shape;
  const ValueId wide = emit_cast(b, x, f64);
  const ValueId part = b.emit("exp", {b.emit("subtract", {wide, emit_reduce(b, "reduce_max", wide, {1}, true)})});
  const ValueId sums = b.emit("cumulate", {part}, attributes_of({{"axis", int64_t{1}}}));
  const ValueId all = emit_slice(b, sums, 1, shape[1] - 1, Expr(1));
  const ValueId drawn = b.emit("multiply", {emit_uniform(b, stream, {shape[0], samples}, f64), all});
  const ValueId is_passed = b.emit("less_equal", {emit_new_axis(b, sums, 1), emit_new_axis(b, drawn, 2)});
  return emit_cast(b, emit_reduce(b, "reduce_sum", emit_cast(b, is_passed, i32), {2}, false), dtype);
}

Dropped emit_dropout(Builder& b, ValueId stream, ValueId x, ValueId ratio, ValueId is_training) {
  const DType dtype = dtype_of(b, x), wide = computed_in(dtype);
  const ValueId one = emit_scalar(b, wide, 1), none = emit_scalar(b, wide, 0), dropped = emit_cast(b, ratio, wide);
  ValueId scale = b.emit("divide", {one, b.emit("subtract", {one, dropped})});
  ValueId mask = b.emit("less_equal", {dropped, emit_uniform(b, stream, b.type(x).shape, wide)});
  if (is_training != no_value) {
    scale = b.emit("where", {is_training, scale, one});
    mask = b.emit("logical_or", {mask, b.emit("logical_not", {is_training})});
  }
  const ValueId factor = b.emit("where", {mask, scale, none});
  return {emit_cast(b, b.emit("multiply", {emit_cast(b, x, wide), factor}), dtype), mask};
}

}  // namespace tw::frontends
