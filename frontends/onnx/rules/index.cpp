// Gathers, scatters into caches, and what is chosen by index.
#include <algorithm>
#include <limits>

#include "frontends/computed.h"
#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

// Indices of any integer type as i32 or i64.
ValueId indices_of(Context& c, size_t input) {
  const DType dtype = dtype_of(c, c.input(input));
  const bool is_narrow = dtype.is_integer() && dtype != i32 && dtype != i64;
  return is_narrow ? emit_cast(c, c.input(input), i64) : c.input(input);
}

// A constant index that stays in bounds selects at import: no run-time arithmetic is left.
ValueId import_gather(Context& c) {
  const ValueId x = c.input(0);
  const int axis = rule_axis(c, c.attribute_int("axis", 0), rank_of(c, x));
  if (const NDArray* index = c.constant(c.input(1)); index && index->size() == 1) {
    const std::vector<Expr>& from = c.type(x).shape;
    const auto extent = as_int(from[axis]);
    const int64_t given = index->get_int(0);
    if (!extent || (given >= -*extent && given < *extent)) {
      const Expr at = given < 0 ? simplify(from[axis] + given) : Expr(given);
      std::vector<Expr> shape(from.begin(), from.begin() + axis);
      shape.insert(shape.end(), index->shape().begin(), index->shape().end());
      shape.insert(shape.end(), from.begin() + axis + 1, from.end());
      return emit_reshape_open(c, emit_slice(c, x, axis, at, 1), shape);
    }
  }
  const ValueId indices = indices_of(c, 1);
  emit_index_check(c, indices, {c.type(x).shape[static_cast<size_t>(axis)]});
  return c.emit("gather", {x, indices}, attributes_of({{"axis", int64_t{axis}}}));
}

ValueId import_gather_elements(Context& c) {
  const int axis = rule_axis(c, c.attribute_int("axis", 0), rank_of(c, c.input(0)));
  const ValueId indices = indices_of(c, 1);
  emit_index_check(c, indices, {c.type(c.input(0)).shape[static_cast<size_t>(axis)]});
  return c.emit("gather_elements", {c.input(0), indices}, attributes_of({{"axis", int64_t{axis}}}));
}

ValueId import_gather_nd(Context& c) {
  const ValueId indices = indices_of(c, 1);
  const int64_t batch = c.attribute_int("batch_dims", 0);
  emit_index_check(c, indices, indexed_extents(c, c.input(0), indices, batch));
  return c.emit("gather_nd", {c.input(0), indices}, attributes_of({{"batch_dims", batch}}));
}

// [i == position ? on : off] over a new axis.  Indices from -depth on count from the end; those outside give `off`
// only.
ValueId import_one_hot(Context& c) {
  const ValueId depth_value = emit_cast(c, c.input(1), i64);
  const Expr depth = c.emit_item(depth_value);
  if (as_int(depth).value_or(0) < 0 || as_int(depth).value_or(0) > (1 << 24)) c.refuse("depth=" + to_text(depth));
  ValueId indices = emit_cast(c, c.input(0), i64);
  std::vector<Expr> dims = c.type(indices).shape;
  const int rank = static_cast<int>(dims.size()) + 1, axis = rule_axis(c, c.attribute_int("axis", -1), rank);
  const ValueId is_negative = c.emit("less", {indices, emit_ints(c, {0}, {}, i64)});
  indices = c.emit("where", {is_negative, c.emit("add", {indices, c.emit_sizes({depth}, {})}), indices});
  dims.insert(dims.begin() + axis, Expr(1));
  std::vector<Expr> positions(rank - axis, Expr(1));
  positions[0] = depth;
  const ValueId hit = c.emit("equal", {emit_reshape_open(c, indices, dims), emit_range(c, depth, positions)});
  auto value = [&](int64_t i) { return emit_reshape(c, emit_slice(c, c.input(2), 0, i, 1), {}); };
  return c.emit("where", {hit, value(1), value(0)});
}

// Kept where column - row ≥ k (upper) or ≤ k (lower).
ValueId import_trilu(Context& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  if (dims.size() < 2) c.refuse("data of rank below 2");
  const Expr rows = dims[dims.size() - 2], columns = dims.back();
  ValueId k = emit_ints(c, {0}, {}, i64);
  if (c.has_input(1)) k = emit_reshape(c, c.input(1), {});
  const ValueId offset = c.emit("subtract", {emit_range(c, columns, {columns}), emit_range(c, rows, {rows, Expr(1)})});
  const bool upper = c.attribute_int("upper", 1) != 0;
  const ValueId keep = upper ? c.emit("less_equal", {k, offset}) : c.emit("less_equal", {offset, k});
  return c.emit("where", {keep, x, emit_scalar(c, dtype_of(c, x), 0)});
}

