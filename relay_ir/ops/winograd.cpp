// Convolutions by Winograd's minimal filtering, in stages that a schedule places.  No model names them: the pass
// choose_winograd puts them in the place of convolutions where they are faster.
//
// One or two axes of the map are filtered (filtered_axes); the others are as many maps of these.  Along the first of
// three the window may sum over slices, each of which is transformed once: product[slice] = Σ data[slice + j] · w[j].
#include "relay_ir/winograd.h"

#include <algorithm>

#include "relay_ir/ops/combinations.h"
#include "relay_ir/ops/window.h"

namespace tw::relay {
namespace {

// What happens along an axis of the map.
struct Along {
  const WinogradTransform& transform;
  bool is_filtered;
  int64_t window, stride, dilation;

  int64_t reach() const { return (window - 1) * dilation + 1; }
  int64_t tile() const { return transform.tile * dilation; }     // elements from one tile of a phase to the next
  int64_t step() const { return transform.tile * stride; }       // …of the phase's data
  int64_t overlap() const { return transform.size() - step(); }  // data that the next tile reads as well
  // Tiles of so many elements of the result, of one phase.
  Expr tiles(const Expr& extent) const { return floor_div(extent + (tile() - 1), tile()); }
};

std::vector<Along> along_axes(const OpCall& c) {
  const std::vector<int64_t>& window = c.attributes.get_ints("window");
  const std::vector<size_t> filtered = filtered_axes(window);
  const int64_t stride = c.attributes.get_int("stride"), tile = c.attributes.get_int("tile"),
                dilation = c.attributes.get_int("dilation");
  std::vector<Along> result;
  for (size_t d = 0; d < window.size(); ++d) {
    const bool is_filtered = std::ranges::count(filtered, d) != 0;
    result.push_back({winograd_transform(is_filtered ? tile : 1, stride), is_filtered, window[d],
                      is_filtered ? stride : 1, is_filtered ? dilation : 1});
  }
  return result;
}

// Of the window's sum: one where the first axis is filtered.
int64_t slices_of(const std::vector<Along>& axes) {
  return axes[0].is_filtered ? 1 : axes[0].window;
}

AxisUses winograd_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  uses[0][0] = same_axis(0);
  const std::vector<Along> axes = along_axes(c);
  const auto reduced = as_int(c.inputs[1].shape[1]);
  uses[0][1] = c.attributes.get_int("groups") == 1
                   ? whole_axis(1)
                   : AxisUse{.kind = AxisUse::Kind::window, .axis = 1, .size = reduced.value_or(1) / slices_of(axes)};
  const auto& pads = c.attributes.get_ints("pads");
  for (size_t d = 0; d < axes.size(); ++d) {
    const Along& a = axes[d];
    const int axis = static_cast<int>(d) + 2;
    const bool is_moved = a.window > 1 || pads[d] != 0 || pads[axes.size() + d] != 0;
    uses[0][axis] = is_moved ? AxisUse{.kind = AxisUse::Kind::window,
                                       .axis = axis,
                                       .stride = a.stride,
                                       .size = a.window,
                                       .dilation = a.dilation}
                             : same_axis(axis);
  }
  uses[1].assign(c.inputs[0].rank(), fixed_axis());
  uses[1][1] = same_axis(2);
  return uses;
}

std::vector<TensorType> infer_winograd(const OpCall& c) {
  const TensorType &x = c.inputs[0], &w = c.inputs[1];
  const auto &window = c.attributes.get_ints("window"), &pads = c.attributes.get_ints("pads");
  const int64_t tile = c.attributes.get_int("tile"), dilation = c.attributes.get_int("dilation"),
                stride = c.attributes.get_int("stride"), groups = c.attributes.get_int("groups");
  c.require(dilation >= 1 && dilation < window_limit, "dilation is at least 1, and no window is that large");
  c.require(tile == 2 || tile == 4, "tiles are of 2 or 4 along an axis");
  c.require(x.dtype == f32 || x.dtype == bf16 || x.dtype == f16, "data is f32, or of 16-bit floats");
  c.require(w.dtype == f32, "weight is f32");
  c.require(x.rank() >= 3 && x.rank() <= 5 && w.rank() == 3, "data is [n, c, …] of 1 to 3 axes, weight [points, c, o]");
  c.require(stride == 1 || (stride == 2 && dilation == 1), "stride is 1, or 2 without dilation");
  const size_t dims = x.shape.size() - 2, filtered = filtered_axes(window).size();
  c.require(window.size() == dims && filtered > 0, "a window has an extent for each axis, one or two of them 3");
  c.require(pads.size() == 2 * dims && *std::ranges::min_element(pads) >= 0,
            "pads are two of each dimension, none negative");
  const std::vector<Along> axes = along_axes(c);
  for (size_t d = 0; d < dims; ++d)
    c.require(
        axes[d].is_filtered || window[d] == 1 || (d == 0 && dims == 3 && window[d] >= 1 && window[d] < window_limit),
        "windows sum along the first of three axes only");
  c.require(is_const_int(w.shape[0], winograd_filter(tile, stride, filtered).points()),
            "the weight is not of this tile");
  const auto reduced = as_int(w.shape[1]), outputs = as_int(w.shape[2]);
  const int64_t slices = slices_of(axes);
  c.require(groups >= 1 && outputs && *outputs % groups == 0, "groups divide the output channels");
  c.require(reduced && *reduced % slices == 0, "the weight is not of so many slices");
  c.require_equal(x.shape[1], *reduced / slices * groups, "channels of data and weight differ");
  TensorType y{f32, {x.shape[0], w.shape[2]}};
  for (size_t d = 0; d < dims; ++d) {
    const Along& a = axes[d];
    const Expr size = floor_div(x.shape[2 + d] + (pads[d] + pads[dims + d] - a.reach() + a.stride), a.stride);
    if (const auto known = as_int(size)) c.require(*known >= 1, "the window is larger than the padded data");
    y.shape.push_back(size);
  }
  return {y};
}

std::vector<te::Tensor> compute_winograd(const OpCall& c, const std::vector<te::Tensor>& in) {
  const te::Tensor &x = in[0], &w = in[1];
  const std::vector<Expr>& out = c.outputs[0].shape;
  const std::vector<Along> axes = along_axes(c);
  const std::vector<size_t> filtered = filtered_axes(c.attributes.get_ints("window"));
  const auto& pads = c.attributes.get_ints("pads");
  const int64_t slices = slices_of(axes), groups = c.attributes.get_int("groups");
  const auto [of_rows, of_columns] =
      winograd_filter(c.attributes.get_int("tile"), c.attributes.get_int("stride"), filtered.size());
  const Expr rows(of_rows.size()), columns(of_columns.size());  // products
  const size_t column_axis = filtered.back();
  const Expr inputs = x.shape()[1], outputs = out[1], reduced = floor_div(w.shape()[1], slices);
  const auto input_of = [&](const Expr& output, const Expr& own) {  // its group's
    return groups == 1 ? own : floor_div(output, floor_div(outputs, groups)) * reduced + own;
  };

  // A tile's number, of the result and of the data, which has more slices: along each axis the tile and its phase, or
  // the element.
  std::vector<Expr> digits, data_digits, padded_shape{x.shape()[0], inputs};
  for (size_t d = 0; d < axes.size(); ++d) {
    const Along& a = axes[d];
    const Expr tiles = a.tiles(out[2 + d]), elements = out[2 + d] + (a.window - 1);
    const te::Indices filtered_digits{tiles, Expr(a.dilation)};
    digits = joined({digits, a.is_filtered ? filtered_digits : te::Indices{out[2 + d]}});
    data_digits = joined({data_digits, a.is_filtered ? filtered_digits : te::Indices{elements}});
    padded_shape.push_back(a.is_filtered ? (tiles * a.step() + a.overlap()) * a.dilation : elements);
  }
  const bool is_by_image = filtered.size() < axes.size();
  const TileCount count(out[0], product_of(digits), is_by_image), of_data(out[0], product_of(data_digits), is_by_image);
  const te::Indices counts = count.extents(), data_counts = of_data.extents();
  const size_t first = count.axes();  // of a stage, behind the tile's number
  // Of the padded data: row and column of the tile that the stage's indices begin with.
  const auto element = [&](const te::Indices& stage, const Expr& row, const Expr& column) {
    const te::Indices number = of_data.number(stage, 0);
    const te::Indices at = of_data.is_by_image() ? joined({{number[0]}, unflatten_index(number[1], data_digits)})
                                                 : unflatten_index(number[0], joined({{out[0]}, data_digits}));
    te::Indices index{at[0], stage[first]};
    auto digit = at.begin() + 1;
    for (size_t d = 0; d < axes.size(); ++d) {
      const Along& a = axes[d];
      const Expr tile = *digit++;
      index.push_back(a.is_filtered ? (tile * a.step() + (d == column_axis ? column : row)) * a.dilation + *digit++
                                    : tile);
    }
    return index;
  };

  // Zeros around the data, up to whole tiles.
  const te::Tensor padded = te::compute("bilinear_pad", padded_shape, {x}, [&](const te::Indices& s) {
    te::Indices at{s[0], s[1]};
    Expr inside;
    for (size_t d = 0; d < axes.size(); ++d) {
      at.push_back(s[2 + d] - pads[d]);
      const Expr here = in_bounds(at.back(), x.shape()[2 + d]);
      inside = inside.is_defined() ? inside && here : here;
    }
    return cast(f32, load(x.buffer(), at, inside));
  });
  // Bᵀ d, then (Bᵀ d) B.
  const te::Tensor half =
      te::compute("bilinear_rows", joined({data_counts, {inputs, rows, columns}}), {padded}, [&](const te::Indices& s) {
        return row_times(of_rows.input, s[first + 1],
                         [&](size_t i) { return padded(element(s, Expr(static_cast<int64_t>(i)), s[first + 2])); });
      });
  const te::Tensor data =
      te::compute("bilinear_data", joined({{rows, columns}, data_counts, {inputs}}), {half}, [&](const te::Indices& s) {
        return row_times(of_columns.input, s[1], [&](size_t j) {
          return half(joined({of_data.number(s, 2), {s.back(), s[0], Expr(static_cast<int64_t>(j))}}));
        });
      });
  const te::Indices summed = slices == 1 ? te::Indices{reduced} : te::Indices{Expr(slices), reduced};
  const Expr of_slice = product_of({digits.begin() + 1, digits.end()});  // tiles
  const te::Tensor product = te::reduce("bilinear_product", joined({{rows, columns}, counts, {outputs}}), summed,
                                        te::Combiner::sum, {data, w}, [&](const te::Indices& s, const te::Indices& r) {
                                          te::Indices tile = count.number(s, 2);
                                          if (slices > 1) tile.back() = tile.back() + r[0] * of_slice;
                                          const Expr channel = slices > 1 ? r[0] * reduced + r[1] : r[0];
                                          return data(joined({{s[0], s[1]}, tile, {input_of(s.back(), r.back())}})) *
                                                 w({s[0] * columns + s[1], channel, s.back()});
                                        });
  // Aᵀ M, then (Aᵀ M) A, where each element of the output finds its tile.
  const te::Tensor part = te::compute(
      "bilinear_columns", joined({counts, {outputs, Expr(of_rows.tile), columns}}), {product},
      [&](const te::Indices& s) {
        return row_times(of_rows.output, s[first + 1], [&](size_t i) {
          return product(joined({{Expr(static_cast<int64_t>(i)), s[first + 2]}, count.number(s, 0), {s[first]}}));
        });
      });
  tw::Attributes facts;  // for the schedule
  for (const size_t d : filtered) facts["tile_" + std::to_string(2 + d)] = int64_t{axes[d].transform.tile};
  facts["dilation"] = axes[column_axis].dilation;
  const auto result = [&](const te::Indices& s) {
    Expr tile = count.is_by_image() ? Expr(0) : s[0], row(0), column(0);
    for (size_t d = 0; d < axes.size(); ++d) {
      const Along& a = axes[d];
      const Expr& at = s[2 + d];
      if (!a.is_filtered) {
        tile = tile * out[2 + d] + at;
        continue;
      }
      tile =
          tile * (a.tiles(out[2 + d]) * a.dilation) + floor_div(at, a.tile()) * a.dilation + floor_mod(at, a.dilation);
      (d == column_axis ? column : row) = floor_mod(floor_div(at, a.dilation), int64_t{a.transform.tile});
    }
    const te::Indices number = count.is_by_image() ? te::Indices{s[0], tile} : te::Indices{tile};
    return row_times(of_columns.output, column,
                     [&](size_t j) { return part(joined({number, {s[1], row, Expr(static_cast<int64_t>(j))}})); });
  };
  return {te::compute("bilinear_result", out, {part}, result, facts)};
}

OpDef winograd_conv_op() {
  OpDef op;
  op.name = "winograd_conv";
  op.kind = OpKind::contraction;
  op.doc =
      "A convolution by Winograd's F(m×m, 3×3), or by F(m, 3) where one axis of the window has 3 elements: the last "
      "two such axes are filtered.  weight is [points, slices · c / groups, o]: G g Gᵀ of each filter, of m+2 points "
      "along a filtered axis, or 2m+1 with stride 2.  A dilated one is as many convolutions as there are phases of its "
      "positions.  Of three axes the window may have several slices along the first.  Computes in f32.";
  op.input_names = {"x", "weight"};
  op.attributes = {{"tile", 4, false, "m: 2 or 4"},
                   {"window", std::vector<int64_t>{3, 3}, false, "its extents"},
                   {"pads", std::vector<int64_t>{0, 0, 0, 0}, false, "rows before each dimension, then after each"},
                   {"dilation", 1, false, "between elements of the window, along filtered axes"},
                   {"stride", 1, false, "1 or 2; 2 without dilation; along filtered axes"},
                   {"groups", 1, false, "channels are split into this many independent groups"}};
  op.facts = linear_facts(winograd_axes, Rounding::multiplies, 1, [](const OpCall& c) -> std::optional<Linear> {
    return Linear{.data_axis = 1,
                  .weight_axis = 1,
                  .result_axis = 1,
                  .filter_axis = 2,
                  .groups = c.attributes.get_int("groups"),
                  .has_window = true};
  });
  op.infer = infer_winograd;
  op.compute = compute_winograd;
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
       attributes_of({{"tile", 2}, {"window", Ints{3, 3, 3}}, {"pads", Ints{1, 1, 1, 0, 1, 1}}})},
      {{tensor_type(f32, {1, 4, 3, 7, 8}), tensor_type(f32, {81, 2, 6})},
       attributes_of({{"window", Ints{1, 3, 3}}, {"pads", Ints{0, 1, 1, 0, 1, 1}}, {"stride", 2}, {"groups", 2}})},
      {{tensor_type(f32, {2, 3, 11}), tensor_type(f32, {6, 3, 5})},
       attributes_of({{"window", Ints{3}}, {"pads", Ints{1, 1}}})},
      {{tensor_type(f32, {1, 2, 4, 9}), tensor_type(f32, {5, 2, 3})},
       attributes_of({{"tile", 2}, {"window", Ints{1, 3}}, {"pads", Ints{1, 0, 0, 1}}, {"stride", 2}})},
      {{tensor_type(f32, {1, 2, 7, 3, 4}), tensor_type(f32, {4, 2, 3})},
       attributes_of({{"tile", 2}, {"window", Ints{3, 1, 1}}, {"pads", Ints{2, 0, 0, 2, 0, 0}}, {"dilation", 2}})},
      {{tensor_type(bf16, {1, 3, 6, 6}), tensor_type(f32, {36, 3, 5})}, attributes_of({{"pads", Ints{1, 1, 1, 1}}})}};
  return op;
}

}  // namespace

std::vector<OpDef> winograd_family() {
  return {winograd_conv_op()};
}

}  // namespace tw::relay
