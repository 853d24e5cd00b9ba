// ONNX's quantised operators, composed from elementwise ones, matmul and conv: y = saturate(round(x / scale) + zero
// point).
#include "frontends/onnx/rules/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontends/onnx/rules/window.h"
#include "runtime/rounding.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

// A scale or zero point shaped to broadcast against x: a scalar, a vector along `axis`, or one value a block of
// `block`.
ValueId parameter(Context& c, ValueId p, ValueId x, int64_t axis, int64_t block) {
  const int rank = rank_of(c, p);
  if (rank == 0) return p;
  const std::vector<Expr> dims = c.type(p).shape, shape = c.type(x).shape;
  if (block == 0 && is_const_int(product_of(dims), 1)) return emit_reshape(c, p, {});
  const int at = rule_axis(c, axis, rank_of(c, x));
  if (rank == 1 && block == 0) return emit_along_axis(c, p, at, rank_of(c, x));
  if (rank != static_cast<int>(shape.size())) c.refuse("scales of rank " + std::to_string(rank));
  const std::string why = "a block_size that does not fit";
  if (block < 1) c.refuse(why);
  const Expr blocks = simplify(floor_div(shape[at] + (block - 1), block));
  if (as_int(blocks) && as_int(dims[at]) && !is_same_dim(blocks, dims[at])) c.refuse(why);
  c.require_equal(blocks, dims[at], why);
  std::vector<Expr> spread = dims, repeated = dims, whole = dims;
  spread.insert(spread.begin() + at + 1, Expr(1));
  repeated.insert(repeated.begin() + at + 1, Expr(block));
  whole[at] = simplify(whole[at] * block);
  const ValueId all = emit_reshape_open(c, emit_broadcast_open(c, emit_reshape_open(c, p, spread), repeated), whole);
  return emit_slice(c, all, at, 0, shape[at]);
}

std::pair<double, double> limits_of(DType dtype) {
  const double width = static_cast<double>(int64_t{1} << dtype.bits);
  return dtype.is_signed_integer() ? std::pair(-width / 2, width / 2 - 1) : std::pair(0.0, width - 1);
}

// scaled is x / scale in f32 or f64.
ValueId saturate(Context& c, ValueId scaled, ValueId zero_point, DType to) {
  const auto add_zero_point = [&](ValueId y) {
    return zero_point == no_value ? y : c.emit("add", {y, emit_cast(c, zero_point, dtype_of(c, y))});
  };
  if (to.is_minifloat() && to != f8e8m0) return emit_onnx_cast(c, add_zero_point(scaled), to);
  if (!to.is_integer() || to.bits > 16) c.refuse("results of type " + to_string(to));
  const ValueId y = add_zero_point(c.emit("round", {scaled}));
  const auto [low, high] = limits_of(to);
  return emit_cast(c, c.emit("clip", {y}, attributes_of({{"low", low}, {"high", high}})), to);
}

ValueId import_quantize(Context& c) {
  const ValueId x = c.input(0);
  const int64_t axis = c.attribute_int("axis", 1), block = c.attribute_int("block_size", 0);
  DType to = u8;
  if (c.has_input(2))
    to = dtype_of(c, c.input(2));
  else if (c.attribute_int("output_dtype", 0) != 0)
    to = c.attribute_dtype("output_dtype");
  if (dtype_of(c, x) == f64) c.refuse("f64 data");
  if (const int64_t precision = c.attribute_int("precision", 0); precision != 0 && precision != 1)
    c.refuse("precision other than f32");
  // Integers are divided as f32; halves too, which rounds no worse.
  const ValueId wide = emit_cast(c, x, f32);
  const ValueId scale = emit_cast(c, parameter(c, c.input(1), x, axis, block), f32);
  const ValueId zero_point = c.has_input(2) ? parameter(c, c.input(2), x, axis, block) : no_value;
  return saturate(c, c.emit("divide", {wide, scale}), zero_point, to);
}

}  // namespace

ValueId emit_dequantized(Context& c, ValueId x, ValueId scale, ValueId zero_point, DType to) {
  const DType own = dtype_of(c, x).is_minifloat() ? f32 : i32;
  ValueId whole = dtype_of(c, x).bits <= 8 ? emit_cast_of_codes(c, x, own) : emit_cast(c, x, own);
  if (zero_point != no_value) whole = c.emit("subtract", {whole, emit_cast(c, zero_point, own)});
  return emit_cast(c, c.emit("multiply", {emit_cast(c, whole, f32), emit_cast(c, scale, f32)}), to);
}

