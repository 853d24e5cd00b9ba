// Winograd's transforms of weights, against their definition; and which convolutions take which tile.
#include "relay_ir/winograd.h"

#include <gtest/gtest.h>

#include <random>

#include "relay_ir/compile/compile.h"
#include "relay_ir/compile/group.h"
#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "targets/lower.h"
#include "targets/target.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/relay_ir/run.h"
#include "tests/unit/sanitized.h"

namespace tw::relay {
namespace {

TEST(Winograd, WeightsAreTransformedAsDefined) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> distribution(-1, 1);
  for (const auto& [tile, stride] : {std::pair{2, 1}, {4, 1}, {2, 2}, {4, 2}}) {
    for (const int64_t outputs : {1, 16, 35}) {
      const int64_t inputs = 3;
      NDArray weight(f32, {outputs, inputs, 3, 3});
      for (int64_t i = 0; i < weight.size(); ++i) weight.set_float(i, distribution(random));
      const WinogradTransform& transform = winograd_transform(tile, stride);
      const NDArray result = winograd_weight(weight, winograd_filter(tile, stride, 2));
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
              EXPECT_NEAR(result.get_float(((r * size + c) * inputs + i) * outputs + o), expected,
                          1e-7 + 1e-7 * std::abs(expected));
            }
          }
        }
      }
    }
  }
}

// Of windows along one axis, wherever that is, each filter by itself.
TEST(Winograd, WeightsOfOneAxisAreTransformedAlongIt) {
  for (const int64_t tile : {2, 4}) {
    const WinogradFilter filter = winograd_filter(tile, 1, 1);
    for (const Shape& shape : {Shape{2, 3, 3}, {2, 3, 1, 3}, {2, 3, 3, 1}, {2, 3, 3, 1, 1}}) {
      NDArray weight(f32, shape);
      for (int64_t i = 0; i < weight.size(); ++i) weight.set_float(i, static_cast<double>(i % 7) - 3);
      const NDArray result = winograd_weight(weight, filter);
      ASSERT_EQ(result.shape(), (Shape{tile + 2, 3, 2}));
      for (int64_t p = 0; p < tile + 2; ++p)
        for (int64_t i = 0; i < 6; ++i) {
          double expected = 0;
          for (int64_t k = 0; k < 3; ++k)
            expected += filter.columns.weight[p][k] * weight.get_float((i % 2 * 3 + i / 2) * 3 + k);
          EXPECT_NEAR(result.get_float(p * 6 + i), expected, 1e-6);
        }
    }
  }
}

TEST(Winograd, FiltersTheLastAxesOfThree) {
  using Axes = std::vector<size_t>;
  EXPECT_EQ(filtered_axes({3, 3}), (Axes{0, 1}));
  EXPECT_EQ(filtered_axes({3, 3, 3}), (Axes{1, 2}));
  EXPECT_EQ(filtered_axes({3, 1, 1}), (Axes{0}));
  EXPECT_EQ(filtered_axes({5, 1, 3}), (Axes{2}));
  EXPECT_EQ(filtered_axes({5, 1}), Axes());
}

// The transformed weights of a window's slices come one slice after the other.
TEST(Winograd, WeightsOfSlicesFollowEachOther) {
  const int64_t outputs = 2, inputs = 3, slices = 2;
  NDArray weight(f32, {outputs, inputs, slices, 3, 3});
  for (int64_t i = 0; i < weight.size(); ++i) weight.set_float(i, static_cast<double>(i % 7) - 3);
  const WinogradFilter filter = winograd_filter(2, 1, 2);
  const NDArray all = winograd_weight(weight, filter);
  const int64_t points = filter.points();
  ASSERT_EQ(all.shape(), (Shape{points, slices * inputs, outputs}));
  for (int64_t slice = 0; slice < slices; ++slice) {
    NDArray own(f32, {outputs, inputs, 3, 3});
    for (int64_t i = 0; i < own.size(); ++i) own.set_float(i, weight.get_float((i / 9 * slices + slice) * 9 + i % 9));
    const NDArray transformed = winograd_weight(own, filter);
    for (int64_t p = 0; p < points; ++p)
      for (int64_t i = 0; i < inputs * outputs; ++i)
        EXPECT_EQ(all.get_float((p * slices + slice) * inputs * outputs + i),
                  transformed.get_float(p * inputs * outputs + i));
  }
}

