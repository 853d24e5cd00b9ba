// The 3×3 convolution by Winograd's minimal filtering, in stages that a schedule places.  No model names it: the pass
// choose_winograd puts it in the place of convolutions where it is faster.
#include "relay_ir/winograd.h"

#include "relay_ir/ops/combinations.h"
#include "relay_ir/ops/window.h"

namespace tw::relay {
namespace {

AxisUses winograd_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  uses[0][0] = same_axis(0);
  const auto inputs = as_int(c.inputs[0].shape[1]), reduced = as_int(c.inputs[1].shape[1]);
  uses[0][1] = inputs == reduced ? whole_axis(1)
                                 : AxisUse{.kind = AxisUse::Kind::window, .axis = 1, .size = reduced.value_or(1)};
  for (const int d : {2, 3})
    uses[0][d] = {.kind = AxisUse::Kind::window,
                  .axis = d,
                  .stride = c.attributes.get_int("stride"),
                  .size = 3,
                  .dilation = c.attributes.get_int("dilation")};
  uses[1].assign(4, fixed_axis());
  uses[1][1] = same_axis(2);
  return uses;
}

OpDef winograd_conv_op() {
  OpDef op;
  op.name = "winograd_conv";
  op.kind = OpKind::contraction;
  op.doc =
      "A 3×3 convolution by Winograd's F(m×m, 3×3).  weight is [points, c / groups, o]: G g Gᵀ of each filter, of "
      "(m+2)² points, or (2m+1)² with stride 2.  A dilated one is as many convolutions as there are phases of its "
      "positions.  Computes in f32.";
  op.input_names = {"x", "weight"};
  op.attributes = {{"tile", 4, false, "m: 2 or 4"},
                   {"pads", std::vector<int64_t>{0, 0, 0, 0}, false, "rows before each dimension, then after each"},
                   {"dilation", 1, false, "between elements of the window"},
                   {"stride", 1, false, "1 or 2; 2 without dilation"},
                   {"groups", 1, false, "channels are split into this many independent groups"}};
  op.facts = linear_facts(winograd_axes, Rounding::multiplies, 1, [](const OpCall& c) -> std::optional<Linear> {
    return Linear{.data_axis = 1,
                  .weight_axis = 1,
                  .result_axis = 1,
                  .filter_axis = 2,
                  .groups = c.attributes.get_int("groups"),
                  .has_window = true};
  });
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &w = c.inputs[1];
    const int64_t tile = c.attributes.get_int("tile");
    const int64_t dilation = c.attributes.get_int("dilation");
    const auto& pads = c.attributes.get_ints("pads");
    c.require(dilation >= 1 && dilation < window_limit, "dilation is at least 1, and no window is that large");
    c.require(tile == 2 || tile == 4, "tiles are 2×2 or 4×4");
    c.require(x.dtype == f32 || x.dtype == bf16 || x.dtype == f16, "data is f32, or of 16-bit floats");
    c.require(w.dtype == f32, "weight is f32");
    c.require(x.rank() == 4 && w.rank() == 3, "data is [n, c, h, w], weight [(m+2)², c, o]");
    const int64_t stride = c.attributes.get_int("stride");
    c.require(stride == 1 || (stride == 2 && dilation == 1), "stride is 1, or 2 without dilation");
    const int64_t points = winograd_transform(tile, stride).size();
    c.require(is_const_int(w.shape[0], points * points), "the weight is not of this tile");
    const int64_t groups = c.attributes.get_int("groups");
    const auto outputs = as_int(w.shape[2]);
    c.require(groups >= 1 && outputs && *outputs % groups == 0, "groups divide the output channels");
    c.require_equal(x.shape[1], w.shape[1] * groups, "channels of data and weight differ");
    c.require(pads.size() == 4 && *std::min_element(pads.begin(), pads.end()) >= 0, "pads are four, none negative");
    TensorType y{f32, {x.shape[0], w.shape[2]}};
    for (size_t d = 0; d < 2; ++d) {
      const Expr size = floor_div(x.shape[2 + d] + (pads[d] + pads[2 + d] - 2 * dilation + stride - 1), stride);
      if (const auto known = as_int(size)) c.require(*known >= 1, "the window is larger than the padded data");
      y.shape.push_back(size);
    }
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const int64_t stride = c.attributes.get_int("stride");
    const WinogradTransform& transform = winograd_transform(c.attributes.get_int("tile"), stride);
    const int64_t step = transform.tile * stride;  // between neighbouring tiles of the input
    const auto& pads = c.attributes.get_ints("pads");
    const int64_t m = transform.tile, size = transform.size(), dilation = c.attributes.get_int("dilation");
    const te::Tensor &x = in[0], &w = in[1];
    const std::vector<Expr>& out = c.outputs[0].shape;
    const Expr rows = floor_div(out[2] + (m * dilation - 1), m * dilation),
               columns = floor_div(out[3] + (m * dilation - 1), m * dilation);
    const Expr tiles = rows * dilation * columns * dilation;  // of an image: rows, their phases, columns, their phases
    const Expr inputs = x.shape()[1], outputs = out[1], reduced = w.shape()[1];
    const int64_t groups = c.attributes.get_int("groups");
    const auto input_of = [&](const Expr& output, const Expr& own) {  // its group's
      return groups == 1 ? own : floor_div(output, floor_div(outputs, groups)) * reduced + own;
    };
    const TileCount count(out[0], tiles);
    const te::Indices counts = count.extents();
    const size_t axes = count.axes();
    const auto place = [&](const te::Indices& tile) {  // its image, row, column, and the phases of both
      if (!count.is_by_image())
        return unflatten_index(tile[0], {out[0], rows, Expr(dilation), columns, Expr(dilation)});
      return joined({{tile[0]}, unflatten_index(tile[1], {rows, Expr(dilation), columns, Expr(dilation)})});
    };

    // Zeros around the data, up to whole tiles.
    const te::Tensor padded = te::compute(
        "bilinear_pad",
        {x.shape()[0], inputs, (rows * step + (size - step)) * dilation, (columns * step + (size - step)) * dilation},
        {x}, [&](const te::Indices& s) {
          const Expr h = s[2] - pads[0], v = s[3] - pads[1];
          const Expr inside = in_bounds(h, x.shape()[2]) && in_bounds(v, x.shape()[3]);
          return cast(f32, load(x.buffer(), {s[0], s[1], h, v}, inside));
        });
    // Bᵀ d, then (Bᵀ d) B.
    const te::Tensor half = te::compute(
        "bilinear_rows", joined({counts, {inputs, Expr(size), Expr(size)}}), {padded}, [&](const te::Indices& s) {
          const te::Indices at = place(count.number(s, 0));
          return row_times(transform.input, s[axes + 1], [&](size_t i) {
            return padded({at[0], s[axes], (at[1] * step + static_cast<int64_t>(i)) * dilation + at[2],
                           (at[3] * step + s[axes + 2]) * dilation + at[4]});
          });
        });
    const te::Tensor data = te::compute(
        "bilinear_data", joined({{Expr(size), Expr(size)}, counts, {inputs}}), {half}, [&](const te::Indices& s) {
          return row_times(transform.input, s[1], [&](size_t j) {
            return half(joined({count.number(s, 2), {s.back(), s[0], Expr(static_cast<int64_t>(j))}}));
          });
        });
    const te::Tensor product =
        te::reduce("bilinear_product", joined({{Expr(size), Expr(size)}, counts, {outputs}}), {reduced},
                   te::Combiner::sum, {data, w}, [&](const te::Indices& s, const te::Indices& r) {
                     return data(joined({{s[0], s[1]}, count.number(s, 2), {input_of(s.back(), r[0])}})) *
                            w({s[0] * size + s[1], r[0], s.back()});
                   });
    // Aᵀ M, then (Aᵀ M) A, where each element of the output finds its tile.
    const te::Tensor part = te::compute(
        "bilinear_columns", joined({counts, {outputs, Expr(m), Expr(size)}}), {product}, [&](const te::Indices& s) {
          return row_times(transform.output, s[axes + 1], [&](size_t i) {
            return product(joined({{Expr(static_cast<int64_t>(i)), s[axes + 2]}, count.number(s, 0), {s[axes]}}));
          });
        });
    return {te::compute("bilinear_result", out, {part}, [&](const te::Indices& s) {
      const auto number_along = [&](const Expr& at) {
        return floor_div(at, m * dilation) * dilation + floor_mod(at, dilation);
      };
      const auto within = [&](const Expr& at) { return floor_mod(floor_div(at, dilation), m); };
      const Expr row = number_along(s[2]), column = number_along(s[3]);
      const te::Indices tile = count.is_by_image()
                                   ? count.number(s[0], row * (columns * dilation) + column)
                                   : te::Indices{(s[0] * (rows * dilation) + row) * (columns * dilation) + column};
      return row_times(transform.output, within(s[3]), [&](size_t j) {
        return part(joined({tile, {s[1], within(s[2]), Expr(static_cast<int64_t>(j))}}));
      });
    })};
  };
  using Ints = std::vector<int64_t>;
  op.examples = {
      {{tensor_type(f32, {1, 3, 6, 6}), tensor_type(f32, {36, 3, 5})}, attributes_of({{"pads", Ints{1, 1, 1, 1}}})},
      {{tensor_type(f32, {2, 2, 5, 7}), tensor_type(f32, {16, 2, 3})},
       attributes_of({{"tile", 2}, {"pads", Ints{1, 0, 0, 2}}})},
      {{tensor_type(f32, {1, 2, 9, 12}), tensor_type(f32, {81, 2, 3})},
       attributes_of({{"pads", Ints{1, 1, 1, 1}}, {"stride", 2}})},
      {{tensor_type(f32, {1, 2, 8, 5}), tensor_type(f32, {25, 2, 3})},
       attributes_of({{"tile", 2}, {"pads", Ints{0, 1, 0, 1}}, {"stride", 2}})},
      {{tensor_type(f32, {1, 4, 6, 5}), tensor_type(f32, {36, 2, 6})},
       attributes_of({{"pads", Ints{1, 1, 1, 1}}, {"groups", 2}})},
      {{tensor_type(f32, {1, 2, 7, 9}), tensor_type(f32, {16, 2, 3})},
       attributes_of({{"tile", 2}, {"pads", Ints{2, 1, 2, 3}}, {"dilation", 2}})},
      {{tensor_type(bf16, {1, 3, 6, 6}), tensor_type(f32, {36, 3, 5})}, attributes_of({{"pads", Ints{1, 1, 1, 1}}})}};
  return op;
}

}  // namespace

std::vector<OpDef> winograd_family() {
  return {winograd_conv_op()};
}

}  // namespace tw::relay
