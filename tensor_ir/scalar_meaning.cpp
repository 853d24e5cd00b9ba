#include "tensor_ir/scalar_meaning.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace tw::meaning {
namespace {

[[noreturn]] void trap(const char* what) {
  throw Error(ErrorCode::verify, std::string(what) + "\n  help: guard it with an If or a predicate");
}

double nan_aware_min(double a, double b) {
  if (std::isnan(a)) return b;
  return b < a ? b : a;
}

double nan_aware_max(double a, double b) {
  if (std::isnan(a)) return b;
  return a < b ? b : a;
}

double sign_of(double a) {
  return std::isnan(a) ? a : a > 0 ? 1.0 : a < 0 ? -1.0 : 0.0;
}

}  // namespace

double round_to_tf32(double value) {
  const auto single = static_cast<float>(value);
  if (std::isnan(single)) return single;
  constexpr uint32_t dropped = 0x1fff, half = 0x1000;  // of the mantissa's bits; beyond the largest number is infinity
  return std::bit_cast<float>((std::bit_cast<uint32_t>(single) + half) & ~dropped);
}

int64_t apply(BinaryOp op, DType dtype, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool is_unsigned = dtype.is_unsigned_integer();
  switch (op) {
    case BinaryOp::add:
      return wrap(dtype, static_cast<int64_t>(ua + ub));
    case BinaryOp::sub:
      return wrap(dtype, static_cast<int64_t>(ua - ub));
    case BinaryOp::mul:
      return wrap(dtype, static_cast<int64_t>(ua * ub));
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod: {
      if (b == 0) trap("division by zero");
      const bool is_quotient = op == BinaryOp::div || op == BinaryOp::floor_div;
      if (is_unsigned) return static_cast<int64_t>(is_quotient ? ua / ub : ua % ub);
      if (b == -1) return is_quotient ? wrap(dtype, static_cast<int64_t>(0 - ua)) : 0;  // the least value wraps
      int64_t quotient = a / b, rest = a % b;
      const bool is_floor = op == BinaryOp::floor_div || op == BinaryOp::floor_mod;
      if (is_floor && rest != 0 && (rest < 0) != (b < 0)) --quotient, rest += b;
      return is_quotient ? quotient : rest;
    }
    case BinaryOp::min:
      return is_unsigned ? (ua < ub ? a : b) : std::min(a, b);
    case BinaryOp::max:
      return is_unsigned ? (ua < ub ? b : a) : std::max(a, b);
    case BinaryOp::eq:
      return a == b;
    case BinaryOp::ne:
      return a != b;
    case BinaryOp::lt:
      return is_unsigned ? ua < ub : a < b;
    case BinaryOp::le:
      return is_unsigned ? ua <= ub : a <= b;
    case BinaryOp::logical_and:
      return a && b;
    case BinaryOp::logical_or:
      return a || b;
    case BinaryOp::bit_and:
      return a & b;
    case BinaryOp::bit_or:
      return a | b;
    case BinaryOp::bit_xor:
      return a ^ b;
    case BinaryOp::shift_left:
    case BinaryOp::shift_right:
      if (ub >= dtype.bits) trap("a shift by the width of its type or more");
      if (op == BinaryOp::shift_left) return wrap(dtype, static_cast<int64_t>(ua << ub));
      return is_unsigned ? static_cast<int64_t>(ua >> ub) : a >> ub;
  }
  internal_error("meaning: an integer operator");
}

int64_t apply(UnaryOp op, DType dtype, int64_t a) {
  switch (op) {
    case UnaryOp::negate:
      return wrap(dtype, static_cast<int64_t>(-static_cast<uint64_t>(a)));
    case UnaryOp::logical_not:
      return a == 0;
    case UnaryOp::bit_not:
      return wrap(dtype, ~a);
  }
  internal_error("meaning: an integer operator");
}

