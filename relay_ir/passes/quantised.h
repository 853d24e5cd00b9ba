// Quantised data as graphs have it: (codes - zero point) · scale, as DequantizeLinear is imported.  Codes are integers,
// or floats of 8 bits, which have no zero point.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "relay_ir/graph.h"

namespace tw::relay {

struct Quantised {
  ValueId codes = no_value, scale = no_value;  // of at most 8 bits; of f32, no_value: 1
  ValueId zero_point = no_value;               // of i32; no_value: 0
};

// What a value of the copy is made of, where it is dequantised:
//   multiply(cast(subtract(cast(codes): i32, zero point)): f32, scale), or multiply(cast(codes): f32, scale) of floats
std::optional<Quantised> find_quantised(GraphCopy& copy, ValueId now);

// Whether scale and zero point are one number each.
bool has_one_scale(const Graph& graph, const Quantised& x);

// Of integers of so many bits; the least and the largest number of floats of 8 bits.
std::pair<int64_t, int64_t> limits_of_codes(DType codes);

}  // namespace tw::relay
