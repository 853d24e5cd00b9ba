// A product of rows and a known matrix by Strassen's algorithm, in stages that a schedule places.  No model names it:
// the pass choose_strassen puts it in the place of products and 1×1 convolutions where it is faster.
#include "relay_ir/strassen.h"

#include <limits>

#include "relay_ir/ops/combinations.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/ops/narrow.h"

namespace tw::relay {
namespace {

enum StrassenInput { rows_input, sums_input, scale_input };

constexpr int64_t exponent_bits = 0x7f800000, one_exponent = 1 << 23;  // of f32; all of them: infinity or NaN

Expr is_finite(const Expr& exponent) {
  return exponent < int_imm(i32, exponent_bits);
}
// The power of two that a row is divided by, where rows with these exponents are summed: near its own largest element,
// or the largest one's where that is not four times as large.  Of powers whose reciprocal is one too.
Expr scale_of(const Expr& exponent, const std::vector<Expr>& all) {
  Expr largest = int_imm(i32, one_exponent);
  for (const Expr& e : all) largest = max(largest, select(is_finite(e), e, int_imm(i32, 0)));
  const Expr own = select(exponent < largest - int_imm(i32, one_exponent), exponent, largest);
  const Expr bounded = max(min(own, int_imm(i32, exponent_bits - 2 * one_exponent)), int_imm(i32, one_exponent));
  return select(is_finite(exponent), with_same_bits(bounded, f32),
                float_imm(f32, std::numeric_limits<double>::quiet_NaN()));
}
// 0 of NaN.
Expr reciprocal_of(const Expr& scale) {
  const Expr bits = int_imm(i32, exponent_bits - one_exponent) - with_same_bits(scale, i32);
  return with_same_bits(max(bits, int_imm(i32, 0)), f32);
}

AxisUses strassen_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  const int axis = normal_axis(c, c.attributes.get_int("axis"), c.inputs[0].rank());
  uses[0][0] = same_axis(0);
  uses[0][axis] = whole_axis(axis);  // rows are told apart by sums alone, which rounding leaves traces of
  for (int d = 0; d < c.inputs[0].rank(); ++d)
    if (d != axis) uses[1][d] = fixed_axis();
  return uses;
}

OpDef strassen_product_op() {
  OpDef op;
  op.name = "strassen_product";
  op.kind = OpKind::contraction;
  op.doc =
      "x times a matrix, along the axis, by Strassen's algorithm.  weight is [7^levels, k / 2^levels, o / 2^levels]: "
      "sums of the matrix's blocks, filled up with zeros, whose columns are divided by scale, f32[o].  Rows are the "
      "positions along all axes but the first and this one; 2^levels neighbours are of different blocks.  A row much "
      "smaller than one of these is scaled by a power of two while it is summed, so that it is rounded by its own "
      "size.  A row with infinity or NaN makes a row of NaN, and no other.  Computes in f32.";
  op.input_names = {"x", "weight", "scale"};
  op.attributes = {{"levels", 1, false, "1 or 2: how often blocks are split"},
                   {"axis", -1, false, "1 or the last one"}};
  op.facts = linear_facts(strassen_axes, Rounding::multiplies, 1, [](const OpCall& c) -> std::optional<Linear> {
    const int rank = c.inputs[0].rank(), axis = normal_axis(c, c.attributes.get_int("axis"), rank);
    return Linear{
        .data_axis = axis, .weight_axis = 1, .result_axis = axis, .filter_axis = -1, .has_window = axis != rank - 1};
  });
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[rows_input], &w = c.inputs[sums_input];
    const int64_t levels = c.attributes.get_int("levels");
    c.require(levels == 1 || levels == 2, "one level or two");
    const int64_t parts = int64_t{1} << levels;
    c.require(x.dtype == f32 && w.dtype == f32, "data and weight are f32");
    c.require(x.rank() >= 3, "data has at least three dimensions");
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    c.require(axis == 1 || axis == x.rank() - 1, "the axis is 1 or the last one");
    c.require(w.rank() == 3 && is_const_int(w.shape[0], strassen_points(levels)), "the weight is not of these levels");
    const TensorType& scale = c.inputs[scale_input];
    c.require(scale.dtype == f32 && scale.rank() == 1, "scale is f32, one for each column");
    // The last blocks may be shorter, or none at all.
    const auto is_within = [](const Expr& extent, const Expr& most) {
      const auto known = as_int(extent), limit = as_int(most);
      return known && limit && *known <= *limit;
    };
    c.require(is_within(x.shape[axis], w.shape[1] * parts), "data has more channels than the weight");
    c.require(is_within(scale.shape[0], w.shape[2] * parts), "there are more scales than columns");
    TensorType y = x;
    y.shape[axis] = scale.shape[0];
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const int64_t levels = c.attributes.get_int("levels"), parts = int64_t{1} << levels;
    const StrassenTransform &first = strassen_transform(true), &second = strassen_transform(levels == 2);
    const auto outer_points = static_cast<int64_t>(first.data.size()),
               inner_points = static_cast<int64_t>(second.data.size()),
               inner_blocks = static_cast<int64_t>(second.output.size());
    const te::Tensor &x = in[rows_input], &w = in[sums_input], &column_scale = in[scale_input];
    const std::vector<Expr>& shape = c.outputs[0].shape;
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    const Expr inputs = w.shape()[1], outputs = w.shape()[2];
    std::vector<Expr> of_rows(shape.begin() + 1, shape.end());
    of_rows.erase(of_rows.begin() + (axis - 1));
    const Expr rows = product_of(of_rows);
    const TileCount tiles(shape[0], floor_div(rows + (parts - 1), parts));
    const te::Indices counts = tiles.extents();
    const size_t axes = tiles.axes();

    // A tile is a row of each block of rows, a block of channels one of each of theirs: of two at each level.
    const auto number = [&](const Expr& outer, const Expr& inner) { return levels == 2 ? outer * 2 + inner : outer; };
    const auto outer_of = [&](const Expr& n) { return levels == 2 ? floor_div(n, 2) : n; };
    const auto inner_of = [&](const Expr& n) { return levels == 2 ? floor_mod(n, 2) : Expr(0); };

    // The element of a row of a tile.  Rows of a tile that reaches over the end are zeros.
    const auto element = [&](const std::pair<Expr, Expr>& place, const Expr& of_tile, const Expr& channel,
                             const Expr& is_used) {
      const Expr row = place.second * parts + of_tile;
      te::Indices index = unflatten_index(row, of_rows);
      index.insert(index.begin(), place.first);
      index.insert(index.begin() + axis, channel);
      Expr is_there = row < rows;
      if (!is_const_int(inputs * parts, as_int(x.shape()[axis]).value()))
        is_there = is_there && channel < x.shape()[axis];
      return load(x.buffer(), index, is_used.is_defined() ? is_there && is_used : is_there);
    };
    const te::Tensor exponent = te::reduce("bilinear_exponent", joined({counts, {Expr(parts)}}), {x.shape()[axis]},
                                           te::Combiner::max, {x}, [&](const te::Indices& s, const te::Indices& r) {
                                             const Expr bits =
                                                 with_same_bits(element(tiles.place(s, 0), s[axes], r[0], {}), i32);
                                             return binary(BinaryOp::bit_and, bits, int_imm(i32, exponent_bits));
                                           });
    const te::Tensor row_scale =
        te::compute("bilinear_scale", joined({counts, {Expr(parts)}}), {exponent}, [&](const te::Indices& s) {
          std::vector<Expr> of_tile;
          for (int64_t r = 0; r < parts; ++r) of_tile.push_back(exponent(joined({tiles.number(s, 0), {Expr(r)}})));
          return scale_of(exponent(s), of_tile);
        });

    // Sums of blocks, level by level.
    const te::Tensor half = te::compute(
        "bilinear_rows", joined({counts, {inputs, Expr(outer_points), Expr(inner_blocks)}}), {x, row_scale},
        [&](const te::Indices& s) {
          return row_times(first.data, s[axes + 1], [&](size_t block) {
            const Expr outer_row = static_cast<int64_t>(block / 2), outer_column = static_cast<int64_t>(block % 2);
            const Expr of_tile = number(outer_row, floor_div(s[axes + 2], 2));
            const Expr channel = number(outer_column, floor_mod(s[axes + 2], 2)) * inputs + s[axes];
            const Expr scale = row_scale(joined({tiles.number(s, 0), {of_tile}}));
            return element(tiles.place(s, 0), of_tile, channel, is_finite(with_same_bits(scale, i32))) *
                   reciprocal_of(scale);
          });
        });
    const te::Tensor data =
        te::compute("bilinear_data", joined({{Expr(outer_points), Expr(inner_points)}, counts, {inputs}}), {half},
                    [&](const te::Indices& s) {
                      return row_times(second.data, s[1], [&](size_t block) {
                        return half(joined({tiles.number(s, 2), {s.back(), s[0], Expr(static_cast<int64_t>(block))}}));
                      });
                    });
    const te::Tensor product =
        te::reduce("bilinear_product", joined({{Expr(outer_points), Expr(inner_points)}, counts, {outputs}}), {inputs},
                   te::Combiner::sum, {data, w}, [&](const te::Indices& s, const te::Indices& r) {
                     return data(joined({{s[0], s[1]}, tiles.number(s, 2), {r[0]}})) *
                            w({s[0] * inner_points + s[1], r[0], s.back()});
                   });
    const te::Tensor part = te::compute(
        "bilinear_columns", joined({counts, {outputs, Expr(int64_t{4}), Expr(inner_points)}}), {product},
        [&](const te::Indices& s) {
          return row_times(first.output, s[axes + 1], [&](size_t point) {
            return product(joined({{Expr(static_cast<int64_t>(point)), s[axes + 2]}, tiles.number(s, 0), {s[axes]}}));
          });
        });
    const auto result = [&](const te::Indices& s) {
      Expr row = 0;
      for (int d = 1, r = 0; d < x.rank(); ++d)
        if (d != axis) row = row * of_rows[r++] + s[d];
      const Expr of_tile = floor_mod(row, parts), block = floor_div(s[axis], outputs);
      const te::Indices tile = tiles.number(s[0], floor_div(row, parts));
      const Expr scaled = row_times(second.output, inner_of(of_tile) * 2 + inner_of(block), [&](size_t point) {
        return part(joined({tile,
                            {floor_mod(s[axis], outputs), outer_of(of_tile) * 2 + outer_of(block),
                             Expr(static_cast<int64_t>(point))}}));
      });
      return scaled * column_scale({s[axis]}) * row_scale(joined({tile, {of_tile}}));
    };
    return {te::compute("bilinear_result", shape, {part, row_scale, column_scale}, result, {{"tile", parts}})};
  };
  const NodeAttributes of_images = attributes_of({{"axis", 1}});
  op.examples = {{{tensor_type(f32, {1, 5, 4}), tensor_type(f32, {7, 2, 3}), tensor_type(f32, {6})}, {}},
                 {{tensor_type(f32, {2, 6, 8}), tensor_type(f32, {49, 2, 1}), tensor_type(f32, {4})},
                  attributes_of({{"levels", 2}})},
                 {{tensor_type(f32, {2, 2, 3, 4}), tensor_type(f32, {7, 2, 2}), tensor_type(f32, {4})}, {}},
                 {{tensor_type(f32, {2, 4, 3, 5}), tensor_type(f32, {7, 2, 2}), tensor_type(f32, {4})}, of_images},
                 {{tensor_type(f32, {1, 8, 3, 4}), tensor_type(f32, {49, 2, 3}), tensor_type(f32, {12})},
                  attributes_of({{"levels", 2}, {"axis", 1}})}};
  return op;
}

}  // namespace

std::vector<OpDef> strassen_family() {
  return {strassen_product_op()};
}

}  // namespace tw::relay
