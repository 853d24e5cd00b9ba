#include "runtime/dtype.h"

#include <bit>
#include <charconv>

namespace tw {
namespace {

struct Name {
  const char* text;
  DType dtype;
};
constexpr Name names[] = {{"f32", f32}, {"f64", f64}, {"f16", f16},     {"bf16", bf16}, {"i8", i8},
                          {"i16", i16}, {"i32", i32}, {"i64", i64},     {"u8", u8},     {"u16", u16},
                          {"u32", u32}, {"u64", u64}, {"bool", boolean}};

}  // namespace

std::string to_string(DType dtype) {
  std::string text;
  for (const Name& name : names) {
    if (name.dtype == dtype.element()) text = name.text;
  }
  // Widths outside the table occur only in IR that the verifier refuses; they still need a text for its message.
  if (text.empty()) {
    const char* kinds[] = {"bool", "i", "u", "f", "bf"};
    text = kinds[static_cast<int>(dtype.kind)] + std::to_string(dtype.bits);
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

}  // namespace tw
