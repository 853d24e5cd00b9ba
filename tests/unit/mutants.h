// Programs that were changed: whether somebody finds out.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tensor_ir/interp/interp.h"
#include "tensor_ir/text/parser.h"
#include "tests/unit/sample_funcs.h"

namespace tw::test {

// Whether the program computes something else than it should, or is refused, in one of several orders of its threads.
inline bool is_caught(const std::string& changed, const Func& original, double near) {
  Func program;
  try {
    program = parse_func(changed);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what() << changed;
    return true;
  }
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<NDArray> expected = random_buffers(original, seed), actual;
    for (const NDArray& array : expected) actual.push_back(array.clone());
    interpret(original, expected);
    try {
      interpret(program, actual, {.parameters = {}, .seed = seed});
    } catch (const Error&) {
      return true;
    }
    if (largest_difference(actual.back(), expected.back()) > near) return true;
  }
  return false;
}

}  // namespace tw::test