// The tile that choose_winograd takes for a 3×3 convolution that keeps channels and map; 0: none, it stays direct.
int64_t chosen_tile(const Target& target, int64_t channels, int64_t size, int64_t batch = 1,
                    Precision precision = Precision::f32) {
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
  const Graph chosen = choose_winograd(graph, {.target = target, .precision = precision});
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

// Products of pairs halve the direct sum, those of tiles leave nothing to gain.
TEST(Winograd, HasMoreToBeatBesideProductsOf16Bits) {
  Target target = parse_target("x86:avx512+avx512bf16");
  target.threads = 2, target.fma_ports = 1;  // as Zen 4
  EXPECT_EQ(product_rate(Precision::bf16, target), 2);
  EXPECT_EQ(chosen_tile(target, 128, 28, 1, Precision::bf16), 4);
  EXPECT_NE(chosen_tile(target, 512, 14, 1, Precision::f32), 0);
  EXPECT_EQ(chosen_tile(target, 512, 14, 1, Precision::bf16), 0);
  EXPECT_EQ(chosen_tile(target, 128, 28, 1, Precision::f16), 0);
  Target tiles = parse_target("x86:amx");
  tiles.threads = 2;
  EXPECT_EQ(product_rate(Precision::bf16, tiles), 16);
  EXPECT_EQ(chosen_tile(tiles, 128, 28, 1, Precision::bf16), 0);
  EXPECT_EQ(chosen_tile(tiles, 130, 28, 1, Precision::bf16), 4) << "channels that make no words";
  EXPECT_EQ(chosen_tile(two_cores(), 128, 28, 1, Precision::bf16), 4) << "bf16 is f32 there";
}

// Values that are stored in 16 bits are widened where it reads them, and its results narrowed where they leave.
TEST(Winograd, ComputesInF32BetweenValuesOf16Bits) {
  Target target = parse_target("cpu");
  if (product_rate(Precision::bf16, target) < 1 || target.tiles.registers > 0)
    GTEST_SKIP() << "no products of pairs of bf16 here";
  target.threads = 2;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto weights = [&](Shape shape) {
    NDArray w(f32, std::move(shape));
    for (int64_t i = 0; i < w.size(); ++i) w.set_float(i, normal(random) / 24);
    return w;
  };
  Graph graph;
  graph.inputs = {graph.add_value("x", TensorType{f32, {Expr(1), Expr(64), Expr(56), Expr(56)}})};
  NodeAttributes attributes;
  attributes.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  ValueId value = graph.inputs[0];
  for (const char* name : {"a", "b", "c"}) {
    const ValueId sum =
        graph.add_node("conv", {value, graph.add_constant(name, weights({64, 64, 3, 3}))}, attributes, name)[0];
    value = graph.add_node("relu", {sum}, {}, name)[0];
  }
  graph.outputs = {value};
  CompileOptions options;
  options.threads = 2;
  Executable exact = compile(graph, target, options);
  options.precision = Precision::bf16;
  CompileReport report;
  Executable narrow = compile(graph, target, options, &report);
  ASSERT_EQ(report.decisions.size(), 3u);
  for (const GraphDecision& decision : report.decisions)
    EXPECT_EQ(decision.asked.candidates[decision.asked.chosen].value, Choice{4});
  int narrow_values = 0;
  for (const Step& step : narrow.plan().steps) narrow_values += step.name.ends_with(".bf16");
  EXPECT_GE(narrow_values, 2);
  NDArray x(f32, {1, 64, 56, 56});
  for (int64_t i = 0; i < x.size(); ++i) x.set_float(i, normal(random));
  const NDArray expected = exact.run({x})[0], result = narrow.run({x})[0];
  float largest = 0;
  for (int64_t i = 0; i < result.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<float>(expected.get_float(i))));
  for (int64_t i = 0; i < result.size(); ++i) ASSERT_NEAR(result.get_float(i), expected.get_float(i), 1e-2 * largest);
}

