// Conversions of narrow element types, of which loops see bytes alone: integer arithmetic on codes, which every target
// vectorises.
#pragma once

#include "tensor_ir/ir.h"

namespace tw::relay {

// x is of type `from`, as loops see it, and so is the result of `to`.  Floats to minifloats round to nearest even; what
// is larger than their largest number becomes what the format has for it (runtime/dtype.h), f64 by way of f32.
Expr converted(const Expr& x, DType from, DType to);
// The same bits as another type of the same width.
Expr with_same_bits(const Expr& x, DType to);

}  // namespace tw::relay
