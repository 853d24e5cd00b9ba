#include "frontends/fourier.h"

#include <cmath>
#include <numbers>

#include "tensor_ir/arith/simplify.h"

namespace tw::frontends {
namespace {

// One product with a matrix up to this length.
constexpr int64_t most_direct = 512, most_table = int64_t{1} << 24;

// x with another last dimension but one: rows of zeros at the end, or fewer rows.
ValueId fit_rows(Builder& b, ValueId x, const Expr& rows) {
  const int rank = rank_of(b, x);
  const Expr have = b.type(x).shape[rank - 2];
  if (is_same_dim(have, rows)) return x;
  std::vector<Expr> pads(2 * static_cast<size_t>(rank), Expr(0));
  pads[2 * rank - 2] = simplify(rows - have);
  return b.emit("pad", {x}, attributes_of({{"pads", pads}}));
}

// The rows of what goes in and comes out, and whether they are pairs of a real and an imaginary part.
struct Table {
  Expr in, out, length;
  bool is_complex_in, is_complex_out, is_inverse;

  // Real numbers come of half of the frequencies: all but the first and the middle one stand for two.
  bool is_of_half() const { return is_inverse && !is_complex_out; }
  Expr rows() const { return in * (is_complex_in ? 2 : 1); }
  Expr columns() const { return out * (is_complex_out ? 2 : 1); }
};

// e^(±2πi n k / length), times what the step is scaled by: [in · parts, out · parts].
ValueId known_table(Builder& b, const Table& t, DType dtype) {
  const int64_t in = *as_int(t.in), out = *as_int(t.out), length = *as_int(t.length);
  const int64_t parts_in = t.is_complex_in ? 2 : 1, parts_out = t.is_complex_out ? 2 : 1;
  if (in * parts_in * out * parts_out > most_table)
    b.refuse("a length of " + std::to_string(length) + ", which has no small factors");
  NDArray table(dtype, {in * parts_in, out * parts_out});
  for (int64_t n = 0; n < in; ++n) {
    for (int64_t k = 0; k < out; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(n * k % length) / static_cast<double>(length);
      double scale = t.is_inverse ? 1.0 / static_cast<double>(length) : 1.0;
      if (t.is_of_half() && n > 0 && 2 * n != length) scale *= 2;
      const double real = std::cos(angle) * scale, imaginary = (t.is_inverse ? 1 : -1) * std::sin(angle) * scale;
      const double values[2][2] = {{real, imaginary}, {-imaginary, real}};
      for (int64_t i = 0; i < parts_in; ++i)
        for (int64_t o = 0; o < parts_out; ++o)
          table.set_float((n * parts_in + i) * out * parts_out + k * parts_out + o, values[i][o]);
    }
  }
  return b.emit_constant(table);
}

// The same of a length that only a run knows.
ValueId open_table(Builder& b, const Table& t, DType dtype) {
  const auto size = [&](const Expr& value) { return b.emit_sizes({value}, {}); };
  const auto number = [&](double value) { return emit_scalar(b, f64, value); };
  const ValueId n = emit_range(b, t.in, {t.in, Expr(1)}), k = emit_range(b, t.out, {Expr(1), t.out});
  const ValueId turns = b.emit("modulo", {b.emit("multiply", {n, k}), size(t.length)});
  const ValueId length = emit_cast(b, size(t.length), f64);
  const ValueId angle =
      b.emit("divide", {b.emit("multiply", {emit_cast(b, turns, f64), number(2 * std::numbers::pi)}), length});
  ValueId scale = t.is_inverse ? b.emit("divide", {number(1), length}) : number(1);
  if (t.is_of_half()) {
    const ValueId middle = b.emit("equal", {b.emit("add", {n, n}), size(t.length)});
    const ValueId is_alone = b.emit("logical_or", {b.emit("equal", {n, emit_scalar(b, i64, 0)}), middle});
    scale = b.emit("where", {is_alone, scale, b.emit("add", {scale, scale})});
  }
  const auto part = [&](const char* function, double sign) {
    const ValueId value = b.emit("multiply", {b.emit(function, {angle}), scale});
    return emit_cast(b, b.emit("multiply", {value, number(sign)}), dtype);
  };
  const ValueId real = part("cos", 1), imaginary = part("sin", t.is_inverse ? 1 : -1);
  const auto row = [&](ValueId first, ValueId second) {
    return t.is_complex_out ? emit_stack(b, {first, second}, 2) : emit_new_axis(b, first, 2);
  };
  ValueId table = row(real, imaginary);
  if (t.is_complex_in) {
    const ValueId turned = b.emit("negate", {imaginary});
    table = emit_stack(b, {table, row(turned, real)}, 1);
  }
  return emit_reshape_open(b, table, {simplify(t.rows()), simplify(t.columns())});
}

ValueId transform_directly(Builder& b, ValueId x, const Table& t) {
  std::vector<Expr> dims = b.type(x).shape;
  const DType dtype = dtype_of(b, x);
  const bool is_known = as_int(t.in) && as_int(t.out) && as_int(t.length);
  const ValueId table = is_known ? known_table(b, t, dtype) : open_table(b, t, dtype);
  std::vector<Expr> rows(dims.begin(), dims.end() - 1);
  rows.back() = simplify(t.rows());
  const ValueId y = emit_matmul(b, emit_reshape_open(b, x, rows), table);
  dims[dims.size() - 2] = t.out, dims.back() = Expr(t.is_complex_out ? 2 : 1);
  return emit_reshape_open(b, y, dims);
}

ValueId swap_axes(Builder& b, ValueId x, int first, int second) {
  std::vector<int64_t> order;
  for (int d = 0; d < rank_of(b, x); ++d) order.push_back(d);
  std::swap(order[first], order[second]);
  return emit_transpose(b, x, order);
}

// All `length` frequencies of complex numbers, or of real ones.  A product a · b of lengths is transformed along a,
// then turned by e^(±2πi n k / (a · b)), then transformed along b (Cooley and Tukey).
ValueId transform(Builder& b, ValueId x, int64_t length, bool is_inverse) {
  const std::vector<Expr> dims = b.type(x).shape;
  const int rank = rank_of(b, x);
  int64_t factor = static_cast<int64_t>(std::sqrt(static_cast<double>(length)));
  while (length % factor != 0) --factor;
  const bool is_complex = !is_const_int(dims.back(), 1);
  if (length <= most_direct || factor == 1)
    return transform_directly(b, x, {length, length, length, is_complex, true, is_inverse});
  const int64_t other = length / factor;
  std::vector<Expr> split(dims.begin(), dims.end() - 2);
  split.insert(split.end(), {Expr(factor), Expr(other), dims.back()});
  ValueId y = swap_axes(b, emit_reshape_open(b, x, split), rank - 2, rank - 1);
  y = swap_axes(b, transform(b, y, factor, is_inverse), rank - 2, rank - 1);
  NDArray along(dtype_of(b, x), {factor, other, 2}), across(dtype_of(b, x), {factor, other, 2});
  for (int64_t k = 0; k < factor; ++k) {
    for (int64_t n = 0; n < other; ++n) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(n * k) / static_cast<double>(length);
      const double sine = (is_inverse ? 1 : -1) * std::sin(angle);
      for (int64_t part = 0; part < 2; ++part) {
        along.set_float((k * other + n) * 2 + part, std::cos(angle));
        across.set_float((k * other + n) * 2 + part, part == 0 ? -sine : sine);
      }
    }
  }
  const ValueId turned = b.emit("multiply", {emit_slice(b, y, rank, Expr(1), Expr(2), -1), b.emit_constant(across)});
  y = b.emit("add", {b.emit("multiply", {y, b.emit_constant(along)}), turned});
  y = swap_axes(b, transform(b, y, other, is_inverse), rank - 2, rank - 1);
  std::vector<Expr> whole = dims;
  whole[rank - 2] = Expr(length), whole.back() = Expr(2);
  return emit_reshape_open(b, y, whole);
}

// Half of the frequencies of real numbers, with the others, which are the same in reverse, but for the sign of their
// imaginary part.
ValueId all_of_half(Builder& b, ValueId x, int64_t length) {
  const int axis = rank_of(b, x) - 2;
  NDArray sign(dtype_of(b, x), {2});
  sign.set_float(0, 1), sign.set_float(1, -1);
  const int64_t count = (length - 1) / 2;
  const ValueId rest = emit_slice(b, x, axis, Expr(count), Expr(count), -1);
  return emit_concat(b, {x, b.emit("multiply", {rest, b.emit_constant(sign)})}, axis);
}

}  // namespace

