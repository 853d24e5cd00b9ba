// Graphs by the oracle, and what tests of operators compare with it.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "relay_ir/graph.h"
#include "relay_ir/op.h"

namespace tw::relay::test {

// Every value of the graph, each node by the oracle; undefined where nothing is computed.
inline std::vector<NDArray> evaluate_values(const Graph& graph, const std::vector<NDArray>& inputs) {
  std::vector<NDArray> values(graph.values.size());
  for (size_t id = 0; id < values.size(); ++id) {
    if (graph.values[id].constant) values[id] = *graph.values[id].constant;
  }
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  for (const Node& node : graph.nodes) {
    std::vector<NDArray> arguments;
    for (const ValueId id : node.inputs) arguments.push_back(id == no_value ? NDArray() : values[id]);
    const auto results = evaluate_op(*node.op, node.attributes, arguments);
    for (size_t i = 0; i < results.size(); ++i) values[node.outputs[i]] = results[i];
  }
  return values;
}

// The graph's outputs.
inline std::vector<NDArray> evaluate(const Graph& graph, const std::vector<NDArray>& inputs) {
  const std::vector<NDArray> values = evaluate_values(graph, inputs);
  std::vector<NDArray> outputs;
  for (const ValueId id : graph.outputs) outputs.push_back(values[id]);
  return outputs;
}

// f32, normally distributed.
inline NDArray random_array(const Shape& shape, uint32_t seed, double deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  NDArray array(f32, shape);
  for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, deviation * normal(random));
  return array;
}

}  // namespace tw::relay::test
