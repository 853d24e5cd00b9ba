// Scheduled Funcs that tests of code generation run on every target, with arrays and the oracle's answer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/ndarray.h"
#include "targets/target.h"

namespace tw::test {

struct KernelCase {
  std::string name;  // a word, also a symbol
  Func func;         // scheduled
  std::vector<NDArray> inputs;
  std::vector<NDArray> expected;                   // of the outputs
  double tolerance = 0;                            // of the largest_difference
  std::map<std::string, int64_t> parameters = {};  // values of func.parameters
};

// The sample Funcs as they are (`is_scheduled` false) or by the target's default schedule.
std::vector<KernelCase> sample_cases(const Target& target, bool is_scheduled);
// Random elementwise expressions of every element type, of odd extents, vectorized to odd and even widths.
std::vector<KernelCase> elementwise_cases(const Target& target);
// One Func for each conversion between element types.
std::vector<KernelCase> conversion_cases(const Target& target);
// Reductions over a vectorized loop, with each operation.
std::vector<KernelCase> lane_reduction_cases(const Target& target);
// Accesses of every stride, by loads and by stores, with and without tails.
std::vector<KernelCase> stride_cases(const Target& target);

// Axes in every order by the target's default schedule, in whole tiles and partial ones, alone and within arithmetic,
// and rows and pools; with stores through the caches and, as if there were none, past them.
std::vector<KernelCase> transposition_cases(const Target& target);

// Every function of mathematics, of each float type.
std::vector<KernelCase> math_cases(const Target& target);

// The target's instructions on vectors of every length, with and without a tail: to the bit.
std::vector<KernelCase> instruction_cases(const Target& target);
// Products of small elements by the default schedule, with rows, columns and batches of every remainder.
std::vector<KernelCase> small_element_cases(const Target& target);
std::vector<KernelCase> tile_cases(const Target& target);

// Array by array; the worst difference that exceeds the case's tolerance is the message, otherwise it is empty.
std::string compare(const KernelCase& kernel_case, const std::vector<NDArray>& outputs, const Target& target);

}  // namespace tw::test