// Where a list of bools is true.
ValueId emit_positions(Context& c, ValueId mask) {
  const Expr length = c.type(mask).shape[0];
  const ValueId count = emit_reduce(c, "reduce_sum", emit_cast(c, mask, i64), {0}, false);
  const Expr found = c.emit_item(count, {0, as_int(length).value_or(DimensionBounds{}.high)});
  return c.emit_all("positions", {mask}, attributes_of({{"count", std::vector<Expr>{found}}}))[0];
}

ValueId import_compress(Context& c) {
  ValueId x = c.input(0);
  int axis = 0;
  if (c.has_attribute("axis"))
    axis = rule_axis(c, c.attribute_int("axis", 0), rank_of(c, x));
  else
    x = emit_reshape_open(c, x, {simplify(product_of(c.type(x).shape))});
  const NDArray* condition = c.constant(c.input(1));
  if (!condition) {
    if (rank_of(c, c.input(1)) != 1) malformed("Compress: its condition is a list");
    return c.emit("gather", {x, emit_positions(c, c.input(1))}, attributes_of({{"axis", int64_t{axis}}}));
  }
  Ints chosen;
  for (int64_t i = 0; i < condition->size(); ++i) {
    if (condition->get_int(i) != 0) chosen.push_back(i);
  }
  const Expr extent = c.type(x).shape[axis];
  while (!chosen.empty() && as_int(extent) && chosen.back() >= *as_int(extent)) chosen.pop_back();
  if (!chosen.empty() && !as_int(extent)) {
    const Expr least(chosen.back() + 1);
    c.require_equal(simplify(min(least, extent)), least, "the last of those chosen");
  }
  return c.emit("gather", {x, c.emit_constant(int_array(chosen))}, attributes_of({{"axis", int64_t{axis}}}));
}

// Rows of a matrix are the same, NaN beside NaN, too: bool[rows].
ValueId emit_are_same(Context& c, ValueId a, ValueId b) {
  ValueId same = c.emit("equal", {a, b});
  if (dtype_of(c, a).is_float())
    same = c.emit("logical_or", {same, c.emit("logical_and", {c.emit("is_nan", {a}), c.emit("is_nan", {b})})});
  return emit_reduce(c, "reduce_all", same, {1}, false);
}

// Slices of an axis, or elements, are rows that are put in order; the first of each group of equals is kept.  Groups
// are numbered in that order or, unsorted, in that of their first rows.
std::vector<ValueId> import_unique(Context& c) {
  Integers n(c);
  const bool has_axis = c.has_attribute("axis"), is_sorted = c.attribute_int("sorted", 1) != 0;
  ValueId x = c.input(0);
  if (!has_axis) x = emit_reshape_open(c, x, {simplify(product_of(c.type(x).shape))});
  const int rank = rank_of(c, x), axis = has_axis ? rule_axis(c, c.attribute_int("axis", 0), rank) : 0;
  Ints axis_first;
  for (int64_t d = 0; d < rank; ++d)
    if (d != axis) axis_first.push_back(d);
  axis_first.insert(axis_first.begin(), axis);
  ValueId rows = emit_transpose(c, dtype_of(c, x).is_bool() ? emit_cast(c, x, u8) : x, axis_first);
  const std::vector<Expr> dims = c.type(rows).shape;
  const Expr count = dims[0];
  rows = emit_reshape_open(c, rows, {count, simplify(product_of({dims.begin() + 1, dims.end()}))});

  const auto take = [&](ValueId from, ValueId at) { return c.emit("gather", {from, at}); };
  const auto put = [&](const Expr& size, ValueId at, ValueId values, const char* reduction) {
    return c.emit("scatter_elements", {emit_broadcast_open(c, n.number(0), {size}), at, values},
                  attributes_of({{"reduction", reduction}}));
  };
  const auto number = [&](ValueId is_first) {  // of the group that each is in
    return n("subtract", c.emit("cumulate", {emit_cast(c, is_first, i64)}, attributes_of({{"axis", int64_t{0}}})),
             n.number(1));
  };
  const ValueId order = c.emit("row_order", {rows}), place = emit_range(c, count, {count});
  const ValueId before = take(order, n("maximum", n("subtract", place, n.number(1)), n.number(0)));
  const ValueId is_repeated =
      n("logical_and", emit_are_same(c, take(rows, order), take(rows, before)), n("less", n.number(0), place));
  const ValueId is_first = c.emit("logical_not", {is_repeated});
  ValueId group = number(is_first), first = take(order, emit_positions(c, is_first));
  const Expr found = c.type(first).shape[0];
  if (!is_sorted) {
    const ValueId comes_first = put(count, order, emit_cast(c, is_first, i64), "none");
    group = take(take(number(comes_first), first), group);
    first = c.emit_all("positions", {emit_cast(c, comes_first, boolean)},
                       attributes_of({{"count", std::vector<Expr>{found}}}))[0];
  }
  return {c.emit("gather", {x, first}, attributes_of({{"axis", int64_t{axis}}})), first,
          put(count, order, group, "none"), put(found, group, emit_broadcast_open(c, n.number(1), {count}), "add")};
}

