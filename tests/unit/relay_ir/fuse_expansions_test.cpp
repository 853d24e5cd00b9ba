// Inverted residual blocks as one kernel: which convolutions are asked about, and that both ways compute the same.
#include <gtest/gtest.h>

#include <random>

#include "relay_ir/compile/compile.h"
#include "relay_ir/pass.h"
#include "targets/target.h"
#include "tests/unit/relay_ir/run.h"
#include "tests/unit/sanitized.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

struct Sample {
  int64_t batch = 1, inputs = 16, channels = 32, height = 9, width = 11, window = 3, stride = 1;
  Ints pads = {1, 1, 1, 1};
  std::string activation = "relu6";  // "silu", ""
  bool has_bias = true;
};

NodeAttributes conv_attributes(const Ints& pads, int64_t stride, int64_t groups) {
  NodeAttributes attributes;
  attributes.set("pads", pads);
  attributes.set("strides", Ints{stride, stride});
  attributes.set("groups", groups);
  return attributes;
}

ValueId activated(Graph& graph, ValueId x, const Sample& s, uint32_t seed) {
  if (s.has_bias)
    x = graph.add_node("add", {x, graph.add_constant("bias", test::random_array({s.channels, 1, 1}, seed))})[0];
  if (s.activation == "relu6") {
    NodeAttributes attributes;
    attributes.set("low", 0.0);
    attributes.set("high", 6.0);
    return graph.add_node("clip", {x}, attributes)[0];
  }
  if (s.activation == "silu") return graph.add_node("multiply", {x, graph.add_node("sigmoid", {x})[0]})[0];
  return x;
}

// A convolution before, so that the expansion reads channels in blocks, and one behind.
Graph network(const Sample& s) {
  Graph graph;
  graph.inputs = {
      graph.add_value("x", TensorType{f32, {Expr(s.batch), Expr(s.inputs), Expr(s.height), Expr(s.width)}})};
  const auto weight = [&](const Shape& shape, uint32_t seed) {
    return graph.add_constant("w", test::random_array(shape, seed));
  };
  const ValueId before =
      graph.add_node("conv", {graph.inputs[0], weight({s.inputs, s.inputs, 1, 1}, 1)}, {}, "before")[0];
  const ValueId expanded = graph.add_node("conv", {before, weight({s.channels, s.inputs, 1, 1}, 2)}, {}, "expand")[0];
  const ValueId depthwise =
      graph.add_node("conv", {activated(graph, expanded, s, 5), weight({s.channels, 1, s.window, s.window}, 3)},
                     conv_attributes(s.pads, s.stride, s.channels), "depthwise")[0];
  graph.outputs =
      graph.add_node("conv", {activated(graph, depthwise, s, 6), weight({s.inputs, s.channels, 1, 1}, 4)}, {}, "after");
  return graph;
}

int count_asked(const Graph& graph, const Target& target) {
  int asked = 0;
  const DecisionSource count = [&](const GraphDecision& decision) {
    ++asked;
    return decision.asked.candidates[decision.asked.analytic].value;
  };
  fuse_expansions(graph, {.target = target, .source = count});
  return asked;
}

TEST(FuseExpansions, ComputesTheSame) {
  std::vector<Sample> samples(1);
  for (const int64_t stride : {1, 2}) {
    for (const int64_t window : {3, 5}) {
      for (const char* activation : {"relu6", "silu", ""}) {
        const int64_t pad = window / 2;
        samples.push_back({.window = window, .stride = stride, .pads = {pad, pad, pad, pad}, .activation = activation});
      }
    }
  }
  samples.push_back({.batch = 2, .inputs = 24, .channels = 48, .height = 14, .width = 13, .stride = 2});
  samples.push_back({.channels = 40, .height = 12, .width = 7});
  samples.push_back({.height = 16, .width = 16, .stride = 2, .pads = {0, 0, 1, 1}});
  samples.push_back({.height = 10, .width = 21, .pads = {2, 0, 0, 1}});
  samples.push_back({.pads = {0, 0, 0, 0}});
  samples.push_back({.activation = "", .has_bias = false});
  samples.push_back({.inputs = 40, .channels = 64, .height = 31, .width = 30});
  for (size_t i = 0; i < samples.size(); i += tw::test::is_sanitized ? 3 : 1) {
    const Sample& s = samples[i];
    const Graph graph = network(s);
    const NDArray x = test::random_array({s.batch, s.inputs, s.height, s.width}, 7);
    const NDArray expected = test::evaluate(graph, {x})[0];
    const double largest = test::largest_magnitude(expected);
    for (const int threads : {1, 2}) {
      for (const int64_t choice : {0, 1}) {
        CompileOptions options;
        options.threads = threads, options.constraints = {{"winograd", {0}}};
        int asked = 0;
        options.decide = [&](const GraphDecision& decision) {
          ++asked;
          EXPECT_EQ(decision.node, "expand");
          EXPECT_EQ(decision.asked.name, "fuse_expansion");
          for (const Candidate& candidate : decision.asked.candidates) EXPECT_GT(candidate.cost, 0);
          return Choice{choice};
        };
        const Target target = parse_target("cpu");
        SCOPED_TRACE("sample " + std::to_string(i) + ", choice " + std::to_string(choice));
        CompileReport report;
        Executable executable = compile(graph, target, options, &report);
        EXPECT_EQ(asked, s.channels % target.lanes(f32) == 0 ? 1 : 0);
        for (const std::string& loop : report.serial_loops) EXPECT_FALSE(loop.starts_with("expand")) << loop;
        if (asked && choice == 1) EXPECT_EQ(report.groups, 3) << "sample " << i;
        const NDArray result = executable.run({x})[0];
        for (int64_t e = 0; e < result.size(); ++e)
          ASSERT_NEAR(result.get_float(e), expected.get_float(e), 1e-5 * largest) << "sample " << i << ", " << choice;
      }
    }
  }
}