namespace {

ValueId import_dequantize(Context& c) {
  const ValueId x = c.input(0);
  const int64_t axis = c.attribute_int("axis", 1), block = c.attribute_int("block_size", 0);
  const DType own = dtype_of(c, x);
  if (!own.is_minifloat() && (!own.is_integer() || own.bits > 32)) c.refuse("data of type " + to_string(own));
  DType to = dtype_of(c, c.input(1));
  if (c.attribute_int("output_dtype", 0) != 0) to = c.attribute_dtype("output_dtype");
  return emit_dequantized(c, x, parameter(c, c.input(1), x, axis, block),
                          c.has_input(2) ? parameter(c, c.input(2), x, axis, block) : no_value, to);
}

std::vector<ValueId> import_dynamic_quantize(Context& c) {
  const Quantized y = emit_quantized_dynamically(c, c.input(0));
  return {y.codes, y.scale, y.zero_point};
}

// x - zero point as i32.  The zero point of a is one for all, or one a row; that of b one for all, or one a column.
ValueId centred(Context& c, ValueId x, ValueId zero_point, bool by_row) {
  const ValueId wide = emit_cast(c, x, i32);
  if (zero_point == no_value) return wide;
  ValueId z = emit_cast(c, zero_point, i32);
  if (rank_of(c, z) == 1) {
    const Expr count = c.type(z).shape[0], one(1);
    using Dims = std::vector<Expr>;
    z = emit_reshape_open(c, z, is_const_int(count, 1) ? Dims{} : by_row ? Dims{count, one} : Dims{count});
  }
  return c.emit("subtract", {wide, z});
}

bool is_byte(const Context& c, ValueId id) {
  return dtype_of(c, id).is_integer() && dtype_of(c, id).bits == 8;
}

// No zero point, or one that is known to be zero.
bool is_symmetric(const Context& c, ValueId zero_point) {
  if (zero_point == no_value) return true;
  const NDArray* known = c.constant(zero_point);
  for (int64_t i = 0; known && i < known->size(); ++i)
    if (known->get_int(i) != 0) return false;
  return known != nullptr;
}

// The sums of a known array over all axes but one, in i32.
ValueId emit_sums(Context& c, const NDArray& array, size_t kept) {
  const Shape& shape = array.shape();
  int64_t inner = 1;
  for (size_t d = kept + 1; d < shape.size(); ++d) inner *= shape[d];
  Ints sums(static_cast<size_t>(shape[kept]), 0);
  for (int64_t i = 0; i < array.size(); ++i) sums[static_cast<size_t>(i / inner % shape[kept])] += array.get_int(i);
  for (int64_t& sum : sums) sum = static_cast<int32_t>(sum);
  return c.emit_constant(int_array(sums, i32));
}

}  // namespace

// Σ (a - zero point) · b as a product of bytes: Σ a·b - zero point · Σ b.  i32 wraps, so both are the same to the bit.
// Worth it where the sums of b are known, and b has no zero point of its own.
ValueId emit_integer_matmul(Context& c, ValueId a, ValueId zero_a, ValueId b, ValueId zero_b) {
  const bool is_plain = is_byte(c, a) && is_byte(c, b) && c.constant(b) && rank_of(c, b) == 2 && rank_of(c, a) >= 2 &&
                        is_symmetric(c, zero_b);
  if (!is_plain) return emit_matmul(c, centred(c, a, zero_a, true), centred(c, b, zero_b, false));
  const ValueId product = emit_matmul(c, a, b, "i32");
  if (is_symmetric(c, zero_a)) return product;
  ValueId z = emit_cast(c, zero_a, i32);
  if (rank_of(c, z) == 1) {
    const Expr count = c.type(z).shape[0];
    z = emit_reshape_open(c, z, is_const_int(count, 1) ? std::vector<Expr>{} : std::vector<Expr>{count, Expr(1)});
  }
  return c.emit("subtract", {product, c.emit("multiply", {z, emit_sums(c, *c.constant(b), 1)})});
}

ValueId emit_dequantized(Context& c, const Quantized& x) {
  const auto spread = [&](ValueId p) { return p == no_value ? p : parameter(c, p, x.codes, 1, 0); };
  return emit_dequantized(c, x.codes, spread(x.scale), spread(x.zero_point), f32);
}

ValueId emit_quantized(Context& c, ValueId x, ValueId scale, ValueId zero_point, DType to) {
  const auto spread = [&](ValueId p) { return p == no_value ? p : parameter(c, p, x, 1, 0); };
  return saturate(c, c.emit("divide", {x, spread(scale)}), spread(zero_point), to);
}

