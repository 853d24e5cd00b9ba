#include "relay_ir/ops/narrow.h"

#include <bit>
#include <cmath>

namespace tw::relay {
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
  return make_expr<Call>(dtype, Intrinsic::reinterpret, std::vector<Expr>{x});
}
int32_t bits_of(double value) {
  return std::bit_cast<int32_t>(static_cast<float>(value));
}

// The low bits of an integer, as a value of the narrow type.
Expr narrowed(const Expr& x, DType to) {
  const DType byte = to.stored();
  const Expr low = cast(byte, x);
  if (to.is_unsigned_integer()) return masked(low, (1 << to.bits) - 1);
  const Expr unused = int_imm(byte, 8 - to.bits);
  return binary(BinaryOp::shift_right, binary(BinaryOp::shift_left, low, unused), unused);
}

Expr power_of(const Expr& code) {
  const Expr exponent = cast(i32, code);
  const Expr bits = select(equal(exponent, number(0)), number(bits_of(0x1p-127)), left(exponent, fraction_bits));
  return reinterpreted(f32, select(equal(exponent, number(255)), number(infinity + 1), bits));
}

Expr nearest_power(const Expr& x) {
  const Expr bits = reinterpreted(i32, x), exponent = right(bits, fraction_bits);
  const Expr up = masked(right(bits, fraction_bits - 1), 1);  // 1.5 and more
  // Below 2^-126 there is 2^-127, of which f32 has no exponent.
  const Expr small = select(bits > number(bits_of(0x1.8p-127) - 1), number(1), number(0));
  const Expr code = select(equal(exponent, number(0)), small, min(exponent + up, number(254)));
  const Expr is_number = bits > number(0) && bits < number(infinity);
  return cast(u8, select(is_number, code, number(255)));
}

Expr decoded(const Expr& code, DType from) {
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

Expr encoded(const Expr& x, DType to) {
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
  const Expr small = reinterpreted(i32, counted) - number(bits_of(counter));
  Expr code = select(magnitude < number(bits_of(std::ldexp(1.0, 1 - f.bias))), small, normal);
  code = select(code > number(f.largest), number(f.overflow), code);
  code = select(magnitude > number(infinity), number(f.nan), code);
  const Expr with_sign = joined(code, masked(right(bits, 31), sign_bit));
  if (f.has_negative_zero) return cast(u8, with_sign);
  const Expr is_unsigned = equal(code, number(0)) || equal(code, number(f.nan));
  return cast(u8, select(is_unsigned, code, with_sign));
}

}  // namespace

Expr converted(const Expr& x, DType from, DType to) {
  if (from == to) return x;
  Expr value = x;
  if (from.is_minifloat())
    value = decoded(x, from);
  else if (from.is_narrow())
    value = narrowed(x, from);
  const DType own = value.dtype();
  if (to.is_minifloat()) return encoded(cast(f32, value), to);
  if (to.is_narrow()) return narrowed(own.is_float() ? cast(i32, value) : value, to);
  if (to.is_bool() && !own.is_bool()) return not_equal(value, zero_of(own));
  return cast(to, value);
}

Expr with_same_bits(const Expr& x, DType to) {
  const Expr bits = x.dtype() == to.stored() ? x : reinterpreted(to.stored(), x);
  if (to.bits >= 8 || to.is_bool()) return bits;
  return to.is_minifloat() ? masked(bits, (1 << to.bits) - 1) : narrowed(bits, to);
}

}  // namespace tw::relay
