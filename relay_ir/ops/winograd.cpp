// The 3×3 convolution by Winograd's minimal filtering, in stages that a schedule places.  No model names it: the pass
// choose_winograd puts it in the place of convolutions where it is faster.
//
// Of three dimensions the last two are filtered, slice by slice; along the first the window sums over slices, each of
// which is transformed once: product[slice] = Σ data[slice + j] · w[j].
#include "relay_ir/winograd.h"

#include "relay_ir/ops/combinations.h"
#include "relay_ir/ops/window.h"

namespace tw::relay {
namespace {

AxisUses winograd_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  uses[0][0] = same_axis(0);
  const auto reduced = as_int(c.inputs[1].shape[1]);
  const int64_t slices = c.attributes.get_int("slices"), groups = c.attributes.get_int("groups");
  uses[0][1] = groups == 1 ? whole_axis(1)
                           : AxisUse{.kind = AxisUse::Kind::window, .axis = 1, .size = reduced.value_or(1) / slices};
  const int rank = c.inputs[0].rank();
  const auto& pads = c.attributes.get_ints("pads");
  if (rank == 5) {
    const bool is_moved = slices > 1 || pads[0] != 0 || pads[3] != 0;
    uses[0][2] = is_moved ? AxisUse{.kind = AxisUse::Kind::window, .axis = 2, .size = slices} : same_axis(2);
  }
  for (const int d : {rank - 2, rank - 1})
    uses[0][d] = {.kind = AxisUse::Kind::window,
                  .axis = d,
                  .stride = c.attributes.get_int("stride"),
                  .size = 3,
                  .dilation = c.attributes.get_int("dilation")};
  uses[1].assign(rank, fixed_axis());
  uses[1][1] = same_axis(2);
  return uses;
}

OpDef winograd_conv_op() {
  OpDef op;
  op.name = "winograd_conv";
  op.kind = OpKind::contraction;
  op.doc =
      "A 3×3 convolution by Winograd's F(m×m, 3×3).  weight is [points, slices · c / groups, o]: G g Gᵀ of each "
      "filter, of (m+2)² points, or (2m+1)² with stride 2.  A dilated one is as many convolutions as there are phases "
      "of its positions.  Of three dimensions the window has so many slices along the first.  Computes in f32.";
  op.input_names = {"x", "weight"};
  op.attributes = {{"tile", 4, false, "m: 2 or 4"},
                   {"pads", std::vector<int64_t>{0, 0, 0, 0}, false, "rows before each dimension, then after each"},
                   {"dilation", 1, false, "between elements of the window, not between slices"},
                   {"stride", 1, false, "1 or 2; 2 without dilation; not of slices"},
                   {"slices", 1, false, "of the window, along the first of three dimensions"},
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
    c.require((x.rank() == 4 || x.rank() == 5) && w.rank() == 3, "data is [n, c, [d,] h, w], weight [points, c, o]");
    const int64_t stride = c.attributes.get_int("stride"), slices = c.attributes.get_int("slices");
    c.require(stride == 1 || (stride == 2 && dilation == 1), "stride is 1, or 2 without dilation");
    c.require(slices >= 1 && slices < window_limit && (slices == 1 || x.rank() == 5), "slices are of three dimensions");
    const int64_t points = winograd_transform(tile, stride).size();
    c.require(is_const_int(w.shape[0], points * points), "the weight is not of this tile");
    const int64_t groups = c.attributes.get_int("groups");
    const auto reduced = as_int(w.shape[1]), outputs = as_int(w.shape[2]);
    c.require(groups >= 1 && outputs && *outputs % groups == 0, "groups divide the output channels");
    c.require(reduced && *reduced % slices == 0, "the weight is not of so many slices");
    c.require_equal(x.shape[1], *reduced / slices * groups, "channels of data and weight differ");
    const size_t dims = x.shape.size() - 2;
    c.require(pads.size() == 2 * dims && *std::ranges::min_element(pads) >= 0,
              "pads are two of each dimension, none negative");
    TensorType y{f32, {x.shape[0], w.shape[2]}};
    for (size_t d = 0; d < dims; ++d) {
      const bool is_slice = d + 2 < dims;
      const int64_t step = is_slice ? 1 : stride, reach = is_slice ? slices - 1 : 2 * dilation;
      const Expr size = floor_div(x.shape[2 + d] + (pads[d] + pads[dims + d] - reach + step - 1), step);
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
    const int64_t m = transform.tile, size = transform.size(), dilation = c.attributes.get_int("dilation"),
                  slices = c.attributes.get_int("slices");
    const te::Tensor &x = in[0], &w = in[1];
    const std::vector<Expr>& out = c.outputs[0].shape;
    const size_t dims = out.size() - 2, row_axis = dims;  // of x and the result
    const bool has_slices = dims == 3;
    const Expr rows = floor_div(out[row_axis] + (m * dilation - 1), m * dilation),
               columns = floor_div(out[row_axis + 1] + (m * dilation - 1), m * dilation);
    const Expr of_slice = rows * dilation * columns * dilation;  // tiles: rows, their phases, columns, their phases
    const Expr result_slices = has_slices ? out[2] : Expr(1), data_slices = result_slices + (slices - 1);
    const int64_t groups = c.attributes.get_int("groups");
    const Expr inputs = x.shape()[1], outputs = out[1], reduced = floor_div(w.shape()[1], slices);
    const auto input_of = [&](const Expr& output, const Expr& own) {  // its group's
      return groups == 1 ? own : floor_div(output, floor_div(outputs, groups)) * reduced + own;
    };
    const TileCount count(out[0], of_slice * result_slices, has_slices),
        of_data(out[0], of_slice * data_slices, has_slices);
    const te::Indices counts = count.extents(), data_counts = of_data.extents();
    const size_t axes = count.axes();
    // Where a tile of the data is: its image, slice, row, column, and the phases of both.
    struct Place {
      Expr image, slice, row, row_phase, column, column_phase;
    };
    const auto place = [&](const te::Indices& stage) {
      const std::vector<Expr> within{rows, Expr(dilation), columns, Expr(dilation)};
      if (!of_data.is_by_image()) {
        const te::Indices at = unflatten_index(stage[0], joined({{out[0]}, within}));
        return Place{at[0], Expr(0), at[1], at[2], at[3], at[4]};
      }
      const te::Indices at = unflatten_index(stage[1], has_slices ? joined({{data_slices}, within}) : within);
      const size_t row = has_slices ? 1 : 0;
      return Place{stage[0], has_slices ? at[0] : Expr(0), at[row], at[row + 1], at[row + 2], at[row + 3]};
    };

    // Zeros around the data, up to whole tiles.
    std::vector<Expr> padded_shape{x.shape()[0], inputs};
    if (has_slices) padded_shape.push_back(data_slices);
    for (const Expr& tiles : {rows, columns}) padded_shape.push_back((tiles * step + (size - step)) * dilation);
    const te::Tensor padded = te::compute("bilinear_pad", padded_shape, {x}, [&](const te::Indices& s) {
      te::Indices at{s[0], s[1]};
      Expr inside;
      for (size_t d = 0; d < dims; ++d) {
        at.push_back(s[2 + d] - pads[d]);
        const Expr here = in_bounds(at.back(), x.shape()[2 + d]);
        inside = inside.is_defined() ? inside && here : here;
      }
      return cast(f32, load(x.buffer(), at, inside));
    });
    // Bᵀ d, then (Bᵀ d) B.
    const te::Tensor half = te::compute(
        "bilinear_rows", joined({data_counts, {inputs, Expr(size), Expr(size)}}), {padded}, [&](const te::Indices& s) {
          const Place at = place(of_data.number(s, 0));
          return row_times(transform.input, s[axes + 1], [&](size_t i) {
            te::Indices element{at.image, s[axes]};
            if (has_slices) element.push_back(at.slice);
            element.push_back((at.row * step + static_cast<int64_t>(i)) * dilation + at.row_phase);
            element.push_back((at.column * step + s[axes + 2]) * dilation + at.column_phase);
            return padded(element);
          });
        });
    const te::Tensor data = te::compute(
        "bilinear_data", joined({{Expr(size), Expr(size)}, data_counts, {inputs}}), {half}, [&](const te::Indices& s) {
          return row_times(transform.input, s[1], [&](size_t j) {
            return half(joined({of_data.number(s, 2), {s.back(), s[0], Expr(static_cast<int64_t>(j))}}));
          });
        });
    const te::Indices summed = slices == 1 ? te::Indices{reduced} : te::Indices{Expr(slices), reduced};
    const te::Tensor product =
        te::reduce("bilinear_product", joined({{Expr(size), Expr(size)}, counts, {outputs}}), summed, te::Combiner::sum,
                   {data, w}, [&](const te::Indices& s, const te::Indices& r) {
                     te::Indices tile = count.number(s, 2);
                     if (slices > 1) tile.back() = tile.back() + r[0] * of_slice;
                     const Expr channel = slices > 1 ? r[0] * reduced + r[1] : r[0];
                     return data(joined({{s[0], s[1]}, tile, {input_of(s.back(), r.back())}})) *
                            w({s[0] * size + s[1], channel, s.back()});
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
      const Expr &of_row = s[row_axis], &of_column = s[row_axis + 1];
      const Expr row = number_along(of_row), column = number_along(of_column);
      const auto number_in = [&](const Expr& around) {
        return (around * (rows * dilation) + row) * (columns * dilation) + column;
      };
      const te::Indices tile = count.is_by_image() ? count.number(s[0], number_in(has_slices ? s[2] : Expr(0)))
                                                   : te::Indices{number_in(s[0])};
      return row_times(transform.output, within(of_column), [&](size_t j) {
        return part(joined({tile, {s[1], within(of_row), Expr(static_cast<int64_t>(j))}}));
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
      {{tensor_type(f32, {2, 2, 4, 6, 5}), tensor_type(f32, {16, 6, 3})},
       attributes_of({{"tile", 2}, {"pads", Ints{1, 1, 1, 0, 1, 1}}, {"slices", 3}})},
      {{tensor_type(f32, {1, 4, 3, 7, 8}), tensor_type(f32, {81, 2, 6})},
       attributes_of({{"pads", Ints{0, 1, 1, 0, 1, 1}}, {"stride", 2}, {"groups", 2}})},
      {{tensor_type(bf16, {1, 3, 6, 6}), tensor_type(f32, {36, 3, 5})}, attributes_of({{"pads", Ints{1, 1, 1, 1}}})}};
  return op;
}

}  // namespace

std::vector<OpDef> winograd_family() {
  return {winograd_conv_op()};
}

}  // namespace tw::relay
