// A Func and its default schedule by the oracle.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "schedule/layout.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/sample_funcs.h"

namespace tw::test {

// The array in the layouts that the trace gives to the buffer called `name`.
inline NDArray as_scheduled(NDArray array, const Trace& trace, const std::string& name) {
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.primitive != "transform_layout") continue;
    if (std::get<std::string>(instruction.arguments.at(0).value) != name) continue;
    const IndexMap map = parse_index_map(std::get<std::string>(instruction.arguments.at(1).value));
    std::vector<Expr> logical;
    for (const int64_t extent : array.shape()) logical.emplace_back(extent);
    Shape physical;
    for (const Expr& extent : physical_shape(map, logical)) physical.push_back(as_int(extent).value());
    array = apply_layout(array, map, physical);
  }
  return array;
}

inline void expect_same_meaning(const Func& func, const Target& target, const Decisions& decisions = {}) {
  SCOPED_TRACE(func.name + " on a " + target.name);
  const Schedule schedule = cpu::decided_schedule(func, target, decisions);
  const std::vector<NDArray> inputs = random_buffers(func, 3);
  std::vector<NDArray> expected, actual;
  for (size_t i = 0; i < inputs.size(); ++i) {
    expected.push_back(inputs[i].clone());
    actual.push_back(as_scheduled(inputs[i].clone(), schedule.trace(), func.buffers[i]->name));
  }
  interpret(func, expected);
  interpret(schedule.func(), actual);
  EXPECT_LT(largest_difference(actual.back(), expected.back()), 1e-5) << to_text(schedule.func());
}

// At sizes of the open dimensions: arrays for the Func and, in the layouts of its schedule, for that.
struct OpenArrays {
  std::vector<NDArray> expected, actual;
  InterpretOptions options;
};
inline OpenArrays arrays_at(const Func& func, const Trace& trace, const std::map<Var, int64_t>& sizes) {
  OpenArrays arrays;
  Substitution values;
  for (const auto& [var, size] : sizes) arrays.options.parameters[var.name()] = size, values[var] = Expr(size);
  for (const Buffer& buffer : func.buffers) {
    Shape shape;
    for (const Expr& extent : buffer->shape) shape.push_back(*as_int(simplify(substitute(extent, values))));
    NDArray array(buffer->dtype, shape);
    for (int64_t e = 0; e < array.size(); ++e) array.set_float(e, static_cast<double>(e % 11) - 5);
    arrays.actual.push_back(as_scheduled(array.clone(), trace, buffer->name));
    arrays.expected.push_back(std::move(array));
  }
  return arrays;
}

inline void expect_same_meaning_at(const Func& func, const Target& target, const std::map<Var, int64_t>& sizes,
                                   const Decisions& decisions = {}) {
  const Schedule schedule = cpu::decided_schedule(func, target, decisions);
  SCOPED_TRACE(func.name + " on a " + target.name + " of " + std::to_string(sizes.begin()->second));
  const auto [expected, actual, options] = arrays_at(func, schedule.trace(), sizes);
  interpret(func, expected, options);
  interpret(schedule.func(), actual, options);
  EXPECT_LT(largest_difference(actual.back(), expected.back()), 1e-5) << to_text(schedule.func());
}

}  // namespace tw::test
