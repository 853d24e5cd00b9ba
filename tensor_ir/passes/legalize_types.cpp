// Arithmetic of 16-bit floats is done in f32 and rounded.
//
//   C[i] = A[i] * B[i] + exp(A[i])   (f16)   ⇒   C[i] = f16(f32(f16(f32(A[i]) * f32(B[i]))) + f32(f16(exp(f32(A[i])))))
//
// That is what these types mean (ir.h); for +, -, *, / and sqrt one rounding of the f32 result is the correctly rounded
// one. Loads, stores, selections and conversions keep the 16 bits as they are.
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"

namespace tw {
namespace {

bool is_small(DType dtype) {
  return dtype.is_float() && dtype.bits == 16;
}

Expr widened(const Expr& e) {
  return is_small(e.dtype()) ? cast(f32.with_lanes(e.dtype().lanes), e) : e;
}

bool moves_bits(Intrinsic intrinsic) {
  return intrinsic == Intrinsic::reinterpret || intrinsic == Intrinsic::lane_slice ||
         intrinsic == Intrinsic::lane_concat || intrinsic == Intrinsic::word_at;
}

DType wide(DType dtype) {
  return is_small(dtype) ? f32.with_lanes(dtype.lanes) : dtype;
}

}  // namespace

Func legalize_types(const Func& f) {
  Func result = f;
  result.body = rewrite_bottom_up(
      f.body,
      [](const Binary& e) -> Expr {
        if (!is_small(e.a.dtype())) return {};
        return cast(e.dtype, make_expr<Binary>(wide(e.dtype), e.op, widened(e.a), widened(e.b)));
      },
      [](const Unary& e) -> Expr {
        if (!is_small(e.dtype)) return {};
        return cast(e.dtype, make_expr<Unary>(wide(e.dtype), e.op, widened(e.a)));
      },
      [](const VectorReduce& e) -> Expr {
        if (!is_small(e.dtype)) return {};
        return cast(e.dtype, make_expr<VectorReduce>(wide(e.dtype), e.op, widened(e.value)));
      },
      [](const Call& e) -> Expr {
        if (moves_bits(e.intrinsic) || e.arguments.empty() || !is_small(e.arguments[0].dtype())) return {};
        if (e.intrinsic == Intrinsic::prefetch) return {};
        std::vector<Expr> arguments;
        for (const Expr& argument : e.arguments) arguments.push_back(widened(argument));
        return cast(e.dtype, make_expr<Call>(wide(e.dtype), e.intrinsic, std::move(arguments)));
      });
  return result;
}

}  // namespace tw