double apply(BinaryOp op, DType dtype, double a, double b) {
  // In f32 (and for 16-bit types): the double result of these operators on floats, rounded, is the f32 result.
  auto rounded = [&](double value) { return round_to(dtype, value); };
  switch (op) {
    case BinaryOp::add:
      return rounded(a + b);
    case BinaryOp::sub:
      return rounded(a - b);
    case BinaryOp::mul:
      return rounded(a * b);
    case BinaryOp::div:
      return rounded(a / b);
    case BinaryOp::mod:
      return rounded(std::fmod(a, b));
    case BinaryOp::floor_div:
      return rounded(std::floor(round_to(dtype.bits == 64 ? f64 : f32, a / b)));
    case BinaryOp::floor_mod: {
      const double rest = std::fmod(a, b);
      return rounded(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    case BinaryOp::min:
      return nan_aware_min(a, b);
    case BinaryOp::max:
      return nan_aware_max(a, b);
    default:
      internal_error("meaning: a float operator");
  }
}

bool compare(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::eq:
      return a == b;
    case BinaryOp::ne:
      return a != b;
    case BinaryOp::lt:
      return a < b;
    case BinaryOp::le:
      return a <= b;
    default:
      internal_error("meaning: a comparison");
  }
}

double apply(Intrinsic intrinsic, DType dtype, const double* x) {
  auto rounded = [&](double value) { return round_to(dtype, value); };
  switch (intrinsic) {
    case Intrinsic::exp:
    case Intrinsic::exp_nonpositive:
      return rounded(std::exp(x[0]));
    case Intrinsic::exp2:
      return rounded(std::exp2(x[0]));
    case Intrinsic::log:
      return rounded(std::log(x[0]));
    case Intrinsic::log2:
      return rounded(std::log2(x[0]));
    case Intrinsic::sqrt:
      return rounded(std::sqrt(x[0]));
    case Intrinsic::rsqrt:
      return rounded(1.0 / std::sqrt(x[0]));
    case Intrinsic::tanh:
      return rounded(std::tanh(x[0]));
    case Intrinsic::erf:
      return rounded(std::erf(x[0]));
    case Intrinsic::normal_cdf:
      return rounded(0.5 * std::erfc(-x[0] * M_SQRT1_2));
    case Intrinsic::sigmoid:
      return rounded(1.0 / (1.0 + std::exp(-x[0])));
    case Intrinsic::sin:
      return rounded(std::sin(x[0]));
    case Intrinsic::cos:
      return rounded(std::cos(x[0]));
    case Intrinsic::tan:
      return rounded(std::tan(x[0]));
    case Intrinsic::asin:
      return rounded(std::asin(x[0]));
    case Intrinsic::acos:
      return rounded(std::acos(x[0]));
    case Intrinsic::atan:
      return rounded(std::atan(x[0]));
    case Intrinsic::sinh:
      return rounded(std::sinh(x[0]));
    case Intrinsic::cosh:
      return rounded(std::cosh(x[0]));
    case Intrinsic::asinh:
      return rounded(std::asinh(x[0]));
    case Intrinsic::acosh:
      return rounded(std::acosh(x[0]));
    case Intrinsic::atanh:
      return rounded(std::atanh(x[0]));
    case Intrinsic::pow:
      return rounded(std::pow(x[0], x[1]));
    case Intrinsic::fmod:
      return rounded(std::fmod(x[0], x[1]));
    case Intrinsic::floor:
      return rounded(std::floor(x[0]));
    case Intrinsic::ceil:
      return rounded(std::ceil(x[0]));
    case Intrinsic::trunc:
      return rounded(std::trunc(x[0]));
    case Intrinsic::round_even:
      return rounded(std::nearbyint(x[0]));
    case Intrinsic::round_tf32:
      return round_to_tf32(x[0]);
    case Intrinsic::abs:
      return std::fabs(x[0]);
    case Intrinsic::sign:
      return sign_of(x[0]);
    case Intrinsic::copysign:
      return std::copysign(x[0], x[1]);
    case Intrinsic::scale_by_power:
      if (std::isnan(x[1])) return x[1];
      return rounded(std::scalbn(x[0], static_cast<int>(std::clamp(x[1], -4000.0, 4000.0))));
    case Intrinsic::fma:
      if (dtype.bits == 64) return std::fma(x[0], x[1], x[2]);
      return rounded(std::fma(static_cast<float>(x[0]), static_cast<float>(x[1]), static_cast<float>(x[2])));
    case Intrinsic::minimum:
      if (std::isnan(x[0]) || std::isnan(x[1])) return std::numeric_limits<double>::quiet_NaN();
      return nan_aware_min(x[0], x[1]);
    case Intrinsic::maximum:
      if (std::isnan(x[0]) || std::isnan(x[1])) return std::numeric_limits<double>::quiet_NaN();
      return nan_aware_max(x[0], x[1]);
    default:
      internal_error("meaning: a math intrinsic of floats");
  }
}

bool test(Intrinsic intrinsic, double a) {
  return intrinsic == Intrinsic::is_nan ? std::isnan(a) : std::isinf(a);
}

namespace {

float without_subnormals(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

}  // namespace

double dot(Intrinsic intrinsic, double accumulator, uint32_t a, uint32_t b) {
  check(intrinsic == Intrinsic::dot_bf16, "meaning::dot: an intrinsic with an f32 accumulator");
  // As vdpbf16ps does it: the upper elements first.
  float sum = without_subnormals(static_cast<float>(accumulator));
  for (const int shift : {16, 0}) {
    const float x = without_subnormals(bf16_to_float(static_cast<uint16_t>(a >> shift)));
    const float y = without_subnormals(bf16_to_float(static_cast<uint16_t>(b >> shift)));
    sum = without_subnormals(std::fma(x, y, sum));
  }
  return sum;
}

int64_t dot(Intrinsic intrinsic, int64_t accumulator, uint32_t a, uint32_t b) {
  const bool is_a_signed = intrinsic == Intrinsic::dot_s8s8;
  check(is_a_signed || intrinsic == Intrinsic::dot_u8s8, "meaning::dot: an intrinsic with an i32 accumulator");
  int64_t sum = accumulator;
  for (int shift = 0; shift < 32; shift += 8) {
    const auto x = static_cast<uint8_t>(a >> shift), y = static_cast<uint8_t>(b >> shift);
    sum += (is_a_signed ? int64_t{static_cast<int8_t>(x)} : int64_t{x}) * static_cast<int8_t>(y);
  }
  return wrap(i32, sum);
}

double tile_dot(Intrinsic intrinsic, double accumulator, int k, const uint32_t* a, const uint32_t* b) {
  check(intrinsic == Intrinsic::tile_dot_bf16, "meaning::tile_dot: an intrinsic with an f32 accumulator");
  // Intel SDM, TDPBF16PS.
  float sums[2] = {0, 0};
  for (int l = 0; l < k; ++l) {
    for (const int odd : {0, 1}) {
      const float x = without_subnormals(bf16_to_float(static_cast<uint16_t>(a[l] >> 16 * odd)));
      const float y = without_subnormals(bf16_to_float(static_cast<uint16_t>(b[l] >> 16 * odd)));
      sums[odd] = without_subnormals(std::fma(x, y, sums[odd]));
    }
  }
  const float sum = without_subnormals(sums[0] + sums[1]);
  return without_subnormals(without_subnormals(static_cast<float>(accumulator)) + sum);
}

int64_t tile_dot(Intrinsic intrinsic, int64_t accumulator, int k, const uint32_t* a, const uint32_t* b) {
  const bool is_a_signed = intrinsic == Intrinsic::tile_dot_s8s8 || intrinsic == Intrinsic::matrix_s8s8;
  check(is_a_signed || intrinsic == Intrinsic::tile_dot_u8s8 || intrinsic == Intrinsic::matrix_u8s8,
        "meaning::tile_dot: an intrinsic with an i32 accumulator");
  const Intrinsic of_words = is_a_signed ? Intrinsic::dot_s8s8 : Intrinsic::dot_u8s8;
  for (int l = 0; l < k; ++l) accumulator = dot(of_words, accumulator, a[l], b[l]);
  return accumulator;
}

std::array<uint32_t, 4> philox(uint64_t key, uint64_t low, uint64_t high) {
  const auto upper = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  auto k0 = static_cast<uint32_t>(key), k1 = upper(key);
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(low), upper(low), static_cast<uint32_t>(high), upper(high)};
  for (int round = 0; round < philox_rounds; ++round, k0 += philox_weyl[0], k1 += philox_weyl[1]) {
    const uint64_t p0 = uint64_t{philox_factors[0]} * c[0], p1 = uint64_t{philox_factors[1]} * c[2];
    c = {upper(p1) ^ c[1] ^ k0, static_cast<uint32_t>(p1), upper(p0) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
  }
  return c;
}

int64_t apply(Intrinsic intrinsic, DType dtype, const int64_t* x) {
  const bool is_unsigned = dtype.is_unsigned_integer();
  switch (intrinsic) {
    case Intrinsic::abs:
      return is_unsigned || x[0] >= 0 ? x[0] : apply(UnaryOp::negate, dtype, x[0]);
    case Intrinsic::sign:
      return x[0] == 0 ? 0 : is_unsigned || x[0] > 0 ? 1 : -1;
    case Intrinsic::minimum:
      return apply(BinaryOp::min, dtype, x[0], x[1]);
    case Intrinsic::maximum:
      return apply(BinaryOp::max, dtype, x[0], x[1]);
    case Intrinsic::popcount: {
      const uint64_t mask = dtype.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << dtype.bits) - 1;
      return std::popcount(static_cast<uint64_t>(x[0]) & mask);
    }
    case Intrinsic::philox: {
      const auto words = philox(static_cast<uint64_t>(x[0]), static_cast<uint64_t>(x[1]), static_cast<uint64_t>(x[2]));
      return static_cast<int64_t>(uint64_t{words[1]} << 32 | words[0]);
    }
    default:
      throw Error(ErrorCode::verify,
                  "an intrinsic of floats is called with integers\n  help: cast the argument to a float");
  }
}

int64_t float_to_int(DType to, double value) {
  if (to.is_bool()) return value != 0;
  if (std::isnan(value)) return 0;
  const double whole = std::trunc(value);
  if (to.is_unsigned_integer()) {
    if (whole <= 0) return 0;
    if (whole >= std::ldexp(1.0, to.bits)) return wrap(to, -1);
    return static_cast<int64_t>(static_cast<uint64_t>(whole));
  }
  const double limit = std::ldexp(1.0, to.bits - 1);
  if (whole >= limit) return static_cast<int64_t>((uint64_t{1} << (to.bits - 1)) - 1);
  if (whole < -limit) return wrap(to, static_cast<int64_t>(uint64_t{1} << (to.bits - 1)));
  return static_cast<int64_t>(whole);
}

double int_to_float(DType from, DType to, int64_t value) {
  const bool is_unsigned = from.is_unsigned_integer();
  if (to.bits == 64)
    return is_unsigned ? static_cast<double>(static_cast<uint64_t>(value)) : static_cast<double>(value);
  // Straight to f32: by way of double a 64-bit value would round twice.
  const float single = is_unsigned ? static_cast<float>(static_cast<uint64_t>(value)) : static_cast<float>(value);
  return round_to(to, single);
}

uint64_t bits_of_float(DType dtype, double value) {
  if (dtype.bits == 64) return std::bit_cast<uint64_t>(value);
  const auto single = static_cast<float>(value);
  if (dtype.bits == 32) return std::bit_cast<uint32_t>(single);
  return dtype.kind == DTypeKind::brain_floating ? float_to_bf16(single) : float_to_f16(single);
}

double float_of_bits(DType dtype, uint64_t bits) {
  if (dtype.bits == 64) return std::bit_cast<double>(bits);
  if (dtype.bits == 32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return dtype.kind == DTypeKind::brain_floating ? bf16_to_float(static_cast<uint16_t>(bits))
                                                 : f16_to_float(static_cast<uint16_t>(bits));
}

}  // namespace tw::meaning
