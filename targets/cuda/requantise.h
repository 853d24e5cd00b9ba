// What quantised products do with their sums: round_even(sum · factor) + zero point in f64, within limits, as a byte.
//
// GPUs have few units for f64, some but one for 64 of f32.  f32 tells the same byte unless the product is nearly
// halfway between two integers (tw_requantise in prelude.h).
#pragma once

#include <optional>

#include "tensor_ir/ir.h"

namespace tw::cuda {

struct Requantised {
  Expr sum, factor;  // of i32 and of f64
  double zero_point, low, high;
};

// Nothing: the conversion is another.
std::optional<Requantised> match_requantised(const Cast& conversion);

}  // namespace tw::cuda
