// pow and fmod.
//
// pow(x, y) = 2^(y·log2|x|).  For f32 the product is computed in f64, which leaves 2^-44; for f64 the logarithm and the
// product are pairs of doubles (Dekker, Numerische Mathematik 18, 1971), which leaves about 2^-62.
#include <cmath>
#include <cstdint>

#include "tensor_ir/passes/math_builder.h"
#include "tensor_ir/passes/math_coefficients.h"

namespace tw::math {
namespace {

struct Pair {
  Expr high, low;
};

// log2 of a positive, finite, normal or denormal x.
Pair log2_pair(Builder& b, const Expr& x) {
  const Expr is_tiny = b.name("tiny", x < b.real(0x1p-1022));
  const Expr bits = b.name("bits", b.bits_of(select(is_tiny, x * b.real(0x1p54), x)));
  const Expr exponent = b.name("k", Builder::shift_right(bits - b.integer(0x3fe6a09e667f3bcd), 52));
  const Expr f = b.name("f", b.from_bits(bits - Builder::shift_left(exponent, 52)) - b.real(1));
  const Expr e = b.name("e", cast(b.dtype, exponent) - select(is_tiny, b.real(54), b.real(0)));
  const Expr d = b.name("d", f + b.real(2));
  const Expr d_low = f - (d - b.real(2));
  const Expr s = b.name("s", f / d);
  const Expr s_low = b.name("s_low", (b.exact_residue(b.name("minus_s", -s), d, f) - s * d_low) / d);
  const Expr z = b.name("z", s * s);
  const Expr z_low = b.name("z_low", b.exact_residue(s, s, -z) + b.real(2) * s * s_low);
  const Expr cube = b.name("cube", z * s);
  const Expr cube_low = b.name("cube_low", b.exact_residue(z, s, -cube) + (z * s_low + z_low * s));
  const Expr first = b.real(log_ratio_f64[0]);
  const Expr term = b.name("term", cube * first);
  const Expr term_low = b.exact_residue(cube, first, -term) + cube_low * first;
  const Expr rest = cube * z * b.polynomial(z, std::span(log_ratio_f64).subspan(1));
  const Expr twice = b.name("twice", s + s);
  const Expr log_high = b.name("log_high", twice + term);  // |twice| ≥ |term|
  const Expr log_low = b.name("log_low", (twice - log_high + term) + (b.real(2) * s_low + (term_low + rest)));
  const Expr scale = b.real(log2_e_f64[0]), scale_low = b.real(log2_e_f64[1]);
  const Expr product = b.name("product", log_high * scale);
  const Expr product_low = b.exact_residue(log_high, scale, -product) + (log_low * scale + log_high * scale_low);
  const Expr high = b.name("high", e + product);
  const Expr part = b.name("part", high - e);
  const Expr low = b.name("low", (e - (high - part)) + (product - part) + product_low);
  return {high, low};
}

// 2^(high + low), |low| far below one.
Expr exp2_pair(Builder& b, const Expr& high, const Expr& low) {
  const Expr upper = b.name("y", b.at_most(high, 1025));
  const Expr y = b.name("y", b.at_least(upper, -1076));
  const Expr rounder = b.real(0x1.8p52);
  const Expr shifted = b.name("t", y + rounder);
  const Expr r = b.name("r", (y - (shifted - rounder)) + low);
  const Expr p = r * b.polynomial(r, exp2_f64) + b.real(1);
  const Expr m = b.name("m", b.bits_of(shifted));
  const Expr half = b.name("half", Builder::shift_right(m, 1));
  const Expr bias = b.integer(int64_t{1023} << 52);
  return p * b.from_bits(Builder::shift_left(half, 52) + bias) * b.from_bits(Builder::shift_left(m - half, 52) + bias);
}

}  // namespace

Expr pow(Builder& b, const Expr& x, const Expr& y) {
  const DType dtype = b.dtype;
  const bool is_single = b.is_single();
  const Expr a = b.name("a", Builder::absolute(x));
  const Expr is_finite = b.name("is_finite", a < b.real(b.infinity()));
  const Expr whole = b.name("whole", call(Intrinsic::trunc, {y}));
  const Expr is_whole = b.name("is_whole", equal(whole, y));
  const Expr half = b.name("half", y * b.real(0.5));
  const Expr is_odd = b.name("is_odd", is_whole && not_equal(call(Intrinsic::trunc, {half}), half));
  const Expr is_negative = b.name("is_negative", b.bits_of(x) < b.integer(0));
  const Expr is_one = b.name("is_one", equal(a, b.real(1)));
  const Expr is_zero = b.name("is_zero", equal(a, b.real(0)));
  b.dtype = f64.with_lanes(dtype.lanes);
  const Expr wide_a = b.name("a", cast(b.dtype, a)), wide_y = b.name("y", cast(b.dtype, y));
  Expr value;
  if (is_single) {
    const Expr power = b.name("power", wide_y * b.name("log", log2(b, wide_a)));
    value = exp2(b, b.name("power", select(is_one, b.real(0), power)));  // 1^∞ is 1
  } else {
    const auto [log_high, log_low] = log2_pair(b, wide_a);
    const Expr ends = select(is_finite, select(is_zero, b.real(-b.infinity()), log_high), wide_a);  // also NaN
    const Expr log = b.name("log", ends);
    const Expr product = b.name("power", wide_y * log);
    const Expr power = b.name("power", select(is_one, b.real(0), product));
    const Expr lost = b.exact_residue(wide_y, log, -product) + wide_y * log_low;
    const Expr low = b.name("low", select(Builder::absolute(power) < b.real(2000), lost, b.real(0)));
    value = exp2_pair(b, power, b.name("low", select(is_one, b.real(0), low)));
  }
  b.dtype = dtype;
  const Expr magnitude = b.name("value", cast(dtype, value));
  const Expr is_undefined = is_negative && is_finite && !is_zero && !is_whole;
  const Expr with_sign = select(is_negative && is_odd, -magnitude, magnitude);
  const Expr defined = select(is_undefined, b.real(std::numeric_limits<double>::quiet_NaN()), with_sign);
  return select(equal(y, b.real(0)) || equal(x, b.real(1)), b.real(1), defined);
}

// Long division, fifty bits of the quotient a step, from the largest power of two that the range of exponents can need;
// every remainder is exact.
Expr fmod(Builder& b, const Expr& x, const Expr& y) {
  const DType dtype = b.dtype;
  const int exponents = b.is_single() ? 278 : 2100;  // from the least denormal to the largest value
  b.dtype = f64.with_lanes(dtype.lanes);
  const Expr a = b.name("a", Builder::absolute(cast(b.dtype, x)));
  const Expr divisor = b.name("d", Builder::absolute(cast(b.dtype, y)));
  Expr r = a;
  for (int shift = exponents / 50 * 50; shift >= 0; shift -= 50) {
    const int first = std::min(shift, 1000), second = std::min(shift - first, 1000), third = shift - first - second;
    Expr scaled = divisor;
    for (const int part : {first, second, third}) {
      if (part > 0) scaled = scaled * b.real(std::ldexp(1.0, part));
    }
    const Expr s = b.name("s", scaled);
    const Expr q = b.name("q", -call(Intrinsic::trunc, {r / s}));
    const Expr rest = b.name("rest", b.exact_residue(q, s, r));
    r = b.name("r", select(s < b.real(b.infinity()), select(rest < b.real(0), rest + s, rest), r));
  }
  const Expr is_defined = b.real(0) < divisor && a < b.real(b.infinity());
  const Expr value = select(is_defined, r, b.real(std::numeric_limits<double>::quiet_NaN()));
  b.dtype = dtype;
  return Builder::with_sign_of(cast(dtype, value), x);
}

}  // namespace tw::math
