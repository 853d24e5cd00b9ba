// Resize and Upsample.
#include "frontends/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontends/computed.h"
#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw::frontends::onnx {
namespace {

using Floats = std::vector<double>;

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

std::vector<ResizedAxis> axes_by_scales(Context& c, const Floats& scales, const std::vector<int>& axes) {
  const std::vector<Expr>& dims = c.type(c.input(0)).shape;
  if (scales.size() != axes.size()) c.refuse("scales of another length than the axes");
  std::vector<ResizedAxis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Expr& in = dims[axes[i]];
    Expr out;
    if (const auto known = as_int(in)) {
      const double size = std::floor(static_cast<double>(*known) * scales[i]);
      if (!(size >= 0 && size < 1e9)) c.refuse("a scale outside its range");
      out = Expr(static_cast<int64_t>(size));
    } else {
      constexpr int64_t parts = 1 << 16;
      const double whole = scales[i] * parts;
      if (!(whole >= 0 && whole < 1e12) || whole != std::floor(whole))
        c.refuse("a scale of " + std::to_string(scales[i]) + " for open dimension `" + to_text(in) + "`");
      const int64_t common = std::gcd(static_cast<int64_t>(whole), parts);
      out = simplify(floor_div(in * (static_cast<int64_t>(whole) / common), parts / common));
    }
    result.push_back({axes[i], in, out, scales[i]});
  }
  return result;
}

// By scales that only a run knows: so are the sizes.
std::vector<ResizedAxis> axes_by_computed_scales(Context& c, ValueId scales, const std::vector<int>& axes) {
  Integers n(c);
  scales = emit_cast(c, scales, f64);
  if (!is_const_int(product_of(c.type(scales).shape), std::ssize(axes)))
    c.refuse("scales of another length than the axes");
  std::vector<ResizedAxis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Expr in = c.type(c.input(0)).shape[axes[i]];
    const ValueId scale = n.at(scales, static_cast<int64_t>(i));
    const ValueId size = c.emit("floor", {n("multiply", scale, emit_cast(c, n.size(in), f64))});
    ResizedAxis axis{axes[i], in, c.emit_item(emit_cast(c, size, i64), {1})};
    axis.computed_scale = scale;
    result.push_back(axis);
  }
  return result;
}

// One scale for all axes, from sizes that only a run knows.
std::vector<ResizedAxis> axes_by_computed_sizes(Context& c, const std::vector<int>& axes, const std::string& policy) {
  Integers n(c);
  const ValueId sizes = emit_cast(c, c.input(3), f64);
  std::vector<Expr> dims;
  for (const int axis : axes) dims.push_back(c.type(c.input(0)).shape[axis]);
  const ValueId in = emit_cast(c, c.emit_sizes(dims, {std::ssize(dims)}), f64), ratios = n("divide", sizes, in);
  const ValueId scale = emit_reduce(c, policy == "not_larger" ? "reduce_min" : "reduce_max", ratios, {0}, false);
  const ValueId exact = n("multiply", scale, in), half = emit_scalar(c, f64, 0.5);
  const std::vector<Expr> out = c.emit_items(emit_cast(c, c.emit("floor", {n("add", exact, half)}), i64), {1});
  std::vector<ResizedAxis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizedAxis axis{axes[i], dims[i], out[i]};
    axis.computed_scale = scale;
    result.push_back(axis);
  }
  return result;
}

using Interpolation = Resize::Interpolation;
using Coordinates = Resize::Coordinates;
using Rounding = Resize::Rounding;

constexpr std::pair<const char*, Interpolation> interpolations[] = {
    {"nearest", Interpolation::nearest}, {"linear", Interpolation::linear}, {"cubic", Interpolation::cubic}};
constexpr std::pair<const char*, Coordinates> coordinates[] = {
    {"half_pixel", Coordinates::half_pixel},
    {"half_pixel_symmetric", Coordinates::half_pixel_symmetric},
    {"pytorch_half_pixel", Coordinates::pytorch_half_pixel},
    {"align_corners", Coordinates::align_corners},
    {"asymmetric", Coordinates::asymmetric},
    {"tf_crop_and_resize", Coordinates::crop_and_resize}};
constexpr std::pair<const char*, Rounding> roundings[] = {{"round_prefer_floor", Rounding::prefer_floor},
                                                          {"round_prefer_ceil", Rounding::prefer_ceil},
                                                          {"floor", Rounding::floor},
                                                          {"ceil", Rounding::ceil}};

// What the attribute names; the first row when it is absent.
template <class T, size_t n>
T named(Context& c, const char* attribute, const std::pair<const char*, T> (&rows)[n]) {
  const std::string given = c.attribute_string(attribute, rows[0].first);
  for (const auto& [name, value] : rows) {
    if (given == name) return value;
  }
  c.refuse(attribute + ("=\"" + given + "\""));
}

