// exp, log and what is made of them.
//
// exp: x = n·ln 2 + r by Cody and Waite (Software Manual for the Elementary Functions, 1980); adding 1.5·2^p rounds to
// the integer n and leaves it in the low bits; what is added with it biases n, so that shifted into place these bits
// are a power.  2^n is applied in two halves, so that results overflow to infinity and round once into denormals.
//
// log: x = 2^e·m with √½ ≤ m < √2, and a polynomial of m − 1 (f32) or of s = f / (2 + f), log(1 + f) = 2·atanh(s) (f64;
// as Tang, ACM TOMS 16, 1990, and Sun's fdlibm arrange it).
#include <cmath>
#include <cstdint>

#include "tensor_ir/passes/math_builder.h"
#include "tensor_ir/passes/math_coefficients.h"

namespace tw::math {
namespace {

// x = n·ln 2 + r, or n + r: `biased` has n + bias in its low bits.
struct Reduced {
  Expr biased, r;
};

double rounder(const Builder& b) {
  return std::ldexp(1.5, b.fraction_bits());
}

// n is `value` rounded, and biased.
Expr round_biased(Builder& b, const Expr& value, int64_t bias) {
  return b.name("t", value + b.real(rounder(b) + static_cast<double>(bias)));
}

Expr whole_part(Builder& b, const Expr& biased, int64_t bias) {
  return b.name("n", biased - b.real(rounder(b) + static_cast<double>(bias)));
}

Reduced reduce_by_ln2(Builder& b, const Expr& x, int64_t bias) {
  const auto ln2 = b.pick(ln2_f32, ln2_f64);
  const Expr biased = round_biased(b, x * b.real(log2_e_f64[0]), bias);
  const Expr n = whole_part(b, biased, bias);
  return {biased, b.name("r", (x - n * b.real(ln2[0])) - n * b.real(ln2[1]))};
}

Reduced reduce_to_fraction(Builder& b, const Expr& x, int64_t bias) {
  const Expr biased = round_biased(b, x, bias);
  return {biased, b.name("r", x - whole_part(b, biased, bias))};
}

// Bits that are an exponent, in place: what is above them is shifted out.
Expr power_of(Builder& b, const Expr& exponent) {
  return b.from_bits(Builder::shift_left(exponent, b.fraction_bits()));
}

// The bias of n + offset for scale_by_power: halves of the sum are biased exponents.
int64_t bias_of_halves(const Builder& b, int offset = 0) {
  return b.features.has_power_scaling ? 0 : 2 * b.bias() + offset;
}

// p·2^(n + offset), n biased with bias_of_halves.
Expr scale_by_power(Builder& b, const Expr& p, const Expr& biased, int offset = 0) {
  if (b.features.has_power_scaling) return call(Intrinsic::scale_by_power, {p, biased - b.real(rounder(b) - offset)});
  const Expr m = b.name("m", b.bits_of(biased));
  const Expr half = b.name("h", Builder::shift_right(m, 1));
  // Factors, not additions to the bits of p: those would make a number of NaN.
  return p * power_of(b, half) * power_of(b, m - half);
}

Expr exp_of_rest(Builder& b, const Expr& r) {
  return (r * b.polynomial(r, b.pick(exp_f32, exp_f64)) + b.real(1)) * r + b.real(1);
}

Expr exp_between(Builder& b, const Expr& x, int offset) {
  const Reduced reduced = reduce_by_ln2(b, x, bias_of_halves(b, offset));
  return scale_by_power(b, exp_of_rest(b, reduced.r), reduced.biased, offset);
}

// exp(x) − 1 for 0 ≤ x, far from overflow: 2^n·expm1(r) + (2^n − 1).
Expr expm1_of_positive(Builder& b, const Expr& x) {
  const Reduced reduced = reduce_by_ln2(b, x, b.bias());
  const Expr& r = reduced.r;
  const Expr q = r * r * b.polynomial(r, b.pick(expm1_f32, expm1_f64)) + r;
  const Expr power = b.name("s", power_of(b, b.bits_of(reduced.biased)));
  return power * q + (power - b.real(1));
}

// log(m·2^e) as leading + (first + rest) with leading = e·ln 2 (high part); f, the first part of log m, is exact.
struct LogParts {
  Expr e, f, rest;  // log x = e·ln 2 + (f + rest)
};

LogParts log_parts(Builder& b, const Expr& x) {
  const int shift = b.fraction_bits();
  const double least_normal = b.is_single() ? 0x1p-126 : 0x1p-1022;
  const Expr is_tiny = b.name("tiny", x < b.real(least_normal));
  const Expr scaled = select(is_tiny, x * b.real(std::ldexp(1.0, shift + 2)), x);
  const Expr bits = b.name("bits", b.bits_of(scaled));
  const int64_t root_half = b.is_single() ? 0x3f3504f3 : 0x3fe6a09e667f3bcd;
  const Expr exponent = b.name("k", Builder::shift_right(bits - b.integer(root_half), shift));
  const Expr f = b.name("f", b.from_bits(bits - Builder::shift_left(exponent, shift)) - b.real(1));
  const Expr e = b.name("e", cast(b.dtype, exponent) - select(is_tiny, b.real(shift + 2), b.real(0)));
  const Expr half_square = b.name("h", f * f * b.real(0.5));
  if (b.is_single()) {
    const Expr z = b.name("z", f * f);
    return {e, f, z * f * b.polynomial(f, log_f32) - half_square};
  }
  const Expr s = b.name("s", f / (f + b.real(2)));
  const Expr z = b.name("z", s * s);
  return {e, f, s * (half_square + z * b.polynomial(z, log_ratio_f64)) - half_square};
}

// What log is at and beyond the ends of its domain.
Expr with_log_ends(const Builder& b, const Expr& x, Expr inside) {
  const Expr upper = select(x < b.real(b.infinity()), std::move(inside), x);
  return select(x <= b.real(0),
                select(equal(x, b.real(0)), b.real(-b.infinity()), b.real(std::numeric_limits<double>::quiet_NaN())),
                upper);
}

}  // namespace

Expr exp(Builder& b, const Expr& x) {
  const Expr y = b.name("y", b.at_most(x, b.is_single() ? 89 : 710));
  return exp_between(b, b.name("y", b.at_least(y, b.is_single() ? -104 : -745.5)), 0);
}

// One factor: for the least n its exponent is 0, and so is the result.
Expr exp_nonpositive(Builder& b, const Expr& x) {
  const Expr y = b.name("y", b.at_least(x, b.is_single() ? -88 : -709.1));
  if (b.features.has_power_scaling) return exp_between(b, y, 0);
  const Reduced reduced = reduce_by_ln2(b, y, b.bias());
  return exp_of_rest(b, reduced.r) * power_of(b, b.bits_of(reduced.biased));
}

Expr half_exp(Builder& b, const Expr& x) {
  return exp_between(b, b.name("y", b.at_most(x, b.is_single() ? 90 : 711)), -1);
}

Expr exp2(Builder& b, const Expr& x) {
  const Expr upper = b.name("y", b.at_most(x, b.is_single() ? 129 : 1025));
  const Expr y = b.name("y", b.at_least(upper, b.is_single() ? -151 : -1076));
  const Reduced reduced = reduce_to_fraction(b, y, bias_of_halves(b));
  const Expr p = reduced.r * b.polynomial(reduced.r, b.pick(exp2_f32, exp2_f64)) + b.real(1);
  return scale_by_power(b, p, reduced.biased);
}

Expr log(Builder& b, const Expr& x) {
  const auto ln2 = b.pick(ln2_f32, ln2_f64);
  const auto [e, f, rest] = log_parts(b, x);
  const Expr value = e * b.real(ln2[0]) + (f + (rest + e * b.real(ln2[1])));
  return with_log_ends(b, x, value);
}

Expr log2(Builder& b, const Expr& x) {
  const auto [e, f, rest] = log_parts(b, x);
  const auto scale = b.pick(log2_e_f32, log2_e_f64);
  const Expr value = e + (f * b.real(scale[0]) + (rest * b.real(scale[0]) + f * b.real(scale[1])));
  return with_log_ends(b, x, value);
}

// log(w) + c / w with w = 1 + x rounded and c what the rounding lost.
Expr log1p_or_log_twice(Builder& b, const Expr& x, const Expr& is_huge, const Expr& large) {
  const auto ln2 = b.pick(ln2_f32, ln2_f64);
  const Expr sum = b.name("w", x + b.real(1));
  const Expr part = b.name("p", sum - b.real(1));
  const Expr lost = b.name("c", (b.real(1) - (sum - part)) + (x - part));
  const Expr w = b.name("w", select(is_huge, large, sum));
  const auto [e, f, rest] = log_parts(b, w);
  const Expr power = b.name("e", e + select(is_huge, b.real(1), b.real(0)));
  const Expr correction = select(is_huge, b.real(0), lost / w);
  const Expr value = power * b.real(ln2[0]) + (f + ((rest + correction) + power * b.real(ln2[1])));
  return with_log_ends(b, w, value);
}

Expr log1p(Builder& b, const Expr& x) {
  return log1p_or_log_twice(b, x, int_imm(boolean.with_lanes(b.dtype.lanes), 0), b.real(1));
}

// t = u / (u + 2) with u = expm1(2|x|); where u is small, u/2 − u/2·t is the same with less rounding.
Expr tanh(Builder& b, const Expr& x) {
  const Expr a = b.name("a", b.at_most(Builder::absolute(x), b.is_single() ? 9.1 : 19.1));
  const Expr u = b.name("u", expm1_of_positive(b, b.name("y", a + a)));
  const Expr t = b.name("t", u / (u + b.real(2)));
  const Expr half = b.name("half", u * b.real(0.5));
  return Builder::with_sign_of(select(u < b.real(1), half - half * t, t), x);
}

// With e = exp(−|x|) ≤ 1: 1 / (1 + e), or e / (1 + e).
Expr sigmoid(Builder& b, const Expr& x) {
  const Expr y = b.name("y", b.at_least(-Builder::absolute(x), b.is_single() ? -104 : -745.5));
  const Expr e = b.name("u", exp_between(b, y, 0));
  return select(x < b.real(0), e, b.real(1)) / (e + b.real(1));
}

// x + x·P(x²) below 1; above, 1 − 2^P(x).  In f64 the border is at 3/2, and above it stands 1 − exp(−P).
Expr erf(Builder& b, const Expr& x) {
  if (b.is_single()) {
    const Expr a = b.name("a", b.at_most(Builder::absolute(x), 3.95));
    const Expr z = b.name("z", a * a);
    const Expr small = b.name("small", a * b.polynomial(z, erf_small_f32) + a);
    const Expr power = b.name("y", b.polynomial(a, erf_large_f32));
    const auto [biased, r] = reduce_to_fraction(b, power, 0);
    const Expr p = r * b.polynomial(r, exp2_short_f32) + b.real(1);
    const Expr scaled = b.from_bits(b.bits_of(p) + Builder::shift_left(b.bits_of(biased), b.fraction_bits()));
    // NaN goes with `small`.
    return Builder::with_sign_of(select(b.real(1) <= a, b.real(1) - scaled, small), x);
  }
  const Expr a = b.name("a", b.at_most(Builder::absolute(x), 6));
  const Expr z = b.name("z", a * a);
  const Expr small = b.name("small", a * b.polynomial(z, erf_small_f64) + a);
  const Expr t = b.name("t", a * b.real(0.4375) - b.real(1.640625));
  const Expr exponent = b.name("y", -b.polynomial(t, erf_large_f64));
  const Expr large = b.real(1) - exp_between(b, exponent, 0);
  return Builder::with_sign_of(select(a < b.real(1.5), small, large), x);
}

// Above 0 it is 1 − q, below q, with q = 2^(|x|·P(|x|) − 1): nothing cancels below 0.
Expr normal_cdf(Builder& b, const Expr& x) {
  if (!b.is_single()) {
    const Expr scaled = b.name("s", x * b.real(0.70710678118654752440));
    return b.real(0.5) * (b.real(1) + erf(b, scaled));
  }
  const Expr a = b.name("a", b.at_most(Builder::absolute(x), 15));
  const Expr power = b.name("y", a * b.polynomial(a, normal_tail_f32));
  const Reduced reduced = reduce_to_fraction(b, power, bias_of_halves(b, -1));
  const Expr p = reduced.r * b.polynomial(reduced.r, exp2_short_f32) + b.real(1);
  const Expr q = b.name("q", scale_by_power(b, p, reduced.biased, -1));
  return select(x < b.real(0), q, b.real(1) - q);
}

// x + x³·P(x²) below 1; above, h − 1/(4h) with h = exp|x| / 2.
Expr sinh(Builder& b, const Expr& x) {
  const Expr a = b.name("a", Builder::absolute(x));
  const Expr z = b.name("z", x * x);
  const Expr small = b.name("small", x * z * b.polynomial(z, b.pick(sinh_f32, sinh_f64)) + x);
  const Expr h = b.name("v", half_exp(b, a));
  const Expr large = h - b.real(0.25) / h;
  return select(a < b.real(1), small, Builder::with_sign_of(large, x));
}

Expr cosh(Builder& b, const Expr& x) {
  const Expr h = b.name("v", half_exp(b, b.name("a", Builder::absolute(x))));
  return h + b.real(0.25) / h;
}

// log1p(a + a² / (1 + √(a² + 1))); log(2a) where a² loses the 1.
Expr asinh(Builder& b, const Expr& x) {
  const Expr a = b.name("a", Builder::absolute(x));
  const Expr is_huge = b.name("huge", b.real(0x1p28) < a);
  const Expr square = b.name("z", a * a);
  const Expr inner = b.name("x", a + square / (call(Intrinsic::sqrt, {square + b.real(1)}) + b.real(1)));
  return Builder::with_sign_of(log1p_or_log_twice(b, inner, is_huge, a), x);
}

// log1p(t + √(2t + t²)) with t = x − 1
Expr acosh(Builder& b, const Expr& x) {
  const Expr is_huge = b.name("huge", b.real(0x1p28) < x);
  const Expr t = b.name("t", x - b.real(1));
  const Expr inner = b.name("x", t + call(Intrinsic::sqrt, {t * t + (t + t)}));
  const Expr value = log1p_or_log_twice(b, inner, is_huge, x);
  return select(x < b.real(1), b.real(std::numeric_limits<double>::quiet_NaN()), value);
}

// log1p(2a / (1 − a)) / 2
Expr atanh(Builder& b, const Expr& x) {
  const Expr a = b.name("a", Builder::absolute(x));
  const Expr inner = b.name("x", (a + a) / (b.real(1) - a));
  return Builder::with_sign_of(log1p(b, inner) * b.real(0.5), x);
}

}  // namespace tw::math
