// A whole network compiled for CUDA, run in the emulator (tests/cuda_emulator) and compared with the CPU's answer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "relay_ir/compile/compile.h"
#include "relay_ir/text/parser.h"
#include "tests/unit/sample_funcs.h"

namespace tw::relay {
namespace {

constexpr const char* network_text = R"(
graph convolutional (x: f32[1, 3, 20, 20]) {
  w1 = constant [1]: f32[16, 3, 3, 3]
  b1 = constant [1]: f32[16, 1, 1]
  w2 = constant [1]: f32[32, 16, 1, 1]
  wd = constant [1]: f32[32, 1, 3, 3]
  wm = constant [1]: f32[32, 10]
  bm = constant [1]: f32[10]
  c1 = conv(x, w1) {pads = [1, 1, 1, 1], `strides` = [2, 2]}
  a1 = add(c1, b1)
  r1 = relu(a1)
  p1 = max_pool(r1) {kernel = [3, 3], `strides` = [2, 2], dilations = [1, 1], pads = [1, 1, 1, 1]}
  c2 = conv(p1, w2)
  d = conv(c2, wd) {pads = [1, 1, 1, 1], groups = 32}
  s = add(d, c2)
  g = sigmoid(s)
  m = reduce_mean(g) {axes = [2, 3], keepdims = 0}
  f = matmul(m, wm)
  h = add(f, bm)
  y = softmax(h) {axis = 1}
  return y, s
}
)";

void fill(NDArray& array, std::mt19937_64& random) {
  std::uniform_real_distribution<double> values(-0.5, 0.5);
  for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, values(random));
}

TEST(RelayCuda, ANetworkGivesTheCpusAnswer) {
  setenv("CUDA_HOME", TW_CUDA_EMULATOR, 1);  // before what this machine has
  Graph graph = parse_graph(network_text);
  std::mt19937_64 random(3);
  for (Value& value : graph.values)
    if (value.constant) fill(*value.constant, random);
  NDArray input(f32, {1, 3, 20, 20});
  fill(input, random);
  const std::vector<NDArray> expected = compile(graph, parse_target("cpu")).run({input});
  Executable executable = compile(graph, parse_target("cuda:sm_90"));
  EXPECT_EQ(executable.requirements().architecture, "cuda");
  const std::vector<NDArray> outputs = executable.run({input});
  ASSERT_EQ(outputs.size(), expected.size());
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_LT(tw::test::largest_difference(outputs[i], expected[i]), 1e-4);
}

}  // namespace
}  // namespace tw::relay
