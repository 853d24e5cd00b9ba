// Which values are stored in 16 bits.
#include <gtest/gtest.h>

#include "relay_ir/pass.h"
#include "tensor_ir/dimension.h"

namespace tw::relay {
namespace {

// Maps of open size count as usual ones: their products are of 16-bit operands as those of known sizes are.
TEST(NarrowValues, OpenMapsAreMultipliedIn16Bits) {
  const auto lowered = [](const Expr& height, const Expr& width) {
    Graph graph;
    graph.inputs = {graph.add_value("x", TensorType{f32, {Expr(1), Expr(64), height, width}})};
    ValueId value = graph.inputs[0];
    for (const char* name : {"a", "b"}) {
      const ValueId weight = graph.add_constant(name, NDArray(f32, {64, 64, 1, 1}));
      value = graph.add_node("relu", {graph.add_node("conv", {value, weight}, {}, name)[0]}, {}, name)[0];
    }
    graph.outputs = {value};
    return lower_precision(graph, {parse_target("x86:amx"), Precision::bf16});
  };
  const auto operands = [](const Graph& graph) {
    std::vector<DType> types;
    for (const Node& node : graph.nodes)
      if (node.op->name == "conv")
        for (const ValueId id : node.inputs) types.push_back(graph.values[id].type.dtype);
    return types;
  };
  const auto of_open = operands(lowered(dimension("h", {1, 512}, "", 56), dimension("w", {1, 512}, "", 56)));
  EXPECT_EQ(of_open, std::vector<DType>(4, bf16));
  EXPECT_EQ(of_open, operands(lowered(Expr(56), Expr(56))));
}

}  // namespace
}  // namespace tw::relay
