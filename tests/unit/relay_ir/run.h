// Graphs by the oracle, and what tests of operators compare with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <vector>

#include "relay_ir/evaluate.h"
#include "relay_ir/graph.h"
#include "relay_ir/op.h"

namespace tw::relay::test {

using relay::evaluate;
using relay::evaluate_values;

// What has examples: control flow has graphs of its own (control_test.cpp).
inline std::vector<const OpDef*> ops_of_arrays() {
  std::vector<const OpDef*> ops;
  std::copy_if(all_ops().begin(), all_ops().end(), std::back_inserter(ops),
               [](const OpDef* op) { return op->regions == 0 && !op->reads_number && !op->is_on_host; });
  return ops;
}

// f32, normally distributed.
inline NDArray random_array(const Shape& shape, uint32_t seed, double deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  NDArray array(f32, shape);
  for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, deviation * normal(random));
  return array;
}

inline double largest_magnitude(const NDArray& array) {
  double largest = 0;
  for (int64_t i = 0; i < array.size(); ++i) largest = std::max(largest, std::abs(array.get_float(i)));
  return largest;
}

}  // namespace tw::relay::test
