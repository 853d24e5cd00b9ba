// What rules of quantised data share: y = saturate(round(x / scale) + zero point), and back.
#pragma once

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {

struct Quantized {
  ValueId codes, scale, zero_point = no_value;  // scale and zero point: one for all, or along axis 1
};

// (codes - zero point) · scale as f32; the difference of integers is taken in i32.
ValueId emit_dequantized(Context& c, const Quantized& x);
// …of a scale and a zero point (or none) that broadcast, as `to`.
ValueId emit_dequantized(Context& c, ValueId codes, ValueId scale, ValueId zero_point, DType to);
// As codes of type `to`.
ValueId emit_quantized(Context& c, ValueId x, ValueId scale, ValueId zero_point, DType to);
// The range of x, an f32, widened to hold 0, onto 0 … 255.
Quantized emit_quantized_dynamically(Context& c, ValueId x);

// Σ (a - zero point of a) · (b - zero point of b) in i32, by numpy's rules.
ValueId emit_integer_matmul(Context& c, ValueId a, ValueId zero_a, ValueId b, ValueId zero_b);
// A scale or zero point of one element; refuses the node where there are several.
ValueId scalar_or_refuse(Context& c, ValueId p);

}  // namespace tw::frontends::onnx
