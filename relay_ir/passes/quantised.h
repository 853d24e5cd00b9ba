// Quantised data as graphs have it: (codes - zero point) · scale, as DequantizeLinear is imported.  Codes are integers,
// or floats of 8 bits, which have no zero point.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "relay_ir/graph.h"
#include "targets/target.h"

namespace tw::relay {

struct Quantised {
  ValueId codes = no_value, scale = no_value;  // of at most 8 bits; of f32, no_value: 1
  ValueId zero_point = no_value;               // of i32; no_value: 0
};

// What a value of the copy is made of, where it is dequantised:
//   multiply(cast(subtract(cast(codes): i32, zero point)): f32, scale), or multiply(cast(codes): f32, scale) of floats
// without what a scale of 1 or a zero point of 0 leaves out.
std::optional<Quantised> find_quantised(GraphCopy& copy, ValueId now);

// Whether scale and zero point are one number each.
bool has_one_scale(const Graph& graph, const Quantised& x);

// Of integers of so many bits; the least and the largest number of floats of 8 bits.
std::pair<int64_t, int64_t> limits_of_codes(DType codes);

// A constant of one number, of rank 0.
ValueId add_number(Graph& graph, std::string name, int64_t number, DType dtype = i32);

// The types of two factors, of 8 bits, in which the target multiplies integers of these: tensor cores any, dot products
// of CPUs i8 as the second, and as the first u8 (AVX512_VNNI), i8 (Armv8.2) or either.
std::pair<DType, DType> factors_for(DType data, DType weights, const Target& target);
// What is to be added to codes of the other sign: -128 where they become i8, 128 where they become u8.
int64_t sign_shift(DType to_type);
// u8 or i8, as the other of these.
ValueId with_other_sign(GraphCopy& copy, const Node& node, ValueId codes);

}  // namespace tw::relay
