// Conversions between element types, with those of the 16-bit floats that a target has no instructions for.
#include <cmath>
#include <optional>

#include "targets/llvm/codegen.h"

namespace tw {

// The type's least integer, and its greatest plus one: powers of two, which floats hold exactly.
static double least_of(DType integer) {
  return integer.is_unsigned_integer() ? 0 : -std::ldexp(1.0, integer.bits - 1);
}
static double end_of(DType integer) {
  return std::ldexp(1.0, integer.is_unsigned_integer() ? integer.bits : integer.bits - 1);
}

static llvm::Instruction::CastOps conversion_to(DType integer) {
  return integer.is_unsigned_integer() ? llvm::Instruction::FPToUI : llvm::Instruction::FPToSI;
}

struct Clipped {
  Expr value, low, high;
};

// Codes of quantised operators: what is clipped to limits that fit the integer.
static std::optional<Clipped> match_clipped(const Expr& e, DType integer) {
  const auto* below = e.as<Call>();
  if (!below || below->intrinsic != Intrinsic::minimum) return std::nullopt;
  const auto* above = below->arguments[0].as<Call>();
  if (!above || above->intrinsic != Intrinsic::maximum) return std::nullopt;
  const auto low = as_float(above->arguments[1]), high = as_float(below->arguments[1]);
  if (!low || !high || *low > *high || *low < least_of(integer) || *high >= end_of(integer)) return std::nullopt;
  return Clipped{above->arguments[0], above->arguments[1], below->arguments[1]};
}

llvm::Value* KernelCodegen::emit_cast(const Cast& e) {
  const DType from = e.value.dtype(), to = e.dtype;
  const bool is_whole = to.is_integer() && from.is_float() && from.bits > 16;
  const auto clipped = is_whole ? match_clipped(e.value, to.element()) : std::nullopt;
  if (!clipped) return emit_cast(emit(e.value), from, to);
  if (*as_float(clipped->low) != 0) return float_to_integer(emit(e.value), from, to, true);
  // The larger of a NaN and of 0 is 0 where NaN need not remain one: what a NaN is as an integer.
  llvm::Value* value = emit_min_max(false, from, emit(clipped->value), emit(clipped->low), false, true);
  value = emit_min_max(true, from, value, emit(clipped->high), true, true);
  return builder_.CreateCast(conversion_to(to), value, type_of(to));
}

llvm::Value* KernelCodegen::emit_cast(llvm::Value* value, DType from, DType to) {
  if (from == to) return value;
  const int lanes = to.lanes;
  if (from.is_float() && from.bits == 16) {
    value = from.kind == DTypeKind::floating ? half_to_float(value) : bfloat_to_float(value);
    return emit_cast(value, f32.with_lanes(lanes), to);
  }
  if (to.is_float() && to.bits == 16) {
    value = emit_cast(value, from, f32.with_lanes(lanes));
    return to.kind == DTypeKind::floating ? float_to_half(value) : float_to_bfloat(value);
  }
  llvm::Type* type = type_of(to);
  llvm::Value* zero = llvm::Constant::getNullValue(value->getType());
  if (to.is_bool()) return from.is_float() ? builder_.CreateFCmpUNE(value, zero) : builder_.CreateICmpNE(value, zero);
  const bool is_from_unsigned = from.is_bool() || from.is_unsigned_integer();
  if (from.is_float()) {
    if (to.is_float()) {
      if (to.bits > from.bits) return builder_.CreateFPExt(value, type);
      // What is rounded twice, to f16 in the end, is not to be rounded once: by a function that targets do not have.
      return builder_.CreateArithmeticFence(builder_.CreateFPTrunc(value, type), type);
    }
    return float_to_integer(value, from, to, false);
  }
  if (to.is_float()) return is_from_unsigned ? builder_.CreateUIToFP(value, type) : builder_.CreateSIToFP(value, type);
  return is_from_unsigned ? builder_.CreateZExtOrTrunc(value, type) : builder_.CreateSExtOrTrunc(value, type);
}

// Truncated to zero; what does not fit becomes the nearest limit, a NaN 0.  LLVM's plain conversions leave both open
// (x86 makes other bytes of a NaN with AVX2 than with AVX-512), and its saturating ones take vectors apart on x86.
llvm::Value* KernelCodegen::float_to_integer(llvm::Value* value, DType from, DType to, bool is_within_limits) {
  llvm::Type* type = type_of(to);
  if (target_.architecture == "aarch64") {  // has instructions with just this meaning
    const auto id = to.is_unsigned_integer() ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat;
    return builder_.CreateIntrinsic(id, {type, value->getType()}, {value});
  }
  auto number = [&](double n) { return llvm::ConstantFP::get(value->getType(), n); };
  const double end = end_of(to);
  // The greatest float below the end is the greatest integer, too, where the float has digits for all integers.
  const double greatest = from.bits == 64 ? std::nextafter(end, 0.0) : std::nextafter(static_cast<float>(end), 0.0f);
  llvm::Value* kept = builder_.CreateSelect(builder_.CreateFCmpORD(value, value), value, number(0));
  if (!is_within_limits) {
    kept = emit_min_max(false, from, kept, number(least_of(to)), true, true);
    kept = emit_min_max(true, from, kept, number(greatest), true, true);
  }
  llvm::Value* whole = builder_.CreateCast(conversion_to(to), kept, type);
  if (is_within_limits || std::trunc(greatest) == end - 1) return whole;
  const auto limit =
      to.is_unsigned_integer() ? llvm::APInt::getMaxValue(to.bits) : llvm::APInt::getSignedMaxValue(to.bits);
  return builder_.CreateSelect(builder_.CreateFCmpOGE(value, number(end)), llvm::ConstantInt::get(type, limit), whole);
}

llvm::Value* KernelCodegen::half_to_float(llvm::Value* bits) {
  auto* single = bits->getType()->getWithNewType(builder_.getFloatTy());
  if (target_.has_f16_conversion)
    return builder_.CreateFPExt(builder_.CreateBitCast(bits, bits->getType()->getWithNewType(builder_.getHalfTy())),
                                single);
  auto* word = bits->getType()->getWithNewType(builder_.getInt32Ty());
  auto number = [&](int64_t value) { return constant(word, value); };
  llvm::Value* h = builder_.CreateZExt(bits, word);
  llvm::Value* sign = builder_.CreateShl(builder_.CreateAnd(h, number(0x8000)), number(16));
  llvm::Value* magnitude = builder_.CreateAnd(h, number(0x7fff));
  llvm::Value* shifted = builder_.CreateShl(magnitude, number(13));
  llvm::Value* normal = builder_.CreateAdd(shifted, number(int64_t{127 - 15} << 23));
  llvm::Value* special = builder_.CreateOr(shifted, number(0x7f800000));
  // Subnormals are whole multiples of 2^-24.  (Through an integer: f32 arithmetic may flush subnormals.)
  llvm::Value* small = builder_.CreateBitCast(
      builder_.CreateFMul(builder_.CreateUIToFP(magnitude, single), llvm::ConstantFP::get(single, 0x1p-24)), word);
  llvm::Value* result = builder_.CreateSelect(builder_.CreateICmpULT(magnitude, number(0x0400)), small, normal);
  result = builder_.CreateSelect(builder_.CreateICmpUGE(magnitude, number(0x7c00)), special, result);
  return builder_.CreateBitCast(builder_.CreateOr(result, sign), single);
}

llvm::Value* KernelCodegen::float_to_half(llvm::Value* value) {
  auto* half_bits = value->getType()->getWithNewType(builder_.getInt16Ty());
  if (target_.has_f16_conversion)
    return builder_.CreateBitCast(builder_.CreateFPTrunc(value, value->getType()->getWithNewType(builder_.getHalfTy())),
                                  half_bits);
  auto* word = value->getType()->getWithNewType(builder_.getInt32Ty());
  auto* single = value->getType();
  auto number = [&](int64_t n) { return constant(word, n); };
  llvm::Value* bits = builder_.CreateBitCast(value, word);
  llvm::Value* sign = builder_.CreateAnd(builder_.CreateLShr(bits, number(16)), number(0x8000));
  llvm::Value* magnitude = builder_.CreateAnd(bits, number(0x7fffffff));
  // Round to nearest even at bit 13; a carry into the exponent is what it should be, up to infinity.
  llvm::Value* odd = builder_.CreateAnd(builder_.CreateLShr(magnitude, number(13)), number(1));
  llvm::Value* rounded = builder_.CreateAdd(builder_.CreateAdd(magnitude, number(0xfff)), odd);
  llvm::Value* normal = builder_.CreateLShr(builder_.CreateSub(rounded, number(int64_t{127 - 15} << 23)), number(13));
  // Below 2^-14: adding 0.5 lets the float addition round to a multiple of 2^-24.
  llvm::Value* half = llvm::ConstantFP::get(single, 0.5);
  llvm::Value* small = builder_.CreateSub(
      builder_.CreateBitCast(builder_.CreateFAdd(builder_.CreateBitCast(magnitude, single), half), word),
      number(0x3f000000));
  llvm::Value* result = builder_.CreateSelect(builder_.CreateICmpULT(magnitude, number(0x38800000)), small, normal);
  llvm::Value* special =
      builder_.CreateSelect(builder_.CreateICmpUGT(magnitude, number(0x7f800000)), number(0x7e00), number(0x7c00));
  result = builder_.CreateSelect(builder_.CreateICmpUGE(magnitude, number(0x47800000)), special, result);
  return builder_.CreateTrunc(builder_.CreateOr(result, sign), half_bits);
}

llvm::Value* KernelCodegen::bfloat_to_float(llvm::Value* bits) {
  auto* word = bits->getType()->getWithNewType(builder_.getInt32Ty());
  llvm::Value* wide = builder_.CreateShl(builder_.CreateZExt(bits, word), constant(word, 16));
  return builder_.CreateBitCast(wide, bits->getType()->getWithNewType(builder_.getFloatTy()));
}

llvm::Value* KernelCodegen::float_to_bfloat(llvm::Value* value) {
  // Cores with products of bf16 have the conversion too.
  if (target_.find_instruction(Intrinsic::dot_bf16)) {
    return builder_.CreateBitCast(
        builder_.CreateFPTrunc(value, value->getType()->getWithNewType(builder_.getBFloatTy())),
        value->getType()->getWithNewType(builder_.getInt16Ty()));
  }
  auto* word = value->getType()->getWithNewType(builder_.getInt32Ty());
  llvm::Value* bits = builder_.CreateBitCast(value, word);
  llvm::Value* odd = builder_.CreateAnd(builder_.CreateLShr(bits, constant(word, 16)), constant(word, 1));
  llvm::Value* rounded = builder_.CreateAdd(builder_.CreateAdd(bits, constant(word, 0x7fff)), odd);
  llvm::Value* quiet = builder_.CreateOr(bits, constant(word, 0x400000));  // a NaN stays one
  llvm::Value* result = builder_.CreateSelect(builder_.CreateFCmpUNO(value, value), quiet, rounded);
  return builder_.CreateTrunc(builder_.CreateLShr(result, constant(word, 16)),
                              value->getType()->getWithNewType(builder_.getInt16Ty()));
}

}  // namespace tw
