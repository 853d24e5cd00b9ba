// A product of rows and a known matrix by Strassen's algorithm, in stages that a schedule places.  No model names it:
// the pass choose_strassen puts it in the place of products and 1×1 convolutions where it is faster.
#include "relay_ir/strassen.h"

#include "relay_ir/ops/combinations.h"
#include "relay_ir/ops/common.h"

namespace tw::relay {
namespace {

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
      "sums of the matrix's blocks.  Rows are the positions along all axes but the first and this one; 2^levels "
      "neighbours are of different blocks.  Computes in f32.";
  op.input_names = {"x", "weight"};
  op.attributes = {{"levels", 1, false, "1 or 2: how often blocks are split"},
                   {"axis", -1, false, "1 or the last one"}};
  op.facts = linear_facts(strassen_axes, Rounding::multiplies, 1, [](const OpCall& c) -> std::optional<Linear> {
    const int rank = c.inputs[0].rank(), axis = normal_axis(c, c.attributes.get_int("axis"), rank);
    return Linear{
        .data_axis = axis, .weight_axis = 1, .result_axis = axis, .filter_axis = -1, .has_window = axis != rank - 1};
  });
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &w = c.inputs[1];
    const int64_t levels = c.attributes.get_int("levels");
    c.require(levels == 1 || levels == 2, "one level or two");
    const int64_t parts = int64_t{1} << levels;
    c.require(x.dtype == f32 && w.dtype == f32, "data and weight are f32");
    c.require(x.rank() >= 3, "data has at least three dimensions");
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    c.require(axis == 1 || axis == x.rank() - 1, "the axis is 1 or the last one");
    c.require(w.rank() == 3 && is_const_int(w.shape[0], strassen_points(levels)), "the weight is not of these levels");
    c.require_equal(x.shape[axis], w.shape[1] * parts, "channels of data and weight differ");
    TensorType y = x;
    y.shape[axis] = w.shape[2] * parts;
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const int64_t levels = c.attributes.get_int("levels"), parts = int64_t{1} << levels;
    const StrassenTransform &first = strassen_transform(true), &second = strassen_transform(levels == 2);
    const auto outer_points = static_cast<int64_t>(first.data.size()),
               inner_points = static_cast<int64_t>(second.data.size()),
               inner_blocks = static_cast<int64_t>(second.output.size());
    const te::Tensor &x = in[0], &w = in[1];
    const std::vector<Expr>& shape = c.outputs[0].shape;
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    const Expr inputs = w.shape()[1], outputs = w.shape()[2];
    std::vector<Expr> of_rows(shape.begin() + 1, shape.end());
    of_rows.erase(of_rows.begin() + (axis - 1));
    const Expr rows = product_of(of_rows), tiles = floor_div(rows + (parts - 1), parts);

    // A tile is a row of each block of rows, a block of channels one of each of theirs: of two at each level.
    const auto number = [&](const Expr& outer, const Expr& inner) { return levels == 2 ? outer * 2 + inner : outer; };
    const auto outer_of = [&](const Expr& n) { return levels == 2 ? floor_div(n, 2) : n; };
    const auto inner_of = [&](const Expr& n) { return levels == 2 ? floor_mod(n, 2) : Expr(0); };

    // Sums of blocks, level by level.  The rows of a tile that reaches over the end are zeros.
    const te::Tensor half = te::compute(
        "bilinear_rows", {shape[0] * tiles, inputs, Expr(outer_points), Expr(inner_blocks)}, {x},
        [&](const te::Indices& s) {
          return row_times(first.data, s[2], [&](size_t block) {
            const Expr outer_row = static_cast<int64_t>(block / 2), outer_column = static_cast<int64_t>(block % 2);
            const Expr row = floor_mod(s[0], tiles) * parts + number(outer_row, floor_div(s[3], 2));
            const Expr channel = number(outer_column, floor_mod(s[3], 2)) * inputs + s[1];
            te::Indices index = unflatten_index(row, of_rows);
            index.insert(index.begin(), floor_div(s[0], tiles));
            index.insert(index.begin() + axis, channel);
            return load(x.buffer(), index, row < rows);
          });
        });
    const te::Tensor data = te::compute(
        "bilinear_data", {Expr(outer_points), Expr(inner_points), shape[0] * tiles, inputs}, {half},
        [&](const te::Indices& s) {
          return row_times(second.data, s[1],
                           [&](size_t block) { return half({s[2], s[3], s[0], Expr(static_cast<int64_t>(block))}); });
        });
    const te::Tensor product =
        te::reduce("bilinear_product", {Expr(outer_points), Expr(inner_points), shape[0] * tiles, outputs}, {inputs},
                   te::Combiner::sum, {data, w}, [&](const te::Indices& s, const te::Indices& r) {
                     return data({s[0], s[1], s[2], r[0]}) * w({s[0] * inner_points + s[1], r[0], s[3]});
                   });
    const te::Tensor part =
        te::compute("bilinear_columns", {shape[0] * tiles, outputs, Expr(int64_t{4}), Expr(inner_points)}, {product},
                    [&](const te::Indices& s) {
                      return row_times(first.output, s[2], [&](size_t point) {
                        return product({Expr(static_cast<int64_t>(point)), s[3], s[0], s[1]});
                      });
                    });
    return {te::compute("bilinear_result", shape, {part}, [&](const te::Indices& s) {
      Expr row = 0;
      for (int d = 1, r = 0; d < x.rank(); ++d)
        if (d != axis) row = row * of_rows[r++] + s[d];
      const Expr of_tile = floor_mod(row, parts), block = floor_div(s[axis], outputs);
      return row_times(second.output, inner_of(of_tile) * 2 + inner_of(block), [&](size_t point) {
        return part({s[0] * tiles + floor_div(row, parts), floor_mod(s[axis], outputs),
                     outer_of(of_tile) * 2 + outer_of(block), Expr(static_cast<int64_t>(point))});
      });
    })};
  };
  const NodeAttributes of_images = attributes_of({{"axis", 1}});
  op.examples = {
      {{tensor_type(f32, {1, 5, 4}), tensor_type(f32, {7, 2, 3})}, {}},
      {{tensor_type(f32, {2, 6, 8}), tensor_type(f32, {49, 2, 1})}, attributes_of({{"levels", 2}})},
      {{tensor_type(f32, {2, 2, 3, 4}), tensor_type(f32, {7, 2, 2})}, {}},
      {{tensor_type(f32, {2, 4, 3, 5}), tensor_type(f32, {7, 2, 2})}, of_images},
      {{tensor_type(f32, {1, 8, 3, 4}), tensor_type(f32, {49, 2, 3})}, attributes_of({{"levels", 2}, {"axis", 1}})}};
  return op;
}

}  // namespace

std::vector<OpDef> strassen_family() {
  return {strassen_product_op()};
}

}  // namespace tw::relay
