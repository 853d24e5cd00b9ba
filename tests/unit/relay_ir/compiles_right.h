// Graphs through the whole compiler beside the oracle, which evaluates them node by node.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "relay_ir/compile/compile.h"
#include "relay_ir/text/parser.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay::test {

inline NDArray random_array(const TensorType& type, std::mt19937& random) {
  NDArray array(type.dtype, *static_shape(type));
  std::uniform_real_distribution<double> distribution(-1, 1);
  for (int64_t i = 0; i < array.size(); ++i) {
    if (type.dtype.is_float()) {
      array.set_float(i, distribution(random));
    } else {
      array.set_int(i, static_cast<int64_t>(random() % 7));
    }
  }
  return array;
}

inline void expect_close(const NDArray& actual, const NDArray& expected, const std::string& what) {
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (actual.dtype().is_float()) {
      const double e = expected.get_float(i);
      ASSERT_NEAR(actual.get_float(i), e, 1e-5 * (1 + std::abs(e))) << what << ", element " << i;
    } else {
      ASSERT_EQ(actual.get_int(i), expected.get_int(i)) << what << ", element " << i;
    }
  }
}

inline void expect_compiles_right(const Graph& graph) {
  std::mt19937 random(7);
  std::vector<NDArray> inputs;
  for (const ValueId id : graph.inputs) inputs.push_back(random_array(graph.values[id].type, random));
  const std::vector<NDArray> expected = evaluate(graph, inputs);
  const Target host = parse_target("cpu");
  CompileOptions as_written;
  as_written.schedule = [](const Func& func, const Target&) { return Schedule(func); };
  for (const CompileOptions& options : {as_written, CompileOptions()}) {
    Executable executable = compile(graph, host, options);
    for (int round = 0; round < 2; ++round) {
      const auto outputs = executable.run(inputs);
      ASSERT_EQ(outputs.size(), expected.size());
      for (size_t i = 0; i < outputs.size(); ++i) {
        expect_close(outputs[i], expected[i],
                     graph.output_name(i) + (options.schedule ? ", as written" : ", scheduled"));
      }
    }
  }
}

inline void expect_compiles_right(const std::string& text) {
  expect_compiles_right(parse_graph(text));
}

// With random numbers in place of the text's constants: weights that are all alike hide where they are read from.
// A weight's numbers shrink with how many of them make one result, so that results stay near one.
inline void expect_compiles_right_with_random_constants(const std::string& text) {
  Graph graph = parse_graph(text);
  std::mt19937 random(11);
  for (Value& value : graph.values) {
    if (!value.constant || !value.type.dtype.is_float() || value.type.rank() == 0) continue;
    NDArray array = random_array(value.type, random);
    const double scale = std::sqrt(static_cast<double>(array.shape()[0]) / static_cast<double>(array.size()));
    for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, array.get_float(i) * scale);
    value.constant = array;
  }
  expect_compiles_right(graph);
}

}  // namespace tw::relay::test