ValueId import_resize(Context& c) {
  const std::vector<Expr> dims = c.type(c.input(0)).shape;
  const std::vector<int> axes = chosen_axes(c, c.input(0));
  std::vector<ResizedAxis> plan;
  if (has_elements(c, 3)) {
    const std::string policy = c.attribute_string("keep_aspect_ratio_policy", "stretch");
    const auto is_open = [&](int axis) { return !as_int(dims[axis]); };
    const bool keeps_ratio =
        policy != "stretch" && (!c.constant(c.input(3)) || std::any_of(axes.begin(), axes.end(), is_open));
    const std::vector<Expr> sizes = keeps_ratio ? std::vector<Expr>(axes.size(), Expr(1)) : c.read_dims(3, {1});
    if (sizes.size() != axes.size() || !is_const_int(product_of(c.type(c.input(3)).shape), std::ssize(axes)))
      c.refuse("sizes of another length than the axes");
    if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
      c.refuse("keep_aspect_ratio_policy=\"" + policy + "\"");
    for (size_t i = 0; i < axes.size(); ++i) {
      if (as_int(sizes[i]).value_or(1) < 1 || as_int(dims[axes[i]]).value_or(1) < 1) c.refuse("a size of 0");
      plan.push_back({axes[i], dims[axes[i]], sizes[i]});
    }
    if (keeps_ratio) {
      plan = axes_by_computed_sizes(c, axes, policy);
    } else if (policy != "stretch") {
      double common = 0;
      for (const ResizedAxis& a : plan) {
        const double scale = static_cast<double>(*as_int(a.out)) / static_cast<double>(*as_int(a.in));
        common = &a == &plan[0] ? scale : policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
      }
      for (ResizedAxis& a : plan) {
        a.scale = common;
        a.out = Expr(static_cast<int64_t>(std::floor(common * static_cast<double>(*as_int(a.in)) + 0.5)));
      }
    }
  } else if (has_elements(c, 2)) {
    plan = c.constant(c.input(2)) ? axes_by_scales(c, constant_floats(c, 2), axes)
                                  : axes_by_computed_scales(c, c.input(2), axes);
  } else {
    c.refuse("neither scales nor sizes");
  }
  Resize resize{named(c, "mode", interpolations), named(c, "coordinate_transformation_mode", coordinates),
                named(c, "nearest_mode", roundings)};
  resize.cubic_a = c.attribute_float("cubic_coeff_a", -0.75);
  resize.extrapolation = c.attribute_float("extrapolation_value", 0);
  resize.exclude_outside = c.attribute_int("exclude_outside", 0) != 0;
  resize.antialias = c.attribute_int("antialias", 0) != 0;
  if (resize.coordinates == Coordinates::crop_and_resize) {
    if (!has_elements(c, 1) || !is_const_int(product_of(c.type(c.input(1)).shape), 2 * std::ssize(plan)))
      c.refuse("roi of another length than twice the axes");
    const bool is_known = c.constant(c.input(1)) != nullptr;
    const Floats roi = is_known ? constant_floats(c, 1) : Floats(2 * plan.size());
    for (int side = 0; side < 2 && !is_known; ++side) {
      Integers n(c);
      for (size_t i = 0; i < plan.size(); ++i)
        plan[i].computed_roi[side] = n.at(emit_cast(c, c.input(1), f64), static_cast<int64_t>(i + side * plan.size()));
    }
    for (size_t i = 0; i < plan.size(); ++i) plan[i].roi_start = roi[i], plan[i].roi_end = roi[plan.size() + i];
  }
  return emit_resize(c, c.input(0), resize, plan);
}

// Opset 10's Resize and Upsample: positions from the corner, nearest below.
ValueId import_upsample(Context& c) {
  const std::vector<int> axes = axes_from(c, c.input(0));
  const bool is_computed = c.input_count() > 1 && !c.constant(c.input(1));
  const Floats scales = is_computed           ? Floats()
                        : c.input_count() > 1 ? constant_floats(c, 1)
                        : c.opset() < 7
                            ? Floats{1, 1, c.attribute_float("height_scale", 1), c.attribute_float("width_scale", 1)}
                            : c.attribute_floats("scales", {});
  const std::vector<ResizedAxis> plan =
      is_computed ? axes_by_computed_scales(c, c.input(1), axes) : axes_by_scales(c, scales, axes);
  const bool is_linear = c.attribute_string("mode", "nearest") == "bilinear";
  const Resize resize{is_linear ? Interpolation::linear : named(c, "mode", interpolations), Coordinates::asymmetric,
                      Rounding::floor};
  return emit_resize(c, c.input(0), resize, plan);
}

}  // namespace

std::vector<Rule> resize_rules() {
  return {
      rule("Resize", 11, import_resize),
      rule("Resize", 10, import_upsample),
      rule("Upsample", 1, import_upsample),
  };
}

}  // namespace tw::frontends::onnx