// What would go through the common cache is fused; what stays in the second caches is not.
TEST(FuseExpansions, IsChosenWhereTheChannelsLeaveTheCaches) {
  Target target = parse_target("x86:avx512");
  target.threads = 2, target.l2.bytes = 2 << 20;
  const auto chosen = [&](int64_t inputs, int64_t channels, int64_t size) {
    Choice result;
    const DecisionSource note = [&](const GraphDecision& decision) {
      return result = decision.asked.candidates[decision.asked.analytic].value;
    };
    fuse_expansions(network({.inputs = inputs, .channels = channels, .height = size, .width = size}),
                    {.target = target, .source = note});
    return result.at(0);
  };
  EXPECT_EQ(chosen(16, 96, 112), 1);
  EXPECT_EQ(chosen(32, 192, 28), 0);
}

TEST(FuseExpansions, NearMissesAreNotAsked) {
  const Target target = parse_target("x86:avx2");
  EXPECT_EQ(count_asked(network({}), target), 1);
  EXPECT_EQ(count_asked(network({.channels = 36}), target), 0);  // no whole vectors
  const auto with = [](const std::function<void(Graph&)>& change) {
    Graph graph = network({.activation = "", .has_bias = false});
    change(graph);
    return graph;
  };
  const auto node = [](Graph& graph, const std::string& name) -> Node& {
    return *std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.name == name; });
  };
  EXPECT_EQ(count_asked(with([](Graph&) {}), target), 1);
  // The channels are read elsewhere, too.
  EXPECT_EQ(count_asked(with([&](Graph& g) { g.outputs.push_back(node(g, "expand").outputs[0]); }), target), 0);
  EXPECT_EQ(
      count_asked(with([&](Graph& g) { g.outputs.push_back(g.add_node("relu", {node(g, "expand").outputs[0]})[0]); }),
                  target),
      0);
}

// Convolutions before the depthwise one that make its channels in other ways.
TEST(FuseExpansions, OtherConvolutionsAreNotAsked) {
  const Target target = parse_target("x86:avx2");
  const auto asked = [&](const Shape& weight, const NodeAttributes& attributes, const Expr& batch = Expr(1),
                         const std::vector<Var>& symbols = {}) {
    Graph graph;
    graph.symbols = symbols;
    graph.inputs = {graph.add_value("x", TensorType{f32, {batch, Expr(16), Expr(9), Expr(9)}})};
    const ValueId made = graph.add_node(
        "conv", {graph.inputs[0], graph.add_constant("w", test::random_array(weight, 1))}, attributes)[0];
    graph.outputs = graph.add_node("conv", {made, graph.add_constant("f", test::random_array({32, 1, 3, 3}, 2))},
                                   conv_attributes({1, 1, 1, 1}, 1, 32));
    return count_asked(graph, target);
  };
  EXPECT_EQ(asked({32, 16, 1, 1}, {}), 1);
  EXPECT_EQ(asked({32, 16, 3, 3}, {}), 0);
  EXPECT_EQ(asked({32, 16, 1, 1}, conv_attributes({0, 0, 0, 0}, 2, 1)), 0);
  EXPECT_EQ(asked({32, 16, 1, 1}, conv_attributes({1, 0, 0, 0}, 1, 1)), 0);
  EXPECT_EQ(asked({32, 8, 1, 1}, conv_attributes({0, 0, 0, 0}, 1, 2)), 0);
  const Var batch("n");
  EXPECT_EQ(asked({32, 16, 1, 1}, {}, batch, {batch}), 0);
}

}  // namespace
}  // namespace tw::relay