// Whoever decides is asked once for each convolution, with the direct sum and the tiles that round well enough.
TEST(Winograd, AsksAndObeys) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  Graph graph;
  graph.inputs = {graph.add_value("x", TensorType{f32, {Expr(1), Expr(16), Expr(9), Expr(7)}})};
  NDArray weight(f32, {24, 16, 3, 3});
  for (int64_t i = 0; i < weight.size(); ++i) weight.set_float(i, normal(random) / 12);
  NodeAttributes attributes;
  attributes.set("pads", std::vector<int64_t>{1, 0, 1, 1});
  graph.outputs = graph.add_node("conv", {graph.inputs[0], graph.add_constant("w", weight)}, attributes, "c");
  NDArray x(f32, {1, 16, 9, 7});
  for (int64_t i = 0; i < x.size(); ++i) x.set_float(i, normal(random));
  const NDArray expected = test::evaluate(graph, {x})[0];
  const double largest = test::largest_magnitude(expected);

  const Target target = parse_target("cpu");
  std::string key;
  for (const int64_t tile : {0, 2, 4}) {
    CompileOptions options;
    options.threads = 1;
    int asked = 0;
    options.decide = [&](const GraphDecision& decision) {
      ++asked;
      EXPECT_EQ(decision.node, "c");
      EXPECT_EQ(decision.asked.name, "winograd");
      EXPECT_EQ(decision.asked.candidates.size(), 3u);
      for (const Candidate& candidate : decision.asked.candidates) EXPECT_GT(candidate.cost, 0);
      key = structural_digest(decision.func);
      return Choice{tile};
    };
    CompileReport report;
    Executable executable = compile(graph, target, options, &report);
    EXPECT_EQ(asked, 1);
    ASSERT_EQ(report.decisions.size(), 1u);
    const AskedDecision& decided = report.decisions[0].asked;
    EXPECT_EQ(decided.candidates[decided.chosen].value, Choice{tile});
    EXPECT_EQ(report.decisions[0].group, executable.plan().steps[0].name);
    const NDArray result = executable.run({x})[0];
    for (int64_t i = 0; i < result.size(); ++i)
      ASSERT_NEAR(result.get_float(i), expected.get_float(i), 5e-5 * largest) << "tile " << tile;
  }
  // What a choice is stored for knows neither the weights nor the target.
  for (Value& value : graph.values)
    if (value.constant) value.constant->set_float(0, 5);
  const auto same = [&](const GraphDecision& decision) {
    EXPECT_EQ(structural_digest(decision.func), key);
    return decision.asked.candidates[decision.asked.analytic].value;
  };
  for (const char* name : {"x86:avx2", "aarch64"})
    choose_winograd(graph, {.target = parse_target(name), .source = same});
}

// relu(conv(x, w) + b [+ r]) of one convolution.
struct SmallConvolution {
  int64_t inputs, outputs;
  std::vector<int64_t> map;
  std::vector<int64_t> window = {3, 3};
  std::vector<int64_t> pads = {1, 1, 1, 1};
  int64_t batch = 1;
  bool has_residual = false;
  int threads = 2;
  int64_t dilation = 1, groups = 1, stride = 1;  // along filtered axes
};

// By tiles of either size, which nobody would choose for maps so small, as by the direct sum.
void expect_right(const SmallConvolution& c) {
  std::string map;
  for (const int64_t size : c.map) map += " " + std::to_string(size);
  SCOPED_TRACE(std::to_string(c.inputs) + " → " + std::to_string(c.outputs) + " channels of" + map + ", dilation " +
               std::to_string(c.dilation));
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto filled = [&](int64_t first, int64_t second, const std::vector<int64_t>& others, double scale) {
    Shape shape{first, second};
    shape.insert(shape.end(), others.begin(), others.end());
    NDArray array(f32, std::move(shape));
    for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, scale * normal(random));
    return array;
  };
  const auto shape_of = [](const NDArray& array) {
    std::vector<Expr> shape;
    for (const int64_t extent : array.shape()) shape.emplace_back(extent);
    return shape;
  };
  const size_t dims = c.map.size();
  std::vector<int64_t> dilations(dims, 1), strides(dims, 1), result(dims);
  for (const size_t d : filtered_axes(c.window)) dilations[d] = c.dilation, strides[d] = c.stride;
  double elements = 1;
  for (size_t d = 0; d < dims; ++d) {
    elements *= static_cast<double>(c.window[d]);
    result[d] = (c.map[d] + c.pads[d] + c.pads[dims + d] - (c.window[d] - 1) * dilations[d] - 1) / strides[d] + 1;
  }
  std::vector<NDArray> arrays = {filled(c.batch, c.inputs, c.map, 1)};
  Graph graph;
  graph.inputs = {graph.add_value("x", TensorType{f32, shape_of(arrays[0])})};
  NodeAttributes attributes;
  attributes.set("pads", c.pads);
  attributes.set("dilations", dilations);
  attributes.set("groups", c.groups);
  attributes.set("strides", strides);
  const double scale = 1 / std::sqrt(elements * static_cast<double>(c.inputs / c.groups));
  const NDArray weight = filled(c.outputs, c.inputs / c.groups, c.window, scale);
  ValueId value = graph.add_node("conv", {graph.inputs[0], graph.add_constant("w", weight)}, attributes, "c")[0];
  const NDArray bias = filled(1, c.outputs, std::vector<int64_t>(dims, 1), 1);
  value = graph.add_node("add", {value, graph.add_constant("b", bias)}, {}, "biased")[0];
  if (c.has_residual) {
    arrays.push_back(filled(c.batch, c.outputs, result, 1));
    graph.inputs.push_back(graph.add_value("r", TensorType{f32, shape_of(arrays[1])}));
    value = graph.add_node("add", {value, graph.inputs[1]}, {}, "sum")[0];
  }
  graph.outputs = graph.add_node("relu", {value}, {}, "y");

  CompileOptions options;
  options.threads = c.threads;
  const auto run = [&](int64_t tile) {
    options.decide = [&](const GraphDecision&) { return Choice{tile}; };
    CompileReport report;
    Executable executable = compile(graph, parse_target("cpu"), options, &report);
    EXPECT_EQ(report.decisions.size(), 1u);
    return executable.run(arrays)[0];
  };
  const NDArray expected = run(0);
  const double largest = test::largest_magnitude(expected);
  for (const int64_t tile : {2, 4}) {
    const NDArray actual = run(tile);
    for (int64_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual.get_float(i), expected.get_float(i), 5e-5 * largest) << "tile " << tile;
  }
}