// Coordinates of elements that are not 0: [rank, found].
ValueId emit_non_zero(Context& c, ValueId x) {
  const std::vector<Expr> dims = rank_of(c, x) == 0 ? std::vector<Expr>{Expr(1)} : c.type(x).shape;
  const Expr elements = simplify(product_of(dims));
  const ValueId position = emit_positions(c, emit_cast(c, emit_reshape_open(c, x, {elements}), boolean));
  const Expr found = c.type(position).shape[0];
  std::vector<ValueId> rows;
  Expr stride = elements;
  for (size_t d = 0; d < dims.size(); ++d) {
    ValueId row = position;
    if (d > 0) row = c.emit("modulo", {row, c.emit_sizes({stride}, {})});
    std::vector<Expr> inner(dims.begin() + static_cast<ptrdiff_t>(d) + 1, dims.end());
    stride = simplify(product_of(inner));
    if (d + 1 < dims.size())
      row = c.emit("divide", {row, c.emit_sizes({can_prove(stride >= 1) ? stride : max(stride, 1)}, {})});
    rows.push_back(emit_reshape_open(c, row, {Expr(1), found}));
  }
  return emit_concat(c, rows, 0);
}

// Boxes of each class that overlap no better one: rows of image, class and box.
ValueId import_non_max_suppression(Context& c) {
  const auto number = [&](size_t input, DType dtype) {
    if (!c.has_input(input)) return emit_scalar(c, dtype, input == 4 ? -std::numeric_limits<float>::infinity() : 0);
    return emit_reshape(c, emit_cast(c, c.input(input), dtype), {});
  };
  const auto results =
      c.emit_all("non_max_suppression", {c.input(0), c.input(1), number(2, i64), number(3, f32), number(4, f32)},
                 attributes_of({{"center", c.attribute_int("center_point_box", 0)}}));
  const Expr most = c.type(results[0]).shape[0];
  const Expr found = c.emit_item(results[1], {0, as_int(most).value_or(DimensionBounds{}.high)});
  return emit_slice(c, results[0], 0, Expr(0), found);
}

ValueId import_non_zero(Context& c) {
  const NDArray* x = c.constant(c.input(0));
  if (!x) return emit_non_zero(c, c.input(0));
  Ints found;
  for (int64_t i = 0; i < x->size(); ++i) {
    if (x->dtype().is_float() ? x->get_float(i) != 0 : x->get_int(i) != 0) found.push_back(i);
  }
  const auto count = static_cast<int64_t>(found.size());
  const int64_t rank = std::max(1, x->rank());
  NDArray result(i64, {rank, count});
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = found[k];
    for (int64_t d = rank; d-- > 0;) {
      const int64_t extent = x->rank() == 0 ? 1 : x->shape()[d];
      result.set_int(d * count + k, rest % extent);
      rest /= extent;
    }
  }
  return c.emit_constant(result);
}

ValueId import_tensor_scatter(Context& c) {
  const std::string mode = c.attribute_string("mode", "linear");
  if (mode != "linear" && mode != "circular") c.refuse("mode=\"" + mode + "\"");
  std::vector<ValueId> inputs{c.input(0), c.input(1)};
  if (c.has_input(2)) inputs.push_back(c.input(2));
  return c.emit("cache_update", inputs,
                attributes_of({{"axis", c.attribute_int("axis", -2)}, {"circular", int64_t{mode == "circular"}}}));
}

}  // namespace

std::vector<Rule> index_rules() {
  return {
      with_text(rule("Gather", 1, import_gather), TextUse::moved),
      rule("GatherElements", 11, import_gather_elements),
      rule("GatherND", 11, import_gather_nd),
      rule("ReverseSequence", 10,
           [](Context& c) {
             return c.emit("reverse_sequence", {c.input(0), c.input(1)},
                           attributes_of({{"time_axis", c.attribute_int("time_axis", 0)},
                                          {"batch_axis", c.attribute_int("batch_axis", 1)}}));
           }),
      rule("OneHot", 9, import_one_hot),
      rule("Trilu", 14, import_trilu),
      rule_of(microsoft, "Trilu", import_trilu),
      rule("Compress", 9, import_compress),
      rule("NonZero", 9, import_non_zero),
      {"Unique", "", 11, import_unique},
      rule("NonMaxSuppression", 10, import_non_max_suppression),
      rule("TensorScatter", 24, import_tensor_scatter),
  };
}

}  // namespace tw::frontends::onnx
