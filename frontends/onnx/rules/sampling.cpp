// What reads images between their elements, at places that data says.
#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"

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
  if (!c.type(c.input(0)).shape.empty()) emit_index_check(c, c.input(2), {c.type(c.input(0)).shape[0]});
  return c.emit("roi_align", {c.input(0), c.input(1), c.input(2)},
                attributes_of({{"size", Ints{c.attribute_int("output_height", 1), c.attribute_int("output_width", 1)}},
                               {"samples", c.attribute_int("sampling_ratio", 0)},
                               {"scale", c.attribute_float("spatial_scale", 1)},
                               {"mode", c.attribute_string("mode", "avg")},
                               {"half_pixel", int64_t{is_half}}}));
}

// Of a convolution whose elements are moved.
struct DeformedWindow {
  std::vector<Expr> results;  // how many there are along each dimension
  Ints kernel, strides, dilations, pads;

  int64_t elements() const { return kernel[0] * kernel[1]; }
};

// Where each element of the window lies along dimension d without an offset: [1, elements, rows, columns], of which one
// is as long as the result.
ValueId emit_window_places(Context& c, const DeformedWindow& w, size_t d) {
  std::vector<Expr> along(4, Expr(1));
  along[2 + d] = w.results[d];
  const ValueId first = c.emit("multiply", {emit_range(c, w.results[d], along), emit_ints(c, {w.strides[d]}, {}, i64)});
  Ints within;
  for (int64_t k = 0; k < w.elements(); ++k)
    within.push_back((d == 0 ? k / w.kernel[1] : k % w.kernel[1]) * w.dilations[d] - w.pads[d]);
  return c.emit("add", {first, emit_ints(c, within, {1, w.elements(), 1, 1}, i64)});
}

// Each element of each window is read where its offset moves it to, between elements of x, and multiplied by its mask;
// then comes one product with the weights.  (Zhu et al., Deformable ConvNets v2, 2019.)
ValueId import_deform_conv(Context& c) {
  const ValueId x = c.input(0), weight = c.input(1), offset = c.input(2);
  const std::vector<Expr> dims = c.type(x).shape, offset_dims = c.type(offset).shape;
  if (dims.size() != 4 || rank_of(c, weight) != 4 || offset_dims.size() != 4)
    c.refuse("data of other dimensions than 2");
  const Ints weight_dims = dims_of(c, weight);
  const int64_t groups = c.attribute_int("group", 1), parts = c.attribute_int("offset_group", 1);
  const int64_t channels = weight_dims[1] * groups;
  DeformedWindow w{{offset_dims[2], offset_dims[3]}, {weight_dims[2], weight_dims[3]}, {}, {}, {}};
  w.strides = c.attribute_ints("strides", {1, 1}), w.dilations = c.attribute_ints("dilations", {1, 1});
  w.pads = c.attribute_ints("pads", {0, 0, 0, 0});
  if (c.attribute_ints("kernel_shape", w.kernel) != w.kernel) c.refuse("a kernel_shape other than the weight's");
  const bool fits = groups >= 1 && parts >= 1 && channels % parts == 0 && weight_dims[0] % groups == 0 &&
                    w.strides.size() == 2 && w.dilations.size() == 2 && w.pads.size() == 4;
  if (!fits) c.refuse("groups or window that do not fit its inputs");
  c.require_equal(dims[1], Expr(channels), "as many channels as the weight takes");
  c.require_equal(offset_dims[1], Expr(2 * parts * w.elements()), "two offsets for each element of the window");
  for (size_t d = 0; d < 2; ++d) {
    const Expr room = dims[2 + d] + (w.pads[d] + w.pads[2 + d] - (w.kernel[d] - 1) * w.dilations[d] - 1);
    c.require_equal(simplify(floor_div(room, w.strides[d]) + 1), w.results[d], "offsets for each place of the window");
  }
  const DType dtype = dtype_of(c, x);
  const Expr batch = simplify(dims[0] * parts), elements(w.elements()), places = w.results[0] * w.results[1];
  const ValueId moved = emit_reshape_open(c, offset, {batch, elements, Expr(2), w.results[0], w.results[1]});
  std::vector<ValueId> grid;  // the last dimension first
  for (size_t d = 2; d-- > 0;) {
    const ValueId own = emit_without_axis(c, emit_slice(c, moved, 2, Expr(static_cast<int64_t>(d)), Expr(1)), 2);
    grid.push_back(c.emit("add", {emit_cast(c, own, f32), emit_cast(c, emit_window_places(c, w, d), f32)}));
  }
  const ValueId where =
      emit_reshape_open(c, emit_stack(c, grid, 4), {batch, simplify(elements * w.results[0]), w.results[1], Expr(2)});
  const ValueId images = emit_reshape_open(c, x, {batch, Expr(channels / parts), dims[2], dims[3]});
  ValueId columns = c.emit("grid_sample", {images, where}, attributes_of({{"in_elements", int64_t{1}}}));
  if (c.has_input(4)) {
    columns = emit_reshape_open(c, columns, {batch, Expr(channels / parts), elements, simplify(places)});
    const ValueId mask = emit_reshape_open(c, c.input(4), {batch, Expr(1), elements, simplify(places)});
    columns = c.emit("multiply", {columns, emit_cast(c, mask, dtype)});
  }
  const Expr depth(weight_dims[1] * w.elements());
  columns = emit_reshape_open(c, columns, {dims[0], Expr(groups), depth, simplify(places)});
  const ValueId filters = emit_reshape_open(c, weight, {Expr(groups), Expr(weight_dims[0] / groups), depth});
  ValueId y = emit_reshape_open(c, emit_matmul(c, filters, columns),
                                {dims[0], Expr(weight_dims[0]), w.results[0], w.results[1]});
  if (c.has_input(3)) y = c.emit("add", {y, emit_along_axis(c, c.input(3), 1, 4)});
  return y;
}

}  // namespace

std::vector<Rule> sampling_rules() {
  return {
      rule("AffineGrid", 20, import_affine_grid),
      rule("DeformConv", 19, import_deform_conv),
      rule("RoiAlign", 10, import_roi_align),
      rule("GridSample", 16, import_grid_sample),
      rule_of(microsoft, "GridSample", import_grid_sample),
  };
}

}  // namespace tw::frontends::onnx