ValueId emit_fourier(Builder& b, ValueId x, const Fourier& fourier) {
  const DType dtype = dtype_of(b, x);
  if (!dtype.is_float()) b.refuse("a transform of " + to_string(dtype));
  const int axis = rank_of(b, x) - 2;
  const auto parts = axis < 0 ? std::nullopt : as_int(b.type(x).shape.back());
  if (!parts || (*parts != 1 && *parts != 2))
    b.refuse("data that are not numbers of one part or two, along the last axis");
  const Expr length = simplify(fourier.length), half = simplify(floor_div(length, 2) + 1);
  if (as_int(length).value_or(1) < 1) b.refuse("a length of 0");
  if (as_int(length).value_or(1) > longest_transform) b.refuse("a length of " + to_text(length));
  const bool is_of_half = fourier.is_inverse && fourier.is_onesided;
  const Expr in = is_of_half ? half : length, out = !fourier.is_inverse && fourier.is_onesided ? half : length;
  return in_accumulator(b, x, [&](ValueId wide) {
    wide = fit_rows(b, wide, in);
    const auto known = as_int(length);
    if (!known || *known <= most_direct)
      return transform_directly(b, wide, {in, out, length, *parts == 2, !is_of_half, fourier.is_inverse});
    if (is_of_half && *parts == 1) b.refuse("an inverse transform of real numbers to real numbers");
    if (is_of_half) wide = all_of_half(b, wide, *known);
    const ValueId all = transform(b, wide, *known, fourier.is_inverse);
    return is_of_half ? emit_slice(b, all, axis + 1, Expr(0), Expr(1)) : emit_slice(b, all, axis, Expr(0), out);
  });
}

}  // namespace tw::frontends
