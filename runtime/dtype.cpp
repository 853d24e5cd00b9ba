#include "runtime/dtype.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/error.h"

namespace tw {
namespace {

struct Name {
  const char* text;
  DType dtype;
};
constexpr Name names[] = {{"f32", f32}, {"f64", f64}, {"f16", f16},     {"bf16", bf16}, {"i8", i8},
                          {"i16", i16}, {"i32", i32}, {"i64", i64},     {"u8", u8},     {"u16", u16},
                          {"u32", u32}, {"u64", u64}, {"bool", boolean}};
constexpr Name narrow_names[] = {{"i4", i4},
                                 {"u4", u4},
                                 {"i2", i2},
                                 {"u2", u2},
                                 {"f8e4m3fn", f8e4m3fn},
                                 {"f8e4m3fnuz", f8e4m3fnuz},
                                 {"f8e5m2", f8e5m2},
                                 {"f8e5m2fnuz", f8e5m2fnuz},
                                 {"f8e8m0", f8e8m0},
                                 {"f4e2m1", f4e2m1}};

}  // namespace

std::string to_string(DType dtype) {
  std::string text;
  for (const Name& name : names) {
    if (name.dtype == dtype.element()) text = name.text;
  }
  for (const Name& name : narrow_names) {
    if (name.dtype == dtype.element()) text = name.text;
  }
  // Widths outside the table occur only in IR that the verifier refuses; they still need a text for its message.
  if (text.empty()) {
    const char* kinds[] = {"bool", "i", "u", "f", "bf"};
    text = (dtype.is_minifloat() ? "minifloat" : kinds[static_cast<int>(dtype.kind)]) + std::to_string(dtype.bits);
  }
  return dtype.lanes == 1 ? text : text + "x" + std::to_string(dtype.lanes);
}

std::optional<DType> parse_dtype(std::string_view text) {
  int lanes = 1;
  if (size_t x = text.find('x'); x != std::string_view::npos) {
    std::string_view digits = text.substr(x + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), lanes);
    if (error != std::errc() || end != digits.data() + digits.size() || lanes < 2 || lanes > 65535) return std::nullopt;
    text = text.substr(0, x);
  }
  for (const Name& name : names) {
    if (text == name.text) return name.dtype.with_lanes(lanes);
  }
  return std::nullopt;
}

std::optional<DType> parse_element_type(std::string_view text) {
  for (const Name& name : narrow_names) {
    if (text == name.text) return name.dtype;
  }
  const auto dtype = parse_dtype(text);
  return dtype && !dtype->is_vector() ? dtype : std::nullopt;
}

float f16_to_float(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  // Subnormal: mantissa × 2^-24, exact in f32.
  float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t float_to_f16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | static_cast<uint16_t>(magnitude >> 13 & 0x3ffu);  // NaN, quiet
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to ≥ 65520: infinity
  if (magnitude < 0x33000000u) return sign;             // < 2^-25: zero
  if (magnitude == 0x33000000u) return sign;            // = 2^-25: a tie, to even
  uint32_t mantissa, shift, base;
  if (magnitude < 0x38800000u) {  // a subnormal of f16
    uint32_t exponent = magnitude >> 23;
    mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    shift = 126 - exponent;
    base = 0;
  } else {
    mantissa = magnitude & 0x7fffffu;
    shift = 13;
    base = ((magnitude >> 23) - 112) << 10;
  }
  uint32_t rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
  uint32_t result = base + (mantissa >> shift);
  if (rest > half || (rest == half && (result & 1))) ++result;  // a carry into the exponent is right
  return sign | static_cast<uint16_t>(result);
}

float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t float_to_bf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // NaN, quiet
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

MinifloatFormat minifloat_format(DType dtype) {
  switch (dtype.kind) {
    case DTypeKind::e4m3fn:
      return {.mantissa_bits = 3, .bias = 7, .largest = 0x7e, .overflow = 0x7f, .nan = 0x7f};
    case DTypeKind::e4m3fnuz:
      return {
          .mantissa_bits = 3, .bias = 8, .largest = 0x7f, .overflow = 0x80, .nan = 0x80, .has_negative_zero = false};
    case DTypeKind::e5m2:
      return {.mantissa_bits = 2, .bias = 15, .largest = 0x7b, .overflow = 0x7c, .nan = 0x7e, .has_infinity = true};
    case DTypeKind::e5m2fnuz:
      return {
          .mantissa_bits = 2, .bias = 16, .largest = 0x7f, .overflow = 0x80, .nan = 0x80, .has_negative_zero = false};
    case DTypeKind::e2m1:
      return {.mantissa_bits = 1, .bias = 1, .largest = 0x7, .overflow = 0x7, .nan = 0x8};
    default:
      internal_error("minifloat_format: " + to_string(dtype));
  }
}

uint8_t float_to_minifloat(DType dtype, float value) {
  if (dtype == f8e8m0) {
    if (!(value > 0) || std::isinf(value)) return 0xff;
    int exponent = 0;
    const float fraction = std::frexp(value, &exponent);  // in [0.5, 1)
    return static_cast<uint8_t>(std::clamp(exponent - 1 + (fraction >= 0.75f) + 127, 0, 254));
  }
  const MinifloatFormat f = minifloat_format(dtype);
  const int sign = std::signbit(value) ? 1 << (dtype.bits - 1) : 0;
  int code = f.nan;
  if (std::isinf(value)) {
    code = f.overflow;
  } else if (!std::isnan(value)) {
    const float magnitude = std::fabs(value);
    const int exponent = magnitude == 0 ? 1 - f.bias : std::max(std::ilogb(magnitude), 1 - f.bias);
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent)));
    code = ((exponent + f.bias - 1) << f.mantissa_bits) + steps;
    if (code > f.largest) code = f.overflow;
  }
  const bool is_unsigned = !f.has_negative_zero && (code == 0 || code == f.nan);
  return static_cast<uint8_t>(is_unsigned ? code : code | sign);
}

float minifloat_to_float(DType dtype, uint8_t code) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  if (dtype == f8e8m0) return code == 0xff ? nan : std::ldexp(1.0f, code - 127);
  const MinifloatFormat f = minifloat_format(dtype);
  const int sign_bit = 1 << (dtype.bits - 1), magnitude = code & (sign_bit - 1);
  const bool is_negative = (code & sign_bit) != 0;
  float value = nan;
  if (magnitude <= f.largest && (f.has_negative_zero || magnitude != 0 || !is_negative)) {
    const int exponent = magnitude >> f.mantissa_bits, mantissa = magnitude & ((1 << f.mantissa_bits) - 1);
    const int steps = exponent == 0 ? mantissa : mantissa + (1 << f.mantissa_bits);
    value = std::ldexp(static_cast<float>(steps), std::max(exponent, 1) - f.bias - f.mantissa_bits);
  } else if (f.has_infinity && magnitude == f.overflow) {
    value = std::numeric_limits<float>::infinity();
  }
  return is_negative ? -value : value;
}

}  // namespace tw
