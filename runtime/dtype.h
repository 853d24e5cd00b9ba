// Element types, shared by arrays, both IRs and the artifact.
//
// A DType is a kind, a width in bits and a number of vector lanes.  Text forms: f32 f64 f16 bf16
// i8 i16 i32 i64 u8 u16 u32 u64 bool, and f32x16 for a vector of sixteen f32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tw {

enum class DTypeKind : uint8_t { boolean, signed_integer, unsigned_integer, floating, brain_floating };

struct DType {
  DTypeKind kind = DTypeKind::floating;
  uint8_t bits = 32;
  uint16_t lanes = 1;

  constexpr bool operator==(const DType&) const = default;
  constexpr bool is_bool() const { return kind == DTypeKind::boolean; }
  constexpr bool is_float() const { return kind == DTypeKind::floating || kind == DTypeKind::brain_floating; }
  constexpr bool is_signed_integer() const { return kind == DTypeKind::signed_integer; }
  constexpr bool is_unsigned_integer() const { return kind == DTypeKind::unsigned_integer; }
  constexpr bool is_integer() const { return is_signed_integer() || is_unsigned_integer(); }  // bool is not
  constexpr bool is_vector() const { return lanes > 1; }
  constexpr DType with_lanes(int n) const { return {kind, bits, static_cast<uint16_t>(n)}; }
  constexpr DType element() const { return with_lanes(1); }
  // Bytes of one element in memory; a bool takes one byte.
  constexpr int bytes() const { return (bits + 7) / 8; }
};

inline constexpr DType boolean{DTypeKind::boolean, 1};
inline constexpr DType i8{DTypeKind::signed_integer, 8}, i16{DTypeKind::signed_integer, 16},
    i32{DTypeKind::signed_integer, 32}, i64{DTypeKind::signed_integer, 64};
inline constexpr DType u8{DTypeKind::unsigned_integer, 8}, u16{DTypeKind::unsigned_integer, 16},
    u32{DTypeKind::unsigned_integer, 32}, u64{DTypeKind::unsigned_integer, 64};
inline constexpr DType f16{DTypeKind::floating, 16}, f32{DTypeKind::floating, 32}, f64{DTypeKind::floating, 64};
inline constexpr DType bf16{DTypeKind::brain_floating, 16};

std::string to_string(DType dtype);
std::optional<DType> parse_dtype(std::string_view text);

// Conversions of the two 16-bit formats, rounding to nearest even.  They are the meaning of these types
// for the oracle and for constants; generated code uses the target's instructions.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);

}  // namespace tw
