// Resize and Upsample: interpolation along one axis at a time, from tables that the rule computes.
#include <algorithm>
#include <cmath>

#include "relay_ir/ops/common.h"

namespace tw::relay {
namespace {

using Context = OnnxNodeContext;
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
  op.min_inputs = op.max_inputs = 3;
  op.attributes = {{"axis", int64_t{0}, true, "the axis that is interpolated"}};
  op.facts = plain_facts(interpolate_axes, Rounding::exact, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    TensorType y = c.inputs[0];
    c.require(y.dtype.is_float(), "takes floats");
    c.require(c.inputs[1].dtype == i64 && c.inputs[1].rank() == 2, "indices are i64 [out, taps]");
    c.require(c.inputs[2].dtype == accumulator_of(y.dtype) && c.inputs[2].rank() == 2,
              "weights are floats [out, taps]");
    const int axis = normal_axis(c, c.attributes.get_int("axis"), y.rank());
    y.shape[axis] = c.inputs[1].shape[0];
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
                  attributes_of({{"axis", int64_t{1}}}),
                  -2,
                  2,
                  {NDArray(), int_array({0, 1, 1, 2}).reshape({2, 2})}}};
  return op;
}

struct Mode {
  std::string interpolation, coordinates, nearest;
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
};

struct Axis {
  int axis;
  int64_t in, out;
  double scale;
  double roi_start = 0, roi_end = 1;
};

// Where output position o lies in the input.
double source_position(const Mode& mode, const Axis& a, int64_t o) {
  const double position = static_cast<double>(o), in = static_cast<double>(a.in), length = a.scale * in;
  const std::string& m = mode.coordinates;
  if (m == "align_corners") return length == 1 ? 0 : position * (in - 1) / (length - 1);
  if (m == "asymmetric") return position / a.scale;
  if (m == "tf_crop_and_resize") {
    const double along = length == 1 ? (a.roi_end - a.roi_start) * (in - 1) / 2
                                     : position * (a.roi_end - a.roi_start) * (in - 1) / (length - 1);
    return along + a.roi_start * (in - 1);
  }
  if (m == "pytorch_half_pixel" && length == 1) return -0.5;
  const double half_pixel = (position + 0.5) / a.scale - 0.5;
  if (m == "half_pixel_symmetric") return in / 2 * (1 - static_cast<double>(a.out) / length) + half_pixel;
  return half_pixel;
}

int64_t nearest_index(const std::string& mode, double x) {
  const double below = std::floor(x), ratio = x - below;
  if (ratio == 0 || mode == "floor") return static_cast<int64_t>(below);
  const bool up = mode == "ceil" || (mode == "round_prefer_ceil" ? ratio >= 0.5 : ratio > 0.5);
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
  Ints indices;    // [out, taps]
  Floats weights;  // [out, taps]
  Ints outside;    // [out]: 1 where extrapolation takes the place
};

Table table_of(const Mode& mode, const Axis& a) {
  Table table;
  const double radius = mode.interpolation == "cubic" ? 2 : 1;
  const double squeeze = mode.antialias ? std::min(a.scale, 1.0) : 1.0;
  const auto reach = static_cast<int64_t>(std::ceil(radius / squeeze));
  const bool is_nearest = mode.interpolation == "nearest";
  table.taps = is_nearest ? 1 : 2 * reach;
  for (int64_t o = 0; o < a.out; ++o) {
    const double x = source_position(mode, a, o);
    table.outside.push_back(mode.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(a.in - 1)));
    if (is_nearest) {
      table.indices.push_back(std::clamp<int64_t>(nearest_index(mode.nearest, x), 0, a.in - 1));
      table.weights.push_back(1);
      continue;
    }
    const auto base = static_cast<int64_t>(std::floor(x));
    Floats weights;
    double total = 0;
    for (int64_t tap = 0; tap < table.taps; ++tap) {
      const int64_t at = base - reach + 1 + tap;
      const double distance = (static_cast<double>(at) - x) * squeeze;
      double weight = radius == 2 ? cubic_weight(distance, mode.cubic_a) : std::max(0.0, 1 - std::abs(distance));
      if (mode.exclude_outside && (at < 0 || at >= a.in)) weight = 0;
      weights.push_back(weight);
      total += weight;
      table.indices.push_back(std::clamp<int64_t>(at, 0, a.in - 1));
    }
    const bool normalises = (mode.antialias || mode.exclude_outside) && total != 0;
    for (const double weight : weights) table.weights.push_back(normalises ? weight / total : weight);
  }
  return table;
}

