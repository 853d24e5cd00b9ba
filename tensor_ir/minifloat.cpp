#include "tensor_ir/minifloat.h"

#include <bit>
#include <cmath>

namespace tw {
namespace {

constexpr int fraction_bits = 23, exponent_bias = 127;  // of f32
constexpr int32_t infinity = 0x7f800000;

Expr number(int64_t value) {
  return int_imm(i32, value);
}
Expr left(const Expr& x, int by) {
  return by == 0 ? x : binary(BinaryOp::shift_left, x, number(by));
}
Expr right(const Expr& x, int by) {
  return binary(BinaryOp::shift_right, x, number(by));
}
Expr masked(const Expr& x, int64_t mask) {
  return binary(BinaryOp::bit_and, x, int_imm(x.dtype(), mask));
}
Expr joined(const Expr& a, const Expr& b) {
  return binary(BinaryOp::bit_or, a, b);
}
Expr reinterpreted(DType dtype, const Expr& x) {
  return make_expr<Call>(dtype.with_lanes(x.dtype().lanes), Intrinsic::reinterpret, std::vector<Expr>{x});
}
int32_t f32_bits(double value) {
  return std::bit_cast<int32_t>(static_cast<float>(value));
}

Expr power_of(const Expr& code) {
  const Expr exponent = cast(i32, code);
  const Expr bits = select(equal(exponent, number(0)), number(f32_bits(0x1p-127)), left(exponent, fraction_bits));
  return reinterpreted(f32, select(equal(exponent, number(255)), number(infinity + 1), bits));
}

Expr nearest_power(const Expr& x) {
  const Expr bits = reinterpreted(i32, x), exponent = right(bits, fraction_bits);
  const Expr up = masked(right(bits, fraction_bits - 1), 1);  // 1.5 and more
  // Below 2^-126 there is 2^-127, of which f32 has no exponent.
  const Expr small = select(bits > number(f32_bits(0x1.8p-127) - 1), number(1), number(0));
  const Expr code = select(equal(exponent, number(0)), small, min(exponent + up, number(254)));
  const Expr is_number = bits > number(0) && bits < number(infinity);
  return cast(u8, select(is_number, code, number(255)));
}

}  // namespace

Expr decoded_minifloat(const Expr& code, DType from) {
  if (from == f8e8m0) return power_of(code);
  const MinifloatFormat f = minifloat_format(from);
  const int sign_bit = 1 << (from.bits - 1), shift = fraction_bits - f.mantissa_bits;
  const Expr word = cast(i32, code), magnitude = masked(word, sign_bit - 1);
  const Expr normal = left(magnitude, shift) + number(int64_t{exponent_bias - f.bias} << fraction_bits);
  // Through an integer: a subnormal of f32 might be taken for zero.
  const Expr step = float_imm(f32, std::ldexp(1.0, 1 - f.bias - f.mantissa_bits));
  const Expr small = reinterpreted(i32, cast(f32, magnitude) * step);
  Expr bits = select(magnitude < number(1 << f.mantissa_bits), small, normal);
  if (f.has_infinity)
    bits = select(magnitude > number(f.largest), joined(left(magnitude, shift), number(infinity)), bits);
  else if (f.largest < sign_bit - 1)
    bits = select(magnitude > number(f.largest), number(infinity + 1), bits);
  bits = joined(bits, left(masked(word, sign_bit), 32 - from.bits));
  if (!f.has_negative_zero)
    bits = select(equal(masked(word, 2 * sign_bit - 1), number(f.nan)), number(infinity + 1), bits);
  return reinterpreted(f32, bits);
}

Expr encoded_minifloat(const Expr& x, DType to) {
  if (to == f8e8m0) return nearest_power(x);
  const MinifloatFormat f = minifloat_format(to);
  const int shift = fraction_bits - f.mantissa_bits, sign_bit = 1 << (to.bits - 1);
  const Expr bits = reinterpreted(i32, x), magnitude = masked(bits, 0x7fffffff);
  // To nearest even at the lowest bit kept; a carry into the exponent is what it should be.
  const Expr odd = masked(right(magnitude, shift), 1), rounded = magnitude + number((1 << (shift - 1)) - 1) + odd;
  const Expr normal = right(rounded - number(int64_t{exponent_bias - f.bias} << fraction_bits), shift);
  // A number whose last bit counts the subnormals' step lets the addition round.
  const double counter = std::ldexp(1.0, 1 - f.bias + shift);
  const Expr counted = reinterpreted(f32, magnitude) + float_imm(f32, counter);
  const Expr small = reinterpreted(i32, counted) - number(f32_bits(counter));
  Expr code = select(magnitude < number(f32_bits(std::ldexp(1.0, 1 - f.bias))), small, normal);
  code = select(code > number(f.largest), number(f.overflow), code);
  code = select(magnitude > number(infinity), number(f.nan), code);
  const Expr with_sign = joined(code, masked(right(bits, 31), sign_bit));
  if (f.has_negative_zero) return cast(u8, with_sign);
  const Expr is_unsigned = equal(code, number(0)) || equal(code, number(f.nan));
  return cast(u8, select(is_unsigned, code, with_sign));
}

}  // namespace tw
