// What the operators and intrinsics mean on one element.  The oracle and the evaluator are built on these, so that
// there is one place that says what `floor_mod` of an i8 or `exp` of a bf16 is.
//
// Integers and bools are held as i64 (u64 by its bits), wrapped to their dtype; floats as double, rounded to their
// dtype.
#pragma once

#include <array>
#include <cmath>

#include "tensor_ir/ir.h"

namespace tw::meaning {

// To the width of an integer or bool dtype.
inline int64_t wrap(DType dtype, int64_t value) {
  if (dtype.is_bool()) return value != 0;
  if (dtype.bits == 64) return value;
  const int unused = 64 - dtype.bits;
  const uint64_t high = static_cast<uint64_t>(value) << unused;
  return dtype.is_signed_integer() ? static_cast<int64_t>(high) >> unused : static_cast<int64_t>(high >> unused);
}

// To the precision of a float dtype.  A 16-bit result is that of f32 arithmetic, rounded once more.
inline double round_to(DType dtype, double value) {
  if (dtype.bits == 64) return value;
  const auto single = static_cast<float>(value);
  if (dtype.bits == 32) return single;
  return dtype.kind == DTypeKind::brain_floating ? bf16_to_float(float_to_bf16(single))
                                                 : f16_to_float(float_to_f16(single));
}

double round_to_tf32(double value);  // round_tf32

// Integer and bool operands; Error(verify) for a division by zero and for a shift by the width or more.
int64_t apply(BinaryOp op, DType dtype, int64_t a, int64_t b);
int64_t apply(UnaryOp op, DType dtype, int64_t a);
// Float operands: arithmetic, min and max.
double apply(BinaryOp op, DType dtype, double a, double b);
bool compare(BinaryOp op, double a, double b);

// A math intrinsic of floats.  f32 is the correctly rounded value of a double computation of the C library.
double apply(Intrinsic intrinsic, DType dtype, const double* arguments);
bool test(Intrinsic intrinsic, double a);  // is_nan, is_inf
// Philox4x32-10: four words of a key of 64 bits and a counter of 128.
inline constexpr int philox_rounds = 10;
inline constexpr std::array<uint32_t, 2> philox_factors = {0xD2511F53, 0xCD9E8D57},
                                         philox_weyl = {0x9E3779B9, 0xBB67AE85};
std::array<uint32_t, 4> philox(uint64_t key, uint64_t low, uint64_t high);
// Those that integers have too (abs, sign, minimum, maximum), and bits.
int64_t apply(Intrinsic intrinsic, DType dtype, const int64_t* arguments);

// Dot products of words.  f32 and i32 accumulators.
double dot(Intrinsic intrinsic, double accumulator, uint32_t a, uint32_t b);
int64_t dot(Intrinsic intrinsic, int64_t accumulator, uint32_t a, uint32_t b);

// One element of a product of tiles or matrices: of the k words of a row of a and the k words of b that it multiplies.
double tile_dot(Intrinsic intrinsic, double accumulator, int k, const uint32_t* a, const uint32_t* b);
int64_t tile_dot(Intrinsic intrinsic, int64_t accumulator, int k, const uint32_t* a, const uint32_t* b);

// Conversions.  Float to integer truncates to zero; what does not fit saturates, NaN becomes 0.
int64_t float_to_int(DType to, double value);
double int_to_float(DType from, DType to, int64_t value);

uint64_t bits_of_float(DType dtype, double value);  // the element's bits in memory
double float_of_bits(DType dtype, uint64_t bits);

}  // namespace tw::meaning
