#include "frontends/resize.h"

#include <algorithm>
#include <cmath>

#include "tensor_ir/arith/simplify.h"

namespace tw::frontends {
namespace {

using Interpolation = Resize::Interpolation;
using Coordinates = Resize::Coordinates;
using Rounding = Resize::Rounding;

// Arithmetic of nodes: f64, i64 or bool.
class Numbers {
 public:
  explicit Numbers(Builder& b) : b_(b) {}
  ValueId number(double value) { return emit_scalar(b_, f64, value); }
  ValueId number(const Expr& size) { return emit_cast(b_, b_.emit_sizes({size}, {}), f64); }
  ValueId operator()(const char* op, ValueId x) { return b_.emit(op, {x}); }
  ValueId operator()(const char* op, ValueId x, ValueId y) { return b_.emit(op, {x, y}); }
  ValueId operator()(const char* op, ValueId x, double y) { return b_.emit(op, {x, number(y)}); }
  ValueId operator()(const char* op, double x, ValueId y) { return b_.emit(op, {number(x), y}); }
  ValueId where(ValueId condition, ValueId x, ValueId y) { return b_.emit("where", {condition, x, y}); }

 private:
  Builder& b_;
};

ValueId scale_of(Builder& b, const ResizedAxis& a) {
  Numbers n(b);
  if (a.computed_scale != no_value) return a.computed_scale;
  return a.scale ? n.number(*a.scale) : n("divide", n.number(a.out), n.number(a.in));
}

// Where the positions of the output lie in the input: f64 [out].
ValueId source_positions(Builder& b, const Resize& resize, const ResizedAxis& a) {
  Numbers n(b);
  const ValueId in = n.number(a.in), out = n.number(a.out);
  const ValueId scale = scale_of(b, a);
  const ValueId length = n("multiply", scale, in), is_one = n("equal", length, 1.0);
  const ValueId last = n("subtract", in, 1.0), last_out = n("subtract", length, 1.0);
  const ValueId position = emit_cast(b, b.emit("range", {}, attributes_of({{"count", std::vector<Expr>{a.out}}})), f64);
  const Coordinates m = resize.coordinates;
  if (m == Coordinates::align_corners)
    return n.where(is_one, n.number(0.0), n("divide", n("multiply", position, last), last_out));
  if (m == Coordinates::asymmetric) return n("divide", position, scale);
  if (m == Coordinates::crop_and_resize) {
    const bool is_known = a.computed_roi[0] == no_value;
    const ValueId start = is_known ? n.number(a.roi_start) : a.computed_roi[0];
    const ValueId end = is_known ? n.number(a.roi_end) : a.computed_roi[1];
    const ValueId span = n("subtract", end, start),
                  middle = n("multiply", n("add", start, end), n("multiply", last, 0.5));
    const ValueId along = n("divide", n("multiply", n("multiply", position, span), last), last_out);
    return n.where(is_one, middle, n("add", along, n("multiply", start, last)));
  }
  const ValueId half_pixel = n("subtract", n("divide", n("add", position, 0.5), scale), 0.5);
  if (m == Coordinates::pytorch_half_pixel) return n.where(is_one, n.number(-0.5), half_pixel);
  if (m == Coordinates::half_pixel_symmetric) {
    const ValueId offset = n("multiply", n("divide", in, 2.0), n("subtract", 1.0, n("divide", out, length)));
    return n("add", offset, half_pixel);
  }
  return half_pixel;
}

// Whole numbers as indices into the input, those outside moved to its ends.
ValueId indices_at(Builder& b, ValueId x, const ResizedAxis& a) {
  Numbers n(b);
  return emit_cast(b, n("minimum", n("maximum", x, 0.0), n.number(simplify(a.in - 1))), i64);
}

ValueId nearest_indices(Builder& b, const Resize& resize, const ResizedAxis& a) {
  Numbers n(b);
  const ValueId x = source_positions(b, resize, a);
  const auto nearest = [&] {
    switch (resize.rounding) {
      case Rounding::floor:
        return n("floor", x);
      case Rounding::ceil:
        return n("ceil", x);
      case Rounding::prefer_floor:
        return n("ceil", n("subtract", x, 0.5));
      case Rounding::prefer_ceil:
        return n("floor", n("add", x, 0.5));
    }
    internal_error("resize: a rounding");
  };
  return indices_at(b, nearest(), a);
}

struct Taps {
  ValueId indices, weights;  // [out, taps]: i64, f64
};

// By how much the data moves together where it is smoothed, and so how far elements reach to either side.
std::pair<ValueId, Expr> squeeze_of(Builder& b, const Resize& resize, const ResizedAxis& a) {
  Numbers n(b);
  const int64_t support = resize.interpolation == Interpolation::cubic ? 2 : 1;
  if (!resize.antialias) return {n.number(1.0), Expr(support)};
  const ValueId scale = scale_of(b, a), squeeze = n("minimum", scale, 1.0);
  if (a.computed_scale == no_value && !a.scale)
    return {squeeze, simplify(max(floor_div(a.in * support + a.out - 1, max(a.out, 1)), support))};
  const ValueId reach = n("ceil", n("divide", static_cast<double>(support), squeeze));
  return {squeeze, b.emit_item(emit_cast(b, reach, i64), {support})};
}

Taps interpolation_taps(Builder& b, const Resize& resize, const ResizedAxis& a) {
  Numbers n(b);
  const bool is_cubic = resize.interpolation == Interpolation::cubic;
  const auto [squeeze, reach] = squeeze_of(b, resize, a);
  const ValueId x = emit_reshape_open(b, source_positions(b, resize, a), {a.out, Expr(1)});
  const Expr taps = simplify(reach * 2);
  const ValueId tap = emit_cast(b, emit_range(b, taps, {taps}), f64);
  const ValueId at = n("add", n("subtract", n("floor", x), n.number(simplify(reach - 1))), tap);
  const ValueId distance = n("abs", n("multiply", n("subtract", at, x), squeeze));
  ValueId weights = n("maximum", 0.0, n("subtract", 1.0, distance));
  if (is_cubic) {
    const double c = resize.cubic_a;
    const auto times = [&](ValueId value) { return n("multiply", value, distance); };
    const ValueId near = n("add", times(times(n("subtract", n("multiply", c + 2, distance), c + 3))), 1.0);
    const ValueId far =
        n("subtract", times(n("add", times(n("subtract", n("multiply", c, distance), 5 * c)), 8 * c)), 4 * c);
    weights = n.where(n("less_equal", distance, 1.0), near, n.where(n("less", distance, 2.0), far, n.number(0.0)));
  }
  if (resize.exclude_outside) {
    const ValueId is_outside = n("logical_or", n("less", at, 0.0), n("less_equal", n.number(a.in), at));
    weights = n.where(is_outside, n.number(0.0), weights);
  }
  if (resize.antialias || resize.exclude_outside) {
    const ValueId total = emit_reduce(b, "reduce_sum", weights, {1}, true);
    weights = n.where(n("equal", total, 0.0), weights, n("divide", weights, total));
  }
  return {indices_at(b, at, a), weights};
}

// Whole factors repeat elements: [… d …] → [… d, 1 …] → [… d, f …] → [… d·f …], which needs no table.
std::optional<int64_t> repeat_factor(Builder& b, const Resize& resize, const ResizedAxis& a) {
  const auto in = as_int(a.in), out = as_int(a.out);
  if (a.computed_scale != no_value || a.computed_roi[0] != no_value) return std::nullopt;
  if (in && out && (*in == 0 || *out % *in != 0)) return std::nullopt;
  if ((!in || !out) && (!a.scale || *a.scale != std::floor(*a.scale))) return std::nullopt;
  // All elements of an open size are alike: a few show how they are repeated.
  const int64_t factor = in && out ? *out / *in : static_cast<int64_t>(*a.scale), count = in && out ? *in : 4;
  ResizedAxis sample = a;
  sample.in = Expr(count), sample.out = Expr(count * factor);
  const NDArray* indices = b.constant(nearest_indices(b, resize, sample));
  for (int64_t o = 0; o < count * factor; ++o) {
    if (!indices || indices->get_int(o) != o / factor) return std::nullopt;
  }
  return factor;
}

ValueId resize_axis(Builder& b, ValueId x, const Resize& resize, const ResizedAxis& a) {
  std::vector<Expr> dims = b.type(x).shape;
  const auto axis = attributes_of({{"axis", int64_t{a.axis}}});
  ValueId y;
  if (resize.interpolation == Interpolation::nearest) {
    if (const auto factor = repeat_factor(b, resize, a)) {
      std::vector<Expr> spread = dims, repeated = dims;
      spread.insert(spread.begin() + a.axis + 1, Expr(1));
      repeated.insert(repeated.begin() + a.axis + 1, Expr(*factor));
      dims[a.axis] = a.out;
      y = emit_reshape_open(b, emit_broadcast_open(b, emit_reshape_open(b, x, spread), repeated), dims);
    } else {
      y = b.emit("gather", {x, nearest_indices(b, resize, a)}, axis);
    }
  } else {
    const DType dtype = dtype_of(b, x);
    if (!dtype.is_float()) {
      b.refuse((resize.interpolation == Interpolation::cubic ? "cubic" : "linear") +
               (" interpolation of " + to_string(dtype)));
    }
    const auto [indices, weights] = interpolation_taps(b, resize, a);
    y = b.emit("interpolate", {x, indices, emit_cast(b, weights, accumulator_of(dtype))}, axis);
  }
  if (resize.coordinates != Coordinates::crop_and_resize) return y;
  Numbers n(b);
  const ValueId position = source_positions(b, resize, a);
  const ValueId is_outside =
      n("logical_or", n("less", position, 0.0), n("less", n.number(simplify(a.in - 1)), position));
  std::vector<Expr> shape(rank_of(b, y) - a.axis, Expr(1));
  shape[0] = a.out;
  return b.emit("where",
                {emit_reshape_open(b, is_outside, shape), emit_scalar(b, dtype_of(b, y), resize.extrapolation), y});
}

}  // namespace

ValueId emit_resize(Builder& b, ValueId x, const Resize& resize, std::vector<ResizedAxis> axes) {
  if (resize.antialias && resize.interpolation == Interpolation::nearest) b.refuse("antialias of mode=\"nearest\"");
  constexpr int64_t limit = 1 << 20;
  // Axes that shrink come first: there is less to do for the others.
  const auto growth = [](const ResizedAxis& a) {
    const auto in = as_int(a.in), out = as_int(a.out);
    return a.scale ? *a.scale : in && out ? static_cast<double>(*out) / static_cast<double>(*in) : 1.0;
  };
  std::stable_sort(axes.begin(), axes.end(),
                   [&](const ResizedAxis& a, const ResizedAxis& b) { return growth(a) < growth(b); });
  for (const ResizedAxis& a : axes) {
    const int64_t in = as_int(a.in).value_or(1), out = as_int(a.out).value_or(1);
    if (!(growth(a) > 0) || out < 0 || out > limit || in < 1) b.refuse("a scale or size outside 1 … 2^20");
    const bool is_same = is_same_dim(a.in, a.out) && growth(a) == 1 && a.computed_scale == no_value &&
                         resize.coordinates != Coordinates::crop_and_resize;
    if (!is_same) x = resize_axis(b, x, resize, a);
  }
  return x;
}

}  // namespace tw::frontends
