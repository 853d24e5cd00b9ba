#include "frontends/resize.h"

#include <algorithm>
#include <cmath>

namespace tw::frontends {
namespace {

using Interpolation = Resize::Interpolation;
using Coordinates = Resize::Coordinates;
using Rounding = Resize::Rounding;

// Where output position o lies in the input.
double source_position(const Resize& resize, const ResizedAxis& a, int64_t o) {
  const double position = static_cast<double>(o), in = static_cast<double>(a.in), length = a.scale * in;
  const Coordinates m = resize.coordinates;
  if (m == Coordinates::align_corners) return length == 1 ? 0 : position * (in - 1) / (length - 1);
  if (m == Coordinates::asymmetric) return position / a.scale;
  if (m == Coordinates::crop_and_resize) {
    const double along = length == 1 ? (a.roi_end - a.roi_start) * (in - 1) / 2
                                     : position * (a.roi_end - a.roi_start) * (in - 1) / (length - 1);
    return along + a.roi_start * (in - 1);
  }
  if (m == Coordinates::pytorch_half_pixel && length == 1) return -0.5;
  const double half_pixel = (position + 0.5) / a.scale - 0.5;
  if (m == Coordinates::half_pixel_symmetric) return in / 2 * (1 - static_cast<double>(a.out) / length) + half_pixel;
  return half_pixel;
}

int64_t nearest_index(Rounding rounding, double x) {
  const double below = std::floor(x), ratio = x - below;
  if (ratio == 0 || rounding == Rounding::floor) return static_cast<int64_t>(below);
  const bool up = rounding == Rounding::ceil || (rounding == Rounding::prefer_ceil ? ratio >= 0.5 : ratio > 0.5);
  return static_cast<int64_t>(below) + up;
}

double cubic_weight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

struct Table {
  int64_t taps = 0;
  std::vector<int64_t> indices;  // [out, taps]
  std::vector<double> weights;   // [out, taps]
  std::vector<int64_t> outside;  // [out]: 1 where extrapolation takes the place
};

Table table_of(const Resize& resize, const ResizedAxis& a) {
  Table table;
  const double radius = resize.interpolation == Interpolation::cubic ? 2 : 1;
  const double squeeze = resize.antialias ? std::min(a.scale, 1.0) : 1.0;
  const auto reach = static_cast<int64_t>(std::ceil(radius / squeeze));
  const bool is_nearest = resize.interpolation == Interpolation::nearest;
  table.taps = is_nearest ? 1 : 2 * reach;
  for (int64_t o = 0; o < a.out; ++o) {
    const double x = source_position(resize, a, o);
    table.outside.push_back(resize.coordinates == Coordinates::crop_and_resize &&
                            (x < 0 || x > static_cast<double>(a.in - 1)));
    if (is_nearest) {
      table.indices.push_back(std::clamp<int64_t>(nearest_index(resize.rounding, x), 0, a.in - 1));
      table.weights.push_back(1);
      continue;
    }
    const auto base = static_cast<int64_t>(std::floor(x));
    std::vector<double> weights;
    double total = 0;
    for (int64_t tap = 0; tap < table.taps; ++tap) {
      const int64_t at = base - reach + 1 + tap;
      const double distance = (static_cast<double>(at) - x) * squeeze;
      double weight = radius == 2 ? cubic_weight(distance, resize.cubic_a) : std::max(0.0, 1 - std::abs(distance));
      if (resize.exclude_outside && (at < 0 || at >= a.in)) weight = 0;
      weights.push_back(weight);
      total += weight;
      table.indices.push_back(std::clamp<int64_t>(at, 0, a.in - 1));
    }
    const bool normalises = (resize.antialias || resize.exclude_outside) && total != 0;
    for (const double weight : weights) table.weights.push_back(normalises ? weight / total : weight);
  }
  return table;
}

// Whole factors repeat elements: [… d …] → [… d, 1 …] → [… d, f …] → [… d·f …], which needs no table.
std::optional<int64_t> repeat_factor(const Table& table, const ResizedAxis& a) {
  if (a.in == 0 || a.out % a.in != 0) return std::nullopt;
  const int64_t factor = a.out / a.in;
  for (int64_t o = 0; o < a.out; ++o) {
    if (table.indices[o] != o / factor) return std::nullopt;
  }
  return factor;
}

ValueId resize_axis(Builder& b, ValueId x, const Resize& resize, const ResizedAxis& a) {
  const Table table = table_of(resize, a);
  std::vector<int64_t> dims = dims_of(b, x);
  ValueId y;
  if (resize.interpolation == Interpolation::nearest) {
    if (const auto factor = repeat_factor(table, a)) {
      std::vector<int64_t> spread = dims, repeated = dims;
      spread.insert(spread.begin() + a.axis + 1, 1);
      repeated.insert(repeated.begin() + a.axis + 1, *factor);
      dims[a.axis] = a.out;
      y = emit_reshape(b, emit_broadcast(b, emit_reshape(b, x, spread), repeated), dims);
    } else {
      y = b.emit("gather", {x, b.emit_constant(int_array(table.indices))}, attributes_of({{"axis", int64_t{a.axis}}}));
    }
  } else {
    const DType dtype = dtype_of(b, x);
    if (!dtype.is_float()) {
      b.refuse((resize.interpolation == Interpolation::cubic ? "cubic" : "linear") +
               (" interpolation of " + to_string(dtype)));
    }
    const ValueId indices = b.emit_constant(int_array(table.indices).reshape({a.out, table.taps}));
    const ValueId weights =
        b.emit_constant(float_array(table.weights, accumulator_of(dtype)).reshape({a.out, table.taps}));
    y = b.emit("interpolate", {x, indices, weights}, attributes_of({{"axis", int64_t{a.axis}}}));
  }
  if (std::count(table.outside.begin(), table.outside.end(), 1) == 0) return y;
  std::vector<int64_t> shape(rank_of(b, y) - a.axis, 1);
  shape[0] = a.out;
  const ValueId outside = emit_ints(b, table.outside, shape, boolean);
  return b.emit("where", {outside, emit_scalar(b, dtype_of(b, y), resize.extrapolation), y});
}

}  // namespace

ValueId emit_resize(Builder& b, ValueId x, const Resize& resize, std::vector<ResizedAxis> axes) {
  if (resize.antialias && resize.interpolation == Interpolation::nearest) b.refuse("antialias of mode=\"nearest\"");
  constexpr int64_t limit = 1 << 20;
  // Axes that shrink come first: there is less to do for the others.
  std::stable_sort(axes.begin(), axes.end(),
                   [](const ResizedAxis& a, const ResizedAxis& b) { return a.scale < b.scale; });
  for (const ResizedAxis& a : axes) {
    if (!(a.scale > 0) || a.out < 0 || a.out > limit || a.in < 1) b.refuse("a scale or size outside 1 … 2^20");
    const bool is_same = a.in == a.out && a.scale == 1 && resize.coordinates != Coordinates::crop_and_resize;
    if (!is_same) x = resize_axis(b, x, resize, a);
  }
  return x;
}

}  // namespace tw::frontends