// Whole factors repeat elements: [… d …] → [… d, 1 …] → [… d, f …] → [… d·f …], which needs no table.
std::optional<int64_t> repeat_factor(const Table& table, const Axis& a) {
  if (a.in == 0 || a.out % a.in != 0) return std::nullopt;
  const int64_t factor = a.out / a.in;
  for (int64_t o = 0; o < a.out; ++o) {
    if (table.indices[o] != o / factor) return std::nullopt;
  }
  return factor;
}

ValueId resize_axis(Context& c, ValueId x, const Mode& mode, const Axis& a) {
  const Table table = table_of(mode, a);
  Ints dims = dims_of(c, x);
  ValueId y;
  if (mode.interpolation == "nearest") {
    if (const auto factor = repeat_factor(table, a)) {
      Ints spread = dims, repeated = dims;
      spread.insert(spread.begin() + a.axis + 1, 1);
      repeated.insert(repeated.begin() + a.axis + 1, *factor);
      dims[a.axis] = a.out;
      y = emit_reshape(c, emit_broadcast(c, emit_reshape(c, x, spread), repeated), dims);
    } else {
      y = c.emit("gather", {x, c.emit_constant(int_array(table.indices))}, attributes_of({{"axis", int64_t{a.axis}}}));
    }
  } else {
    const DType dtype = dtype_of(c, x);
    if (!dtype.is_float()) c.refuse(mode.interpolation + " interpolation of " + to_string(dtype));
    const ValueId indices = c.emit_constant(int_array(table.indices).reshape({a.out, table.taps}));
    const ValueId weights =
        c.emit_constant(float_array(table.weights, accumulator_of(dtype)).reshape({a.out, table.taps}));
    y = c.emit("interpolate", {x, indices, weights}, attributes_of({{"axis", int64_t{a.axis}}}));
  }
  if (std::count(table.outside.begin(), table.outside.end(), 1) == 0) return y;
  Ints shape(rank_of(c, y) - a.axis, 1);
  shape[0] = a.out;
  const ValueId outside = emit_ints(c, table.outside, shape, boolean);
  return c.emit("where", {outside, emit_scalar(c, dtype_of(c, y), mode.extrapolation), y});
}

ValueId resize(Context& c, const Mode& mode, std::vector<Axis> axes) {
  ValueId x = c.input(0);
  static constexpr const char* coordinates[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                                "align_corners", "asymmetric",           "tf_crop_and_resize"};
  if (std::none_of(std::begin(coordinates), std::end(coordinates), [&](auto* m) { return mode.coordinates == m; })) {
    c.refuse("coordinate_transformation_mode=\"" + mode.coordinates + "\"");
  }
  if (mode.interpolation != "nearest" && mode.interpolation != "linear" && mode.interpolation != "cubic") {
    c.refuse("mode=\"" + mode.interpolation + "\"");
  }
  if (mode.nearest != "floor" && mode.nearest != "ceil" && mode.nearest != "round_prefer_floor" &&
      mode.nearest != "round_prefer_ceil") {
    c.refuse("nearest_mode=\"" + mode.nearest + "\"");
  }
  if (mode.antialias && mode.interpolation == "nearest") c.refuse("antialias of mode=\"nearest\"");
  constexpr int64_t limit = 1 << 20;
  // Axes that shrink come first: there is less to do for the others.
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.scale < b.scale; });
  for (const Axis& a : axes) {
    if (!(a.scale > 0) || a.out < 0 || a.out > limit || a.in < 1) c.refuse("a scale or size outside 1 … 2^20");
    const bool is_same = a.in == a.out && a.scale == 1 && mode.coordinates != "tf_crop_and_resize";
    if (!is_same) x = resize_axis(c, x, mode, a);
  }
  return x;
}

Floats constant_floats(Context& c, size_t input) {
  const NDArray* value = c.constant(c.input(input));
  if (!value) c.refuse("input " + std::to_string(input) + " must be known at import, but it is computed by the model");
  Floats result;
  for (int64_t i = 0; i < value->size(); ++i) result.push_back(value->get_float(i));
  return result;
}

bool has_elements(Context& c, size_t input) {
  if (!c.has_input(input)) return false;
  return !is_const_int(product_of(c.type(c.input(input)).shape), 0);
}

