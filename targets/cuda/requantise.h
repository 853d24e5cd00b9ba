// What quantised products do with their sums: round_even(sum · factor) + zero point in f64, within limits, as a byte;
// and what floats are rounded to bytes by: round_even(x) + zero point within limits, in f32.
//
// GPUs have few units for f64, some but one for 64 of f32.  f32 tells the same byte unless the product is nearly
// halfway between two integers (tw_requantise in prelude.h).  Units that convert are a quarter of those that add, and
// what adds rounds, too (tw_quantise).
#pragma once

#include <optional>

#include "tensor_ir/ir.h"

namespace tw::cuda {

struct Limits {
  double zero_point, low, high;
};

struct Requantised {
  Expr sum, factor;  // of i32 and of f64
  Limits to;
};

struct QuantisedFloat {
  Expr value;  // of f32
  Limits to;
};

// Nothing: the conversion is another.
std::optional<Requantised> match_requantised(const Cast& conversion);
std::optional<QuantisedFloat> match_quantised(const Cast& conversion);

}  // namespace tw::cuda
