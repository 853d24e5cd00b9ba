// What reads images between their elements, at places that data says.
#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {
namespace {

// Opset 16 says bilinear and bicubic, later ones linear and cubic.
ValueId import_grid_sample(Context& c) {
  std::string mode = c.attribute_string("mode", "linear");
  if (mode.starts_with("bi")) mode = mode.substr(2);
  return c.emit("grid_sample", {c.input(0), c.input(1)},
                attributes_of({{"mode", mode},
                               {"padding", c.attribute_string("padding_mode", "zeros")},
                               {"align_corners", c.attribute_int("align_corners", 0)}}));
}

// Positions from -1 to 1 along an axis: [1, …, extent, …, 1] of `rank` dimensions.
ValueId emit_positions(Context& c, const Expr& extent, int axis, int rank, bool align_corners) {
  std::vector<Expr> shape(rank, Expr(1));
  shape[axis] = extent;
  const auto number = [&](double value) { return emit_scalar(c, f64, value); };
  const ValueId place = emit_cast(c, emit_range(c, extent, shape), f64);
  const ValueId twice = c.emit("add", {place, place}), size = emit_cast(c, c.emit_sizes({extent}, {}), f64);
  const ValueId last = c.emit("subtract", {size, number(1)});
  if (!align_corners) return c.emit("divide", {c.emit("subtract", {twice, last}), size});
  // One position is in the middle.
  const ValueId is_one = c.emit("equal", {size, number(1)});
  return c.emit("divide", {c.emit("subtract", {twice, last}), c.emit("where", {is_one, size, last})});
}

// theta [n, k, k + 1] · (position, 1), with the position's last dimension first.
ValueId import_affine_grid(Context& c) {
  const ValueId theta = c.input(0);
  const DType dtype = dtype_of(c, theta);
  const std::vector<Expr> size = c.read_dims(1, {1});
  const int count = static_cast<int>(size.size()) - 2;
  if (count != 2 && count != 3) c.refuse("a grid of " + std::to_string(count) + " dimensions");
  if (rank_of(c, theta) != 3) c.refuse("theta of another rank than 3");
  c.require_equal(c.type(theta).shape[0], size[0], "a matrix for each of the batch");
  const bool align_corners = c.attribute_int("align_corners", 0) != 0;
  const auto column = [&](int k) {
    std::vector<Expr> shape(static_cast<size_t>(count) + 2, Expr(1));
    shape[0] = size[0], shape.back() = Expr(count);
    return emit_reshape_open(c, emit_slice(c, theta, 2, Expr(k), Expr(1)), shape);
  };
  ValueId grid = column(count);
  for (int d = count - 1; d >= 0; --d) {
    const ValueId along = emit_positions(c, size[2 + d], 1 + d, count + 2, align_corners);
    grid = c.emit("add", {c.emit("multiply", {column(count - 1 - d), emit_cast(c, along, dtype)}), grid});
  }
  return grid;
}

ValueId import_roi_align(Context& c) {
  const bool is_half =
      c.opset() >= 16 && c.attribute_string("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  return c.emit("roi_align", {c.input(0), c.input(1), c.input(2)},
                attributes_of({{"size", Ints{c.attribute_int("output_height", 1), c.attribute_int("output_width", 1)}},
                               {"samples", c.attribute_int("sampling_ratio", 0)},
                               {"scale", c.attribute_float("spatial_scale", 1)},
                               {"mode", c.attribute_string("mode", "avg")},
                               {"half_pixel", int64_t{is_half}}}));
}

}  // namespace

std::vector<Rule> sampling_rules() {
  return {
      rule("AffineGrid", 20, import_affine_grid),
      rule("RoiAlign", 10, import_roi_align),
      rule("GridSample", 16, import_grid_sample),
  };
}

}  // namespace tw::frontends::onnx