std::vector<Axis> axes_by_scales(Context& c, const Floats& scales, const std::vector<int>& axes) {
  const Ints dims = dims_of(c, c.input(0));
  if (scales.size() != axes.size()) c.refuse("scales of another length than the axes");
  std::vector<Axis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    const double size = std::floor(static_cast<double>(dims[axes[i]]) * scales[i]);
    if (!(size >= 0 && size < 1e9)) c.refuse("a scale outside its range");
    result.push_back({axes[i], dims[axes[i]], static_cast<int64_t>(size), scales[i]});
  }
  return result;
}

ValueId import_resize(Context& c) {
  Mode mode;
  mode.interpolation = c.attribute_string("mode", "nearest");
  mode.coordinates = c.attribute_string("coordinate_transformation_mode", "half_pixel");
  mode.nearest = c.attribute_string("nearest_mode", "round_prefer_floor");
  mode.cubic_a = c.attribute_float("cubic_coeff_a", -0.75);
  mode.extrapolation = c.attribute_float("extrapolation_value", 0);
  mode.exclude_outside = c.attribute_int("exclude_outside", 0) != 0;
  mode.antialias = c.attribute_int("antialias", 0) != 0;
  if (mode.coordinates == "tf_half_pixel_for_nn") c.refuse("coordinate_transformation_mode=\"tf_half_pixel_for_nn\"");
  const Ints dims = dims_of(c, c.input(0));
  Ints all;
  for (size_t i = 0; i < dims.size(); ++i) all.push_back(static_cast<int64_t>(i));
  const std::vector<int> axes = rule_axes(c, c.attribute_ints("axes", all), static_cast<int>(dims.size()));
  std::vector<Axis> plan;
  if (has_elements(c, 3)) {
    const Ints sizes = c.constant_ints(3);
    if (sizes.size() != axes.size()) c.refuse("sizes of another length than the axes");
    const std::string policy = c.attribute_string("keep_aspect_ratio_policy", "stretch");
    double common = 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (sizes[i] < 1 || dims[axes[i]] < 1) c.refuse("a size of 0");
      const double scale = static_cast<double>(sizes[i]) / static_cast<double>(dims[axes[i]]);
      common = i == 0 ? scale : policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      const double in = static_cast<double>(dims[axes[i]]);
      if (policy == "stretch") {
        plan.push_back({axes[i], dims[axes[i]], sizes[i], static_cast<double>(sizes[i]) / in});
      } else if (policy == "not_larger" || policy == "not_smaller") {
        plan.push_back({axes[i], dims[axes[i]], static_cast<int64_t>(std::floor(common * in + 0.5)), common});
      } else {
        c.refuse("keep_aspect_ratio_policy=\"" + policy + "\"");
      }
    }
  } else if (has_elements(c, 2)) {
    plan = axes_by_scales(c, constant_floats(c, 2), axes);
  } else {
    c.refuse("neither scales nor sizes");
  }
  if (mode.coordinates == "tf_crop_and_resize") {
    const Floats roi = has_elements(c, 1) ? constant_floats(c, 1) : Floats();
    if (roi.size() != 2 * plan.size()) c.refuse("roi of another length than twice the axes");
    for (size_t i = 0; i < plan.size(); ++i) plan[i].roi_start = roi[i], plan[i].roi_end = roi[plan.size() + i];
  }
  return resize(c, mode, plan);
}

// Opset 10's Resize and Upsample: positions from the corner, nearest below.
ValueId import_upsample(Context& c) {
  Mode mode;
  mode.interpolation = c.attribute_string("mode", "nearest");
  if (mode.interpolation == "bilinear") mode.interpolation = "linear";
  mode.coordinates = "asymmetric";
  mode.nearest = "floor";
  std::vector<int> axes;
  for (int i = 0; i < rank_of(c, c.input(0)); ++i) axes.push_back(i);
  const Floats scales = c.input_count() > 1 ? constant_floats(c, 1) : c.attribute_floats("scales", {});
  return resize(c, mode, axes_by_scales(c, scales, axes));
}

}  // namespace

OpFamily resize_family() {
  OpFamily family;
  family.ops = {interpolate_op()};
  family.onnx_rules = {
      rule("Resize", 11, import_resize),
      rule("Resize", 10, import_upsample),
      rule("Upsample", 7, import_upsample),
  };
  return family;
}

}  // namespace tw::relay
