// Winograd's transforms of weights, against their definition; and which convolutions take which tile.
#include <gtest/gtest.h>

#include <random>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/winograd.h"
#include "targets/target.h"

namespace tw::relay {
namespace {

TEST(Winograd, WeightsAreTransformedAsDefined) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> distribution(-1, 1);
  for (const int64_t tile : {2, 4}) {
    for (const int64_t outputs : {1, 16, 35}) {
      const int64_t inputs = 3;
      NDArray weight(f32, {outputs, inputs, 3, 3});
      for (int64_t i = 0; i < weight.size(); ++i) weight.set_float(i, distribution(random));
      const WinogradTransform& transform = winograd_transform(tile);
      const NDArray result = winograd_weight(weight, transform);
      const int size = transform.size();
      ASSERT_EQ(result.shape(), (Shape{size * size, inputs, outputs}));
      for (int64_t o = 0; o < outputs; ++o) {
        for (int64_t i = 0; i < inputs; ++i) {
          for (int r = 0; r < size; ++r) {
            for (int c = 0; c < size; ++c) {
              double expected = 0;
              for (int a = 0; a < 3; ++a)
                for (int b = 0; b < 3; ++b)
                  expected += transform.weight[r][a] * weight.get_float((o * inputs + i) * 9 + a * 3 + b) *
                              transform.weight[c][b];
              EXPECT_NEAR(result.get_float(((r * size + c) * inputs + i) * outputs + o), expected, 1e-7);
            }
          }
        }
      }
    }
  }
}

// The tile that choose_winograd takes for a 3×3 convolution that keeps channels and map; 0: none, it stays direct.
int64_t chosen_tile(const Target& target, int64_t channels, int64_t size, int64_t batch = 1) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  NDArray weight(f32, {channels, channels, 3, 3});
  auto* w = static_cast<float*>(weight.data());
  for (int64_t i = 0; i < weight.size(); ++i) w[i] = normal(random);
  Graph graph;
  graph.inputs = {graph.add_value("x", TensorType{f32, {Expr(batch), Expr(channels), Expr(size), Expr(size)}})};
  const ValueId constant = graph.add_constant("w", weight);
  NodeAttributes attributes;
  attributes.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  graph.outputs = graph.add_node("conv", {graph.inputs[0], constant}, attributes, "c");
  const Graph chosen = choose_winograd(graph, target);
  const Node& node = chosen.nodes.at(0);
  return node.op->name == "winograd_conv" ? node.attributes.get_int("tile") : 0;
}

Target two_cores() {
  Target target = parse_target("x86:avx512");
  target.threads = 2;
  return target;
}

TEST(Winograd, FewWeightsForALargeMapTakeTheLargeTile) {
  EXPECT_EQ(chosen_tile(two_cores(), 64, 56), 4);
  EXPECT_EQ(chosen_tile(two_cores(), 128, 28), 4);
}

// Their 36/9-fold weights would come from memory for longer than all products take.
TEST(Winograd, ManyWeightsForASmallMapStaySmall) {
  EXPECT_EQ(chosen_tile(two_cores(), 256, 14), 2);
  EXPECT_EQ(chosen_tile(two_cores(), 512, 7), 0);
}

TEST(Winograd, ManyImagesShareTheWeights) {
  EXPECT_EQ(chosen_tile(two_cores(), 256, 14, 16), 4);
}

// More cores share one memory: what each of them may read for a product gets less.
TEST(Winograd, ManyCoresShareMemory) {
  Target many = two_cores();
  many.threads = 64;
  EXPECT_EQ(chosen_tile(many, 256, 14), 0);
}

}  // namespace
}  // namespace tw::relay