TEST(Winograd, IsRightAtEveryEdgeOfAMap) {
  for (const int64_t size : {3, 4, 5, 7, 8, 13, 14, 17, 28, 31})
    if (!tw::test::is_sanitized || size == 7) expect_right({32, 48, {size, size + 3}});
}

TEST(Winograd, IsRightForChannelsThatFillNoBlock) {
  for (const int64_t inputs : {16, 33, 64})
    for (const int64_t outputs : {16, 40, 65})
      if (!tw::test::is_sanitized || inputs + outputs == 33 + 65) expect_right({inputs, outputs, {14, 14}});
}

TEST(Winograd, IsRightForAnyPads) {
  for (const std::vector<int64_t>& pads : {std::vector<int64_t>{0, 0, 0, 0}, {2, 0, 1, 3}, {0, 1, 2, 0}})
    expect_right({.inputs = 32, .outputs = 32, .map = {12, 11}, .pads = pads});
}

TEST(Winograd, IsRightForBatchesAndResiduals) {
  for (const int threads : {1, 2, 3})
    expect_right({.inputs = 64, .outputs = 64, .map = {10, 9}, .batch = 3, .has_residual = true, .threads = threads});
}

// Positions of one phase make tiles with one another, at any number of phases and with any rest.
TEST(Winograd, IsRightForAnyDilation) {
  for (const int64_t dilation : {2, 3, 5})
    for (const int64_t size : {7, 13, 20})
      if (!tw::test::is_sanitized || (dilation == 2 && size == 7))
        expect_right({.inputs = 32,
                      .outputs = 48,
                      .map = {size, size + 2},
                      .pads = {dilation, dilation, dilation, dilation - 1},
                      .batch = size == 13 ? 2 : 1,
                      .has_residual = dilation == 3,
                      .dilation = dilation});
}

// Even and odd sizes, from a pad and from none.
TEST(Winograd, IsRightForStrides) {
  for (const int64_t size : {3, 7, 8, 17, 30})
    for (const int64_t pad : {0, 1})
      if (!tw::test::is_sanitized || size + pad == 8)
        expect_right({.inputs = size == 8 ? 64 : 32,
                      .outputs = size == 17 ? 40 : 64,
                      .map = {size, size + 3},
                      .pads = {pad, pad, 1, pad},
                      .batch = 2,
                      .has_residual = pad == 1,
                      .groups = size == 8 ? 2 : 1,
                      .stride = 2});
}

TEST(Winograd, IsRightForGroups) {
  for (const int64_t groups : {2, 3})
    for (const int64_t width : {32, 64})
      if (!tw::test::is_sanitized || (groups == 2 && width == 32))
        expect_right({.inputs = groups * width,
                      .outputs = groups * 48,
                      .map = {9, 14},
                      .batch = 2,
                      .has_residual = true,
                      .dilation = groups == 3 ? 2 : 1,
                      .groups = groups});
}

