// The expansions of mathematics against the C library in double (f32) and long double (f64).
//
// All of f32 is walked in steps of 4093 (so low bits vary; larger ones under the sanitizers) and around points of
// interest.  TW_MATH_STEP=1 walks every
// float: about an hour.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/scalar_meaning.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

using Real = long double;

struct Function {
  const char* name;
  Intrinsic intrinsic;
  double limit_f32, limit_f64;  // units in the last place
  double (*f32_reference)(double);
  Real (*f64_reference)(Real);
  double least = 0;  // numbers whose last place is the unit are at least this large
};

double sigmoid_reference(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
Real sigmoid_reference(Real x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

double normal_cdf_reference(double x) {
  return std::erfc(-x * M_SQRT1_2) / 2;
}
Real normal_cdf_reference(Real x) {
  return std::erfc(-x * std::sqrt(Real{0.5})) / 2;
}

#define ROW(name, single, twice) \
  {#name, Intrinsic::name, single, twice, [](double x) { return std::name(x); }, [](Real x) { return std::name(x); }}
const Function functions[] = {
    ROW(exp, 2, 4),
    ROW(exp2, 2, 4),
    ROW(log, 2, 4),
    ROW(log2, 2, 4),
    ROW(tanh, 2, 4),
    ROW(erf, 4, 4),
    {"sigmoid", Intrinsic::sigmoid, 3, 4, sigmoid_reference, sigmoid_reference},
    {"normal_cdf", Intrinsic::normal_cdf, 4, 4, normal_cdf_reference, normal_cdf_reference, 0.25},
    {"rsqrt", Intrinsic::rsqrt, 2, 4, [](double x) { return 1 / std::sqrt(x); },
     [](Real x) { return 1 / std::sqrt(x); }},
    ROW(sin, 2, 4),
    ROW(cos, 2, 4),
    ROW(tan, 2, 4),
    ROW(asin, 2, 4),
    ROW(acos, 2, 4),
    ROW(atan, 2, 4),
    ROW(sinh, 2, 4),
    ROW(cosh, 2, 4),
    ROW(asinh, 2, 4),
    ROW(acosh, 2, 4),
    ROW(atanh, 2, 4),
};
#undef ROW

// Distance in units of the last place of the format; 1e9 where only one is NaN, or infinite out of place.
template <class T>
double distance(T value, Real expected, double least = 0) {
  const auto rounded = static_cast<T>(expected);
  if (std::isnan(rounded) || std::isnan(value)) return std::isnan(rounded) && std::isnan(value) ? 0 : 1e9;
  if (rounded == value) return std::signbit(rounded) == std::signbit(value) ? 0 : 1e9;
  constexpr T largest = std::numeric_limits<T>::max();
  if (std::isinf(value)) return std::abs(rounded) == largest && std::signbit(rounded) == std::signbit(value) ? 1 : 1e9;
  if (std::isinf(rounded)) return std::abs(value) == largest && std::signbit(rounded) == std::signbit(value) ? 1 : 1e9;
  const T magnitude = std::max({std::abs(rounded), std::numeric_limits<T>::min(), static_cast<T>(least)});
  const Real unit = std::ldexp(Real{1}, std::ilogb(magnitude) - std::numeric_limits<T>::digits + 1);
  return static_cast<double>(std::abs(static_cast<Real>(value) - expected) / unit);
}

// C[i] = function(X[i], Y[i]), expanded.
template <class T>
NDArray apply(Intrinsic intrinsic, const std::vector<NDArray>& inputs, bool contract, bool has_power_scaling = false) {
  const DType dtype = sizeof(T) == 4 ? f32 : f64;
  const int64_t count = inputs[0].size() / 64;
  Func f;
  f.name = "f";
  const Var i("i");
  const Expr lanes = ramp(i * 64, 1, 64);
  std::vector<Expr> arguments;
  for (size_t k = 0; k < inputs.size(); ++k) {
    f.buffers.emplace_back("X" + std::to_string(k), dtype, std::vector<Expr>{Expr(count * 64)});
    arguments.push_back(load(f.buffers[k], {lanes}));
  }
  f.buffers.emplace_back("C", dtype, std::vector<Expr>{Expr(count * 64)});
  f.output_count = 1;
  f.body =
      make_stmt<For>(i, Expr(count), LoopKind::serial, store(f.buffers.back(), {lanes}, call(intrinsic, arguments)));
  f.attributes["has_fma"] = int64_t{contract};
  f.attributes["has_power_scaling"] = int64_t{has_power_scaling};
  f = expand_math(f);
  bool is_left = false;
  visit(f.body, [&](const Call& node) { is_left |= node.intrinsic == intrinsic; });
  EXPECT_FALSE(is_left);
  if (contract) f = contract_fma(f);
  NDArray result(dtype, {count * 64});
  std::vector<NDArray> arrays = inputs;
  arrays.push_back(result);
  interpret(f, arrays);
  return result;
}

// Zero, infinities, NaN, denormals, and the neighbourhoods where functions change method.
template <class T>
std::vector<T> special_values() {
  std::vector<T> values;
  const double centers[] = {0,
                            1,
                            2,
                            0.5,
                            3.95,
                            9.1,
                            0.785398,
                            1.5707963267948966,
                            3.141592653589793,
                            88.72283935546875,
                            -87.3365478515625,
                            -103.97,
                            128,
                            -126,
                            -149,
                            0.693147,
                            89.4159,
                            709.782712893384,
                            -708.396,
                            -745.13,
                            710.47,
                            1e5,
                            1e10,
                            1e20,
                            1e30,
                            3e38,
                            22.0,
                            6.0,
                            11,
                            1e-5,
                            1e-10,
                            1e-20,
                            1e-38,
                            1e-42,
                            0.70710678,
                            1.41421356,
                            5.9,
                            355,
                            710,
                            103993};
  for (const double center : centers) {
    for (const double sign : {1.0, -1.0}) {
      T up = static_cast<T>(sign * center), down = up;
      for (int k = 0; k < 20; ++k) {
        values.push_back(up), values.push_back(down);
        up = std::nextafter(up, std::numeric_limits<T>::infinity());
        down = std::nextafter(down, -std::numeric_limits<T>::infinity());
      }
    }
  }
  for (const T value :
       {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN(),
        std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest(), std::numeric_limits<T>::min(),
        std::numeric_limits<T>::denorm_min(), T{-0.0}, T{0.0}}) {
    values.push_back(value);
  }
  return values;
}

template <class T>
NDArray array_of(std::vector<T> values) {
  while (values.size() % 64) values.push_back(values.back());
  return NDArray::from<T>(sizeof(T) == 4 ? f32 : f64, {static_cast<int64_t>(values.size())},
                          std::span<const T>(values));
}

uint64_t step_of_f32() {
  const char* text = std::getenv("TW_MATH_STEP");
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  constexpr uint64_t usual = 65521;
#else
  constexpr uint64_t usual = 4093;
#endif
#else
  constexpr uint64_t usual = 4093;
#endif
  return text ? std::strtoull(text, nullptr, 10) : usual;
}

class MathOf : public ::testing::TestWithParam<Function> {};

TEST_P(MathOf, SingleIsCloseEverywhere) {
  const Function& function = GetParam();
  const uint64_t step = step_of_f32();
  double worst = 0;
  float at = 0, got = 0;
  bool is_special = true;
  for (uint64_t start = 0; start < uint64_t{1} << 32 || is_special;) {
    std::vector<float> values;
    if (is_special) values = special_values<float>();
    for (; !is_special && values.size() < 1 << 16 && start < uint64_t{1} << 32; start += step) {
      values.push_back(std::bit_cast<float>(static_cast<uint32_t>(start)));
    }
    const NDArray input = array_of(values);
    // Plainly; with multiply-adds; with x·2^n as an instruction, too.
    for (const int mode : {0, 1, 2}) {
      if (mode > 0 && !is_special && start / step / 65536 % 4 != static_cast<uint64_t>(mode - 1)) continue;
      const NDArray result = apply<float>(function.intrinsic, {input}, mode > 0, mode == 2);
      for (int64_t i = 0; i < input.size(); ++i) {
        const float x = input.as<float>()[i];
        const double d = distance(result.as<float>()[i], static_cast<Real>(function.f32_reference(x)), function.least);
        if (d > worst) worst = d, at = x, got = result.as<float>()[i];
      }
    }
    is_special = false;
  }
  RecordProperty("worst", std::to_string(worst));
  EXPECT_LE(worst, function.limit_f32) << function.name << "(" << std::hexfloat << at << " = " << std::defaultfloat
                                       << at << ") = " << got << ", not " << function.f32_reference(at);
  if (std::getenv("TW_MATH_REPORT")) std::printf("%s f32: %.3f at %a\n", function.name, worst, at);
}

TEST_P(MathOf, DoubleIsCloseOnSamples) {
  const Function& function = GetParam();
  std::mt19937_64 random(17);
  std::vector<double> values = special_values<double>();
  for (int k = 0; k < 12000; ++k) {
    values.push_back(std::bit_cast<double>(random()));                                        // all exponents
    values.push_back(std::ldexp(static_cast<double>(random()) * 0x1p-64 - 0.5, k % 12 - 4));  // ordinary ones
  }
  const NDArray input = array_of(values);
  double worst = 0, at = 0, got = 0;
  for (const bool contract : {false, true}) {
    const NDArray result = apply<double>(function.intrinsic, {input}, contract, contract);
    for (int64_t i = 0; i < input.size(); ++i) {
      const double x = input.as<double>()[i];
      const double d = distance(result.as<double>()[i], function.f64_reference(x), function.least);
      if (d > worst) worst = d, at = x, got = result.as<double>()[i];
    }
  }
  EXPECT_LE(worst, function.limit_f64) << function.name << "(" << std::hexfloat << at << std::defaultfloat
                                       << ") = " << got << ", not " << static_cast<double>(function.f64_reference(at));
  if (std::getenv("TW_MATH_REPORT")) std::printf("%s f64: %.3f at %a\n", function.name, worst, at);
}

INSTANTIATE_TEST_SUITE_P(Math, MathOf, ::testing::ValuesIn(functions),
                         [](const auto& info) { return std::string(info.param.name); });

template <class T>
void expect_close_pairs(Intrinsic intrinsic, double limit, Real (*reference)(Real, Real), bool needs_fma = false) {
  std::mt19937_64 random(23);
  const std::vector<T> ends{0,
                            static_cast<T>(-0.0),
                            1,
                            -1,
                            2,
                            -2,
                            3,
                            -3,
                            T(0.5),
                            T(-0.5),
                            T(1e30),
                            T(-1e30),
                            std::numeric_limits<T>::infinity(),
                            -std::numeric_limits<T>::infinity(),
                            std::numeric_limits<T>::quiet_NaN(),
                            std::numeric_limits<T>::max(),
                            std::numeric_limits<T>::denorm_min(),
                            -std::numeric_limits<T>::denorm_min(),
                            T(1.0000001),
                            T(0.9999999),
                            T(33554431)};
  std::vector<T> xs, ys;
  for (const T x : ends) {
    for (const T y : ends) xs.push_back(x), ys.push_back(y);
  }
  auto uniform = [&](double low, double high) {
    return static_cast<T>(low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53);
  };
  for (int k = 0; k < 20000; ++k) {
    switch (k % 4) {
      case 0:
        xs.push_back(uniform(0, 4)), ys.push_back(uniform(-60, 60));
        break;
      case 1:
        xs.push_back(std::exp(uniform(-80, 80))), ys.push_back(uniform(-1.2, 1.2));
        break;
      case 2:
        xs.push_back(uniform(-9, 9)), ys.push_back(std::round(uniform(-30, 30)));
        break;
      default:
        if constexpr (sizeof(T) == 4) {
          xs.push_back(std::bit_cast<float>(static_cast<uint32_t>(random()))),
              ys.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
        } else {
          xs.push_back(std::bit_cast<double>(random())), ys.push_back(std::bit_cast<double>(random()));
        }
    }
  }
  const NDArray x = array_of(xs), y = array_of(ys);
  for (const bool contract : {false, true}) {
    if (needs_fma && !contract) continue;
    const NDArray result = apply<T>(intrinsic, {x, y}, contract);
    double worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < x.size(); ++i) {
      const double d = distance(result.as<T>()[i], reference(x.as<T>()[i], y.as<T>()[i]));
      if (d > worst) worst = d, at = i;
    }
    EXPECT_LE(worst, limit) << std::hexfloat << x.as<T>()[at] << ", " << y.as<T>()[at] << " -> " << result.as<T>()[at]
                            << ", not " << static_cast<T>(reference(x.as<T>()[at], y.as<T>()[at]));
    if (std::getenv("TW_MATH_REPORT")) std::printf("pairs of %zu bytes: %.3f\n", sizeof(T), worst);
  }
}

TEST(Math, PowIsClose) {
  expect_close_pairs<float>(Intrinsic::pow, 4, [](Real x, Real y) { return std::pow(x, y); });
  expect_close_pairs<double>(Intrinsic::pow, 4, [](Real x, Real y) { return std::pow(x, y); });
}

TEST(Math, FmodIsExact) {
  expect_close_pairs<float>(Intrinsic::fmod, 0, [](Real x, Real y) { return std::fmod(x, y); });
  expect_close_pairs<double>(Intrinsic::fmod, 0, [](Real x, Real y) { return std::fmod(x, y); }, true);
}

// By its definition, and as code computes it.
TEST(Math, Tf32IsTheNearestNumberOf10Bits) {
  const NDArray x = array_of(special_values<float>());
  const NDArray result = apply<float>(Intrinsic::round_tf32, {x}, false);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double value = x.as<float>()[i];
    double expected = value;
    if (std::isfinite(value) && value != 0) {
      const int last = std::max(std::ilogb(value), -126) - 10;
      expected = std::ldexp(std::round(std::ldexp(value, -last)), last);
    }
    if (std::abs(expected) > std::numeric_limits<float>::max()) expected = std::copysign(INFINITY, value);
    EXPECT_EQ(distance(result.as<float>()[i], Real{expected}), 0) << std::hexfloat << value;
    EXPECT_EQ(distance(static_cast<float>(meaning::round_to_tf32(value)), Real{expected}), 0) << std::hexfloat << value;
  }
}

// C[i] = conversion(X[i]).
NDArray converted(Intrinsic conversion, const NDArray& x, bool is_expanded) {
  const int64_t count = x.size() / 64 * 64;
  Func f;
  f.name = "f";
  const Var i("i");
  const Expr lanes = ramp(i * 64, 1, 64);
  const DType result = kind_of(conversion) == IntrinsicKind::decode ? f32 : u8;
  f.buffers = {Buffer("X", x.dtype(), {Expr(x.size())}), Buffer("C", result, {Expr(count)})};
  f.output_count = 1;
  const Expr value = call(conversion, {load(f.buffers[0], {lanes})});
  f.body = make_stmt<For>(i, Expr(count / 64), LoopKind::serial, store(f.buffers[1], {lanes}, value));
  NDArray c(result, {count});
  interpret(is_expanded ? expand_math(f) : f, {x, c});
  return c;
}

// By their tables, and as code computes them.
TEST(Math, FloatsOf8BitsAreThoseOfTheirFormats) {
  const std::pair<Intrinsic, Intrinsic> formats[] = {{Intrinsic::decode_e4m3, Intrinsic::encode_e4m3},
                                                     {Intrinsic::decode_e5m2, Intrinsic::encode_e5m2}};
  NDArray codes(u8, {256});
  for (int64_t i = 0; i < 256; ++i) codes.set_int(i, i);
  const NDArray numbers = array_of(special_values<float>());
  for (const auto& [decode, encode] : formats) {
    const DType format = code_format(decode);
    for (const bool is_expanded : {false, true}) {
      const NDArray decoded = converted(decode, codes, is_expanded), encoded = converted(encode, numbers, is_expanded);
      for (int64_t i = 0; i < 256; ++i) {
        const float expected = minifloat_to_float(format, static_cast<uint8_t>(i)), x = decoded.as<float>()[i];
        EXPECT_TRUE(std::isnan(expected) ? std::isnan(x)
                                         : std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(x))
            << i << " " << x;
      }
      for (int64_t i = 0; i < encoded.size(); ++i)
        EXPECT_EQ(encoded.as<uint8_t>()[i], float_to_minifloat(format, numbers.as<float>()[i]))
            << numbers.as<float>()[i];
    }
  }
}

// The known answers of Random123 for Philox4x32-10 (Salmon et al., SC'11), and that code computes the same.
TEST(Math, PhiloxIsThatOfItsAuthors) {
  struct Known {
    uint64_t key, low, high;
    std::array<uint32_t, 4> words;
  };
  const uint64_t ones = ~uint64_t{0};
  const Known all[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {ones, ones, ones, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& [key, low, high, words] : all) {
    EXPECT_EQ(meaning::philox(key, low, high), words);
    const auto number = [](uint64_t value) { return int_imm(u64, static_cast<int64_t>(value)); };
    Func f;
    f.name = "f";
    f.buffers.emplace_back("C", u64, std::vector<Expr>{Expr(1)});
    f.output_count = 1;
    f.body = store(f.buffers[0], {Expr(0)}, call(Intrinsic::philox, {number(key), number(low), number(high)}));
    for (const bool is_expanded : {false, true}) {
      NDArray result(u64, {1});
      std::vector<NDArray> arrays = {result};
      interpret(is_expanded ? expand_math(f) : f, arrays);
      EXPECT_EQ(static_cast<uint64_t>(result.get_int(0)), uint64_t{words[1]} << 32 | words[0]);
    }
  }
}

// Within the rounding of exp down to the smallest normal number, and no further from it than that below.
template <class T>
void expect_close_nonpositive(double limit) {
  std::mt19937_64 random(29);
  constexpr bool is_single = sizeof(T) == 4;
  std::vector<T> values;
  for (const T x : special_values<T>()) values.push_back(x > 0 ? -x : x);
  for (int k = 0; k < 40000; ++k) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    values.push_back(static_cast<T>(-std::ldexp(unit, k % 2 ? 3 : (is_single ? 7 : 10))));
  }
  const NDArray input = array_of(values);
  const double least = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
  for (const bool contract : {false, true}) {
    const NDArray result = apply<T>(Intrinsic::exp_nonpositive, {input}, contract, contract);
    const NDArray without_scaling = apply<T>(Intrinsic::exp_nonpositive, {input}, contract);
    for (int64_t i = 0; i < input.size(); ++i) {
      const T x = input.as<T>()[i];
      const Real expected = std::exp(static_cast<Real>(x));
      EXPECT_LE(distance(result.as<T>()[i], expected, least), limit) << x;
      EXPECT_LE(distance(without_scaling.as<T>()[i], expected, least), limit) << x;
    }
  }
}

TEST(Math, ExpOfNonpositive) {
  expect_close_nonpositive<float>(2);
  expect_close_nonpositive<double>(4);
}

TEST(Math, CommonFunctionsAreShort) {
  auto operations = [](Intrinsic intrinsic) {
    Func f;
    f.buffers = {Buffer("X", f32, {Expr(16)}), Buffer("C", f32, {Expr(16)})};
    f.output_count = 1;
    const Expr lanes = ramp(0, 1, 16);
    f.body = store(f.buffers[1], {lanes}, call(intrinsic, {load(f.buffers[0], {lanes})}));
    int count = 0;
    f = contract_fma(expand_math(f));
    visit(
        f.body, [&](const Binary& e) { count += !is_comparison(e.op); }, [&](const Select&) { ++count; },
        [&](const Call& e) { count += e.intrinsic != Intrinsic::reinterpret; });
    return count;
  };
  EXPECT_LE(operations(Intrinsic::exp), 18);
  EXPECT_LE(operations(Intrinsic::exp_nonpositive), 13);
  EXPECT_LE(operations(Intrinsic::tanh), 24);
  EXPECT_LE(operations(Intrinsic::sigmoid), 24);
  EXPECT_LE(operations(Intrinsic::erf), 28);
  EXPECT_LE(operations(Intrinsic::normal_cdf), 32);
  if (std::getenv("TW_MATH_REPORT")) {
    std::printf("operations: exp %d tanh %d sigmoid %d erf %d log %d\n", operations(Intrinsic::exp),
                operations(Intrinsic::tanh), operations(Intrinsic::sigmoid), operations(Intrinsic::erf),
                operations(Intrinsic::log));
  }
}

}  // namespace
}  // namespace tw