Quantized emit_quantized_dynamically(Context& c, ValueId x) {
  if (dtype_of(c, x) != f32) c.refuse("data of type " + to_string(dtype_of(c, x)));
  const std::vector<int> axes = axes_from(c, x);
  const ValueId zero = emit_scalar(c, f32, 0);
  const ValueId high = c.emit("maximum", {emit_reduce(c, "reduce_max", x, axes, false), zero});
  const ValueId low = c.emit("minimum", {emit_reduce(c, "reduce_min", x, axes, false), zero});
  const ValueId span = c.emit("subtract", {high, low});
  const ValueId scale = c.emit("divide", {span, emit_scalar(c, f32, 255)});
  const ValueId is_flat = c.emit("equal", {span, zero});
  const ValueId safe = c.emit("where", {is_flat, emit_scalar(c, f32, 1), scale});
  const ValueId zero_point = saturate(c, c.emit("divide", {c.emit("negate", {low}), safe}), no_value, u8);
  return {saturate(c, c.emit("divide", {x, safe}), zero_point, u8), safe, zero_point};
}

ValueId scalar_or_refuse(Context& c, ValueId p) {
  if (!is_const_int(product_of(c.type(p).shape), 1)) c.refuse("scales that differ by row or column");
  return emit_reshape(c, p, {});
}