// Of open maps: which rows a tile has is asked around its sums, never for each of their terms.
TEST(Winograd, OpenTilesHaveNoGuardsAlongTheSum) {
  const Graph graph = parse_graph(R"(graph g [n: 1.., h: 1.., w: 1..] (x: f32[n, 64, h, w], k: f32[36, 64, 64]) {
    y = winograd_conv(x, k) {pads = [1, 1, 1, 1]}
    return y
  })");
  const Target target = two_cores();
  const Func func = lower_group(graph, fuse(graph).at(0));
  constexpr int64_t steps = 64 / 4;  // four channels at a time
  int sums = 0;
  for (const Kernel& kernel : lower(target.default_schedule(func, target).func(), target, "k").kernels) {
    visit(kernel.func.body, [&](const For& loop) {
      if (loop.loop_kind != LoopKind::serial || as_int(loop.extent) != steps) return;
      ++sums;
      visit(loop.body, [&](const If& branch) { ADD_FAILURE() << to_text(branch.condition); });
    });
  }
  EXPECT_GE(sums, 2);  // of a whole tile, and of what is left
}

// Windows of one slice, of several, and of an even number.
TEST(Winograd, IsRightForSlices) {
  for (const int64_t window : {1, 2, 3, 5})
    for (const int64_t pad : {0, 1})
      if (!tw::test::is_sanitized || (window == 3 && pad == 1))
        expect_right({.inputs = window == 3 ? 64 : 32,
                      .outputs = window == 2 ? 40 : 64,
                      .map = {6, 9, 14},
                      .window = {window, 3, 3},
                      .pads = {pad, 1, 1, pad, 1, 1},
                      .batch = pad + 1,
                      .has_residual = pad == 1,
                      .dilation = window == 5 ? 2 : 1,
                      .groups = window == 3 ? 2 : 1,
                      .stride = window == 2 ? 2 : 1});
}

// Windows of 3 along one axis: of a sequence, of rows or columns of a map, through slices, and beside windows that sum.
TEST(Winograd, IsRightAlongOneAxis) {
  const std::vector<SmallConvolution> cases = {
      {.inputs = 32, .outputs = 48, .map = {29}, .window = {3}, .pads = {1, 1}, .batch = 3, .has_residual = true},
      {.inputs = 64, .outputs = 64, .map = {40}, .window = {3}, .pads = {0, 2}, .groups = 2, .stride = 2},
      {.inputs = 32, .outputs = 40, .map = {33}, .window = {3}, .pads = {3, 3}, .dilation = 3},
      {.inputs = 32, .outputs = 32, .map = {9, 14}, .window = {1, 3}, .pads = {0, 1, 0, 1}, .has_residual = true},
      {.inputs = 32, .outputs = 48, .map = {14, 9}, .window = {3, 1}, .pads = {1, 0, 1, 0}, .batch = 2, .stride = 2},
      {.inputs = 32, .outputs = 32, .map = {9, 10}, .window = {3, 1}, .pads = {2, 1, 2, 0}, .dilation = 2},
      {.inputs = 32, .outputs = 32, .map = {6, 5, 7}, .window = {3, 1, 1}, .pads = {1, 0, 0, 1, 0, 0}, .batch = 2},
      {.inputs = 32, .outputs = 32, .map = {6, 5, 7}, .window = {3, 1, 3}, .pads = {1, 0, 1, 1, 0, 0}, .batch = 2},
      {.inputs = 32, .outputs = 40, .map = {6, 5, 9}, .window = {2, 1, 3}, .pads = {1, 0, 1, 0, 0, 1}},
  };
  for (const SmallConvolution& c : cases)
    if (!tw::test::is_sanitized || c.map.size() != 3) expect_right(c);
}

// Transforms of these weights are beyond f32: only the direct sum is left, and nobody is asked.
TEST(Winograd, WhatRoundsBadlyIsNoCandidate) {
  Graph graph;
  graph.inputs = {graph.add_value("x", TensorType{f32, {Expr(1), Expr(64), Expr(14), Expr(14)}})};
  NDArray weight(f32, {64, 64, 3, 3});
  for (int64_t i = 0; i < weight.size(); ++i) weight.set_float(i, i % 2 ? 1e38 : -1e38);
  graph.outputs = graph.add_node("conv", {graph.inputs[0], graph.add_constant("w", weight)}, {}, "c");
  int asked = 0;
  const auto decide = [&](const GraphDecision&) { return ++asked, Choice{0}; };
  EXPECT_EQ(choose_winograd(graph, {.target = two_cores(), .source = decide}).nodes.at(0).op->name, "conv");
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace tw::relay
