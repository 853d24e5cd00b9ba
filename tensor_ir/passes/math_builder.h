// Building blocks of the expansions of mathematics: expressions with named parts, and what depends on the precision.
//
// Every value that is used twice gets a Let, so an expansion is a chain of operations, not a tree that doubles.
// Expansions have no branches and use plain multiplications and additions, which contract_fma may join; where a step
// must be exact, its constants are short enough that the product is exact either way.
#pragma once

#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw::math {

// What the target has as instructions.
struct MathFeatures {
  bool has_fma = true;
  bool has_power_scaling = false;  // x·2^n
};

class Builder {
 public:
  Builder(DType dtype, const MathFeatures& features) : dtype(dtype), features(features) {}

  // f32 or f64, with lanes; and integers of its width.
  DType dtype;
  MathFeatures features;
  bool is_single() const { return dtype.bits == 32; }
  std::span<const double> pick(std::span<const double> f32, std::span<const double> f64) const {
    return is_single() ? f32 : f64;
  }
  DType signed_type() const { return (is_single() ? i32 : i64).with_lanes(dtype.lanes); }
  DType unsigned_type() const { return (is_single() ? u32 : u64).with_lanes(dtype.lanes); }
  int fraction_bits() const { return is_single() ? 23 : 52; }
  int bias() const { return is_single() ? 127 : 1023; }
  double infinity() const { return std::numeric_limits<double>::infinity(); }

  Expr name(const char* text, Expr value) {
    Var var(text, value.dtype());
    lets_.emplace_back(var, std::move(value));
    return var;
  }
  Expr finish(Expr result) {
    while (!lets_.empty()) {
      auto [var, value] = std::move(lets_.back());
      lets_.pop_back();
      const DType type = result.dtype();
      result = make_expr<Let>(type, std::move(var), std::move(value), std::move(result));
    }
    return result;
  }

  Expr real(double value) const { return float_imm(dtype, value); }
  Expr integer(int64_t value) const { return int_imm(signed_type(), value); }
  Expr bits_of(Expr x) const { return reinterpret(signed_type(), std::move(x)); }
  Expr from_bits(Expr bits) const { return reinterpret(dtype, std::move(bits)); }
  static Expr reinterpret(DType to, Expr x) {
    return make_expr<Call>(to, Intrinsic::reinterpret, std::vector<Expr>{std::move(x)});
  }
  static Expr shift_left(Expr x, int count) {
    const DType type = x.dtype();
    return binary(BinaryOp::shift_left, std::move(x), int_imm(type, count));
  }
  static Expr shift_right(Expr x, int count) {
    const DType type = x.dtype();
    return binary(BinaryOp::shift_right, std::move(x), int_imm(type, count));
  }
  static Expr absolute(Expr x) { return call(Intrinsic::abs, {std::move(x)}); }
  static Expr with_sign_of(Expr magnitude, Expr sign) {
    return call(Intrinsic::copysign, {std::move(magnitude), std::move(sign)});
  }
  // a·b + c where c is −(a·b rounded), or takes most of a·b away: exact.  In f64; without the instruction by Dekker's
  // product (Numerische Mathematik 18, 1971), for operands below 2^996.
  Expr exact_residue(const Expr& a, const Expr& b, const Expr& c) {
    if (features.has_fma) return call(Intrinsic::fma, {a, b, c});
    auto halves = [&](const Expr& x) {
      const Expr large = name("large", x * real(134217729));  // 2^27 + 1
      const Expr high = name("high", large - (large - x));
      return std::pair{high, name("low", x - high)};
    };
    const auto [a_high, a_low] = halves(a);
    const auto [b_high, b_low] = halves(b);
    const Expr product = name("product", a * b);
    const Expr error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low);
    return (product + c) + error;
  }
  // NaN stays NaN: the comparison is false for it.
  Expr at_most(const Expr& x, double limit) const { return select(real(limit) < x, real(limit), x); }
  Expr at_least(const Expr& x, double limit) const { return select(x < real(limit), real(limit), x); }

  // Σ coefficients[k]·x^k by Horner's rule.
  Expr polynomial(const Expr& x, std::span<const double> coefficients) const {
    Expr sum = real(coefficients.back());
    for (size_t k = coefficients.size() - 1; k-- > 0;) sum = sum * x + real(coefficients[k]);
    return sum;
  }

 private:
  std::vector<std::pair<Var, Expr>> lets_;
};

// The functions.  `x` is a variable or constant (it is used more than once); the result uses the builder's names.
Expr exp(Builder& b, const Expr& x);
Expr half_exp(Builder& b, const Expr& x);  // exp(x) / 2, without overflow before the half does
Expr exp_nonpositive(Builder& b, const Expr& x);
Expr exp2(Builder& b, const Expr& x);
Expr log(Builder& b, const Expr& x);
Expr log2(Builder& b, const Expr& x);
Expr log1p(Builder& b, const Expr& x);
// log1p(x) where is_huge does not hold, else log(large) + ln 2
Expr log1p_or_log_twice(Builder& b, const Expr& x, const Expr& is_huge, const Expr& large);
Expr tanh(Builder& b, const Expr& x);
Expr sigmoid(Builder& b, const Expr& x);
Expr erf(Builder& b, const Expr& x);
Expr normal_cdf(Builder& b, const Expr& x);
Expr sinh(Builder& b, const Expr& x);
Expr cosh(Builder& b, const Expr& x);
Expr asinh(Builder& b, const Expr& x);
Expr acosh(Builder& b, const Expr& x);
Expr atanh(Builder& b, const Expr& x);
Expr sin(Builder& b, const Expr& x);
Expr cos(Builder& b, const Expr& x);
Expr tan(Builder& b, const Expr& x);
Expr asin(Builder& b, const Expr& x);
Expr acos(Builder& b, const Expr& x);
Expr atan(Builder& b, const Expr& x);
Expr pow(Builder& b, const Expr& x, const Expr& y);
Expr fmod(Builder& b, const Expr& x, const Expr& y);
// The builder's numbers are u64.
Expr philox(Builder& b, const Expr& key, const Expr& low, const Expr& high);

}  // namespace tw::math