namespace {

ValueId import_matmul_integer(Context& c) {
  return emit_integer_matmul(c, c.input(0), c.optional_input(2), c.input(1), c.optional_input(3));
}

// A scale of one element a channel, along axis 1 of the result.
ValueId along_channels(Context& c, ValueId p, int rank) {
  if (rank_of(c, p) == 0) return p;
  return is_const_int(product_of(c.type(p).shape), 1) ? emit_reshape(c, p, {}) : emit_along_axis(c, p, 1, rank);
}

// sum · (scale of a · scale of b / scale of y), rounded and saturated.  f64 keeps the i32 sum exact.
ValueId requantize(Context& c, ValueId sum, ValueId scale_a, ValueId scale_b, ValueId scale_y, ValueId zero_y) {
  auto wide = [&](ValueId v) { return emit_cast(c, v, f64); };
  const ValueId factor = c.emit("divide", {c.emit("multiply", {wide(scale_a), wide(scale_b)}), wide(scale_y)});
  return saturate(c, c.emit("multiply", {wide(sum), factor}), zero_y, dtype_of(c, zero_y));
}

ValueId import_qlinear_matmul(Context& c) {
  const ValueId sum =
      emit_integer_matmul(c, c.input(0), scalar_or_refuse(c, c.input(2)), c.input(3), scalar_or_refuse(c, c.input(5)));
  return requantize(c, sum, scalar_or_refuse(c, c.input(1)), scalar_or_refuse(c, c.input(4)),
                    scalar_or_refuse(c, c.input(6)), scalar_or_refuse(c, c.input(7)));
}

// Zero points of the data are subtracted before padding, so that pads are zero; those of the weight belong to o.
ValueId integer_conv(Context& c, ValueId x, ValueId zero_x, ValueId w, ValueId zero_w) {
  // As emit_integer_matmul; pads are zero points, so that every window has all of its terms.
  if (is_byte(c, x) && is_byte(c, w) && c.constant(w) && is_symmetric(c, zero_w)) {
    if (is_symmetric(c, zero_x)) return emit_conv(c, x, w, "i32");
    const ValueId zero = scalar_or_refuse(c, zero_x);
    const ValueId product = emit_conv(c, x, w, "i32", zero);
    const ValueId sums = emit_along_axis(c, emit_sums(c, *c.constant(w), 0), 1, rank_of(c, product));
    return c.emit("subtract", {product, c.emit("multiply", {emit_cast(c, zero, i32), sums})});
  }
  ValueId data = emit_cast(c, x, i32), weight = emit_cast(c, w, i32);
  if (zero_x != no_value) data = c.emit("subtract", {data, emit_cast(c, scalar_or_refuse(c, zero_x), i32)});
  if (zero_w != no_value) {
    ValueId z = emit_cast(c, zero_w, i32);
    z = is_const_int(product_of(c.type(z).shape), 1) ? emit_reshape(c, z, {}) : emit_along_axis(c, z, 0, rank_of(c, w));
    weight = c.emit("subtract", {weight, z});
  }
  return emit_conv(c, data, weight);
}

ValueId import_qlinear_conv(Context& c) {
  ValueId sum = integer_conv(c, c.input(0), c.input(2), c.input(3), c.input(5));
  const int rank = rank_of(c, sum);
  if (c.has_input(8)) sum = c.emit("add", {sum, emit_along_axis(c, c.input(8), 1, rank)});
  return requantize(c, sum, scalar_or_refuse(c, c.input(1)), along_channels(c, c.input(4), rank),
                    scalar_or_refuse(c, c.input(6)), scalar_or_refuse(c, c.input(7)));
}

// Codes of `bits` that share bytes along the last axis, the first in the lowest bits: `count` of them, in i32.
ValueId emit_unpacked(Context& c, ValueId bytes, int64_t bits, int64_t count) {
  const int rank = rank_of(c, bytes);
  const ValueId mask = emit_scalar(c, u8, std::ldexp(1, static_cast<int>(bits)) - 1);
  std::vector<ValueId> parts;
  for (int64_t first = 0; first < 8; first += bits) {
    const ValueId shifted = c.emit("shift", {bytes, emit_scalar(c, u8, static_cast<double>(first))});
    parts.push_back(c.emit("bit_and", {shifted, mask}));
  }
  std::vector<Expr> dims = c.type(bytes).shape;
  dims.back() = simplify(dims.back() * static_cast<int64_t>(parts.size()));
  const ValueId codes = emit_reshape_open(c, emit_stack(c, parts, rank), dims);
  return emit_cast(c, emit_slice(c, codes, rank - 1, Expr(0), Expr(count)), i32);
}

// A product with weights of few bits, in blocks of one scale along K: [N, blocks, bytes of a block].  The weights
// become f32; those that are known do so when the model is compiled.
ValueId import_matmul_n_bits(Context& c) {
  const int64_t k = c.attribute_int("K", 0), n = c.attribute_int("N", 0), block = c.attribute_int("block_size", 0);
  const int64_t bits = c.attribute_int("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8) c.refuse("bits=" + std::to_string(bits));
  if (k < 1 || n < 1 || block < 1 || block * bits % 8 != 0) c.refuse("K, N or block_size that do not fit");
  if (c.has_input(4)) c.refuse("g_idx, an order of its own");
  const ValueId a = c.input(0), codes = c.input(1);
  const int64_t blocks = divide_up(k, block);
  if (dtype_of(c, codes) != u8) c.refuse("weights of type " + to_string(dtype_of(c, codes)));
  c.require_equal(simplify(product_of(c.type(codes).shape)), Expr(n * blocks * (block * bits / 8)), "bytes of weights");
  const Ints by_block{n, blocks, 1};
  ValueId weight = emit_unpacked(c, emit_reshape(c, codes, {n, blocks, block * bits / 8}), bits, block);
  if (c.has_input(3) && dtype_of(c, c.input(3)) != u8) {
    const ValueId zero = emit_cast(c, emit_reshape(c, c.input(3), by_block), f32);
    weight = c.emit("subtract", {emit_cast(c, weight, f32), zero});
  } else {
    ValueId zero = emit_ints(c, {int64_t{1} << (bits - 1)}, {}, i32);
    if (c.has_input(3)) {
      const ValueId packed = emit_reshape(c, c.input(3), {n, (blocks * bits + 7) / 8});
      zero = emit_reshape(c, emit_unpacked(c, packed, bits, blocks), by_block);
    }
    weight = emit_cast(c, c.emit("subtract", {weight, zero}), f32);
  }
  weight = c.emit("multiply", {weight, emit_cast(c, emit_reshape(c, c.input(2), by_block), f32)});
  weight = emit_slice(c, emit_reshape(c, weight, {n, blocks * block}), 1, Expr(0), Expr(k));
  ValueId y = c.emit("matmul", {emit_cast(c, a, f32), weight}, attributes_of({{"transpose_b", int64_t{1}}}));
  if (c.has_input(5)) y = c.emit("add", {y, emit_cast(c, c.input(5), f32)});
  return emit_cast(c, y, dtype_of(c, a));
}

}  // namespace

std::vector<Rule> quantize_rules() {
  return {
      rule("QuantizeLinear", 10, import_quantize),
      rule("DequantizeLinear", 10, import_dequantize),
      {"DynamicQuantizeLinear", "", 11, import_dynamic_quantize},
      rule("MatMulInteger", 10, import_matmul_integer),
      rule("QLinearMatMul", 10, import_qlinear_matmul),
      rule(
          "ConvInteger", 10,
          [](Context& c) { return integer_conv(c, c.input(0), c.optional_input(2), c.input(1), c.optional_input(3)); }),
      rule("QLinearConv", 10, import_qlinear_conv),
      // Those of ONNX Runtime also take 16 bits, as those of ONNX do by now.
      rule_of(microsoft, "QuantizeLinear", import_quantize),
      rule_of(microsoft, "DequantizeLinear", import_dequantize),
      rule_of(microsoft, "MatMulNBits", import_matmul_n_bits),
  };
}

}  // namespace tw::frontends::onnx
