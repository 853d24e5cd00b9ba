// Conversions of the floats of 8 bits and fewer (runtime/dtype.h) by arithmetic on integers, which every target
// vectorises.
#pragma once

#include "tensor_ir/ir.h"

namespace tw {

// The number that a byte codes, in f32.
Expr decoded_minifloat(const Expr& code, DType format);
// The code of the nearest number to one in f32, ties to even; what is larger than the format's largest number becomes
// what the format has for it.
Expr encoded_minifloat(const Expr& x, DType format);

}  // namespace tw
