// Element types, shared by arrays, both IRs and the artifact.
//
// A DType is a kind, a width in bits and a number of vector lanes.  Text forms: f32 f64 f16 bf16
// i8 i16 i32 i64 u8 u16 u32 u64 bool, and f32x16 for a vector of sixteen f32.
//
// Narrow types are only stored: arrays and graphs have them, and graphs move, convert and multiply their elements;
// loops know the bytes alone.  Text forms: i4 u4 i2 u2 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1.  Each
// element takes a byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tw {

enum class DTypeKind : uint8_t {
  boolean,
  signed_integer,
  unsigned_integer,
  floating,
  brain_floating,
  // Floats of 8 bits and fewer, by their bits of exponent and mantissa.  fn: no infinities; uz: no negative zero.
  e4m3fn,
  e4m3fnuz,
  e5m2,
  e5m2fnuz,
  e8m0,  // powers of two
  e2m1,
};

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
  constexpr bool is_minifloat() const { return kind >= DTypeKind::e4m3fn; }  // is_float() is not of them
  constexpr bool is_narrow() const { return is_minifloat() || (is_integer() && bits < 8); }
  // As what loops see its elements: bytes, of which a narrow type's low bits count.
  constexpr DType stored() const {
    return !is_narrow() ? *this : DType{is_signed_integer() ? kind : DTypeKind::unsigned_integer, 8, lanes};
  }
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
inline constexpr DType i4{DTypeKind::signed_integer, 4}, u4{DTypeKind::unsigned_integer, 4},
    i2{DTypeKind::signed_integer, 2}, u2{DTypeKind::unsigned_integer, 2};
inline constexpr DType f8e4m3fn{DTypeKind::e4m3fn, 8}, f8e4m3fnuz{DTypeKind::e4m3fnuz, 8}, f8e5m2{DTypeKind::e5m2, 8},
    f8e5m2fnuz{DTypeKind::e5m2fnuz, 8}, f8e8m0{DTypeKind::e8m0, 8}, f4e2m1{DTypeKind::e2m1, 4};
inline constexpr DType narrow_types[] = {i4, u4, i2, u2, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1};

std::string to_string(DType dtype);
std::optional<DType> parse_dtype(std::string_view text);         // of loops: no narrow ones
std::optional<DType> parse_element_type(std::string_view text);  // of arrays and graphs: narrow ones, no vectors

// Conversions of the two 16-bit formats, rounding to nearest even.  They are the meaning of these types
// for the oracle and for constants; generated code uses the target's instructions.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);

// How the codes of a minifloat with a sign are made: sign, exponent, mantissa.  f8e4m3fn and f8e5m2: OCP 8-bit Floating
// Point Specification 1.0; those without negative zero: Noune et al., 8-bit Numerical Formats for Deep Neural Networks,
// 2022; f4e2m1, and f8e8m0, which has an exponent alone: OCP Microscaling Formats Specification 1.0.
struct MinifloatFormat {
  int mantissa_bits = 0, bias = 0;
  uint8_t largest = 0;   // the largest finite number's code
  uint8_t overflow = 0;  // what is larger becomes this: infinity, NaN, or the largest number where there is neither
  uint8_t nan = 0;       // f4e2m1 has none: negative zero, as ml_dtypes has it
  bool has_negative_zero = true;
  bool has_infinity = false;
};
MinifloatFormat minifloat_format(DType dtype);  // not of f8e8m0

// Rounds to nearest even; f8e8m0: to the nearest power of two, and what is not positive is NaN.
uint8_t float_to_minifloat(DType dtype, float value);
float minifloat_to_float(DType dtype, uint8_t code);

}  // namespace tw
