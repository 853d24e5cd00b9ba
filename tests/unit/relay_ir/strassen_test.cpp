// Strassen's sums of weights, against their definition; which products take how many levels; and that they are right.
#include "relay_ir/strassen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "relay_ir/compile/compile.h"
#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "targets/target.h"
#include "tests/unit/relay_ir/run.h"
#include "tests/unit/sanitized.h"

namespace tw::relay {
namespace {

using test::random_array;

// The seven products of a level make the four blocks of a product of 2 × 2 numbers.
TEST(Strassen, TransformMultipliesBlocks) {
  const StrassenTransform& t = strassen_transform(true);
  ASSERT_EQ(t.data.size(), 7u);
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      for (int c = 0; c < 4; ++c) {
        double sum = 0;
        for (size_t p = 0; p < 7; ++p) sum += t.output[c][p] * t.data[p][a] * t.weight[p][b];
        const bool is_term = a % 2 == b / 2 && c == a / 2 * 2 + b % 2;
        EXPECT_EQ(sum, is_term ? 1 : 0) << a << b << c;
      }
    }
  }
}

TEST(Strassen, WeightsAreSummedAsDefined) {
  const NDArray weight = random_array({8, 12}, 5);
  for (const int64_t levels : {1, 2}) {
    const int64_t parts = int64_t{1} << levels, inputs = 8 / parts, outputs = 12 / parts;
    const NDArray scale = strassen_scale(weight, levels), sums = strassen_weight(weight, scale, levels);
    ASSERT_EQ(sums.shape(), (Shape{strassen_points(levels), inputs, outputs}));
    const auto& first = strassen_transform(true).weight;
    const auto& second = strassen_transform(levels == 2).weight;
    for (int64_t p = 0; p < strassen_points(levels); ++p) {
      for (int64_t i = 0; i < inputs; ++i) {
        for (int64_t o = 0; o < outputs; ++o) {
          double expected = 0;
          for (int64_t row = 0; row < parts; ++row) {
            for (int64_t column = 0; column < parts; ++column) {
              const int64_t inner = parts / 2, points = static_cast<int64_t>(second.size());
              expected += first[p / points][row / inner * 2 + column / inner] *
                          second[p % points][row % inner * 2 + column % inner] *
                          weight.get_float((row * inputs + i) * 12 + column * outputs + o) /
                          scale.get_float(column * outputs + o);
            }
          }
          EXPECT_NEAR(sums.get_float((p * inputs + i) * outputs + o), expected, 1e-6);
        }
      }
    }
  }
}

// Columns 0 and 4, 1 and 5, 2 and 6, 3 and 7 meet.
TEST(Strassen, ScalesAreOfColumnsThatMeet) {
  NDArray weight(f32, {2, 8});
  const std::vector<std::vector<double>> columns = {{1, -1.5}, {0, -100}, {0, 0}, {0.3, 0.1},
                                                    {0.6, 0},  {3, 1},    {4, 5}, {1e-40, 0}};
  for (size_t o = 0; o < columns.size(); ++o)
    for (size_t i = 0; i < 2; ++i) weight.set_float(static_cast<int64_t>(i * 8 + o), columns[o][i]);
  const NDArray scale = strassen_scale(weight, 1);
  const std::vector<double> expected = {1, 64, 0x1p-126, 0.25, 1, 2, 4, 0x1p-126};
  for (size_t o = 0; o < expected.size(); ++o) EXPECT_EQ(scale.get_float(static_cast<int64_t>(o)), expected[o]) << o;
}

Target two_narrow_cores() {
  Target target = parse_target("x86:avx512");
  target.threads = 2, target.fma_ports = 1;
  return target;
}

NDArray ones(const Shape& shape) {
  NDArray array(f32, shape);
  std::fill_n(static_cast<float*>(array.data()), array.size(), 1.0f);
  return array;
}

Graph product_by(int64_t rows, const NDArray& weight) {
  Graph graph;
  graph.inputs = {graph.add_value("x", TensorType{f32, {Expr(1), Expr(rows), Expr(weight.shape()[0])}})};
  graph.outputs = graph.add_node("matmul", {graph.inputs[0], graph.add_constant("w", weight)}, {}, "c");
  return graph;
}

// The levels that choose_strassen takes; 0: none, it stays a product.
int64_t levels_of(const Graph& graph, const Target& target, Precision precision = Precision::f32) {
  const Graph chosen = choose_strassen(graph, {.target = target, .precision = precision});
  const Node& node = chosen.nodes.at(0);
  return node.op->name == "strassen_product" ? node.attributes.get_int("levels") : 0;
}

TEST(Strassen, LargeProductsTakeLevels) {
  EXPECT_EQ(levels_of(product_by(1024, ones({768, 768})), two_narrow_cores()), 2);
  EXPECT_EQ(levels_of(product_by(784, ones({384, 1536})), two_narrow_cores()), 2);
  EXPECT_EQ(levels_of(product_by(196, ones({384, 1536})), two_narrow_cores()), 1);
  EXPECT_EQ(levels_of(product_by(1024, ones({760, 728})), two_narrow_cores()), 2);
  EXPECT_EQ(levels_of(product_by(1024, ones({768, 768})), two_narrow_cores(), Precision::bf16), 0);
}

// Their sums would take more memory than what they save is worth.
TEST(Strassen, LargeWeightsGrowLittle) {
  EXPECT_EQ(levels_of(product_by(1024, ones({768, 3072})), two_narrow_cores()), 1);
  EXPECT_EQ(levels_of(product_by(1024, ones({2048, 4096})), two_narrow_cores()), 0);
}

// Sums of few elements take longer than what they save, and weights come from memory for few rows.
TEST(Strassen, SmallProductsStay) {
  EXPECT_EQ(levels_of(product_by(3136, ones({64, 64})), two_narrow_cores()), 0);
  EXPECT_EQ(levels_of(product_by(16, ones({768, 768})), two_narrow_cores()), 0);
}

// What small register tiles lose eats up the gain, but where channels lie in blocks: there the plain product loses it
// too.
TEST(Strassen, RowsStayWhereRegistersAreFew) {
  Target target = parse_target("x86:avx2");
  target.threads = 2;
  EXPECT_EQ(levels_of(product_by(1024, ones({768, 768})), target), 0);
  Graph images;
  images.inputs = {images.add_value("x", TensorType{f32, {Expr(1), Expr(768), Expr(32), Expr(32)}})};
  images.outputs =
      images.add_node("conv", {images.inputs[0], images.add_constant("w", ones({768, 768, 1, 1}))}, {}, "c");
  EXPECT_GT(levels_of(images, target), 0);
}

TEST(Strassen, WeightsWithoutValueStay) {
  NDArray weight = random_array({768, 768}, 1);
  weight.set_float(1000, std::numeric_limits<double>::infinity());
  EXPECT_EQ(levels_of(product_by(1024, weight), two_narrow_cores()), 0);
}

// relu(x · w + b [+ r]) of any level, which nobody would choose for products so small, as of none.
struct SmallProduct {
  std::vector<int64_t> rows;  // the axes before the last one
  int64_t inputs, outputs;
  bool is_image = false;  // channels are the second axis
  bool has_residual = false;
  int threads = 2;
};

void expect_right_product(const SmallProduct& p) {
  std::string name = p.is_image ? "image" : "rows";
  for (const int64_t extent : p.rows) name += " " + std::to_string(extent);
  SCOPED_TRACE(name + ", " + std::to_string(p.inputs) + " → " + std::to_string(p.outputs));
  const auto shape_of = [&](int64_t channels) {
    Shape shape = p.rows;
    shape.insert(p.is_image ? shape.begin() + 1 : shape.end(), channels);
    return shape;
  };
  const auto type_of = [](const Shape& shape) { return TensorType{f32, {shape.begin(), shape.end()}}; };
  std::vector<NDArray> arrays = {random_array(shape_of(p.inputs), 1)};
  Graph graph;
  graph.inputs = {graph.add_value("x", type_of(arrays[0].shape()))};
  const double scale = 1 / std::sqrt(static_cast<double>(p.inputs));
  const Shape of_weight = p.is_image ? Shape{p.outputs, p.inputs, 1, 1} : Shape{p.inputs, p.outputs};
  ValueId value =
      graph.add_node(p.is_image ? "conv" : "matmul",
                     {graph.inputs[0], graph.add_constant("w", random_array(of_weight, 2, scale))}, {}, "c")[0];
  const Shape of_bias = p.is_image ? Shape{p.outputs, 1, 1} : Shape{p.outputs};
  value = graph.add_node("add", {value, graph.add_constant("b", random_array(of_bias, 3))}, {}, "biased")[0];
  if (p.has_residual) {
    arrays.push_back(random_array(shape_of(p.outputs), 4));
    graph.inputs.push_back(graph.add_value("r", type_of(arrays[1].shape())));
    value = graph.add_node("add", {value, graph.inputs[1]}, {}, "sum")[0];
  }
  graph.outputs = graph.add_node("relu", {value}, {}, "y");
  const NDArray expected = evaluate(graph, arrays)[0];
  const double largest = test::largest_magnitude(expected);

  Target target = parse_target("cpu");
  target.l2.bytes = 1 << 20;
  for (const int64_t levels : {1, 2}) {
    const int64_t parts = int64_t{1} << levels;
    const NDArray& weight = *graph.values[graph.nodes[0].inputs[1]].constant;
    const auto filled_up = [&](int64_t width) { return (width + parts - 1) / parts * parts; };
    NDArray matrix(f32, {filled_up(p.inputs), filled_up(p.outputs)}), sizes(f32, {p.outputs});
    std::fill_n(static_cast<float*>(matrix.data()), matrix.size(), 0.0f);
    for (int64_t i = 0; i < p.inputs; ++i)
      for (int64_t o = 0; o < p.outputs; ++o)
        matrix.set_float(i * filled_up(p.outputs) + o,
                         weight.get_float(p.is_image ? o * p.inputs + i : i * p.outputs + o));
    const NDArray scale = strassen_scale(matrix, levels);
    for (int64_t o = 0; o < p.outputs; ++o) sizes.set_float(o, scale.get_float(o));
    // The graph with the product in its stead.
    GraphCopy copy(graph);
    const Graph fast = copy.rewrite([&](const Node& node) {
      if (&node != &graph.nodes[0]) return no_value;
      const ValueId sums = copy.to().add_constant("sums", strassen_weight(matrix, scale, levels)),
                    of_columns = copy.to().add_constant("sizes", sizes);
      NodeAttributes attributes;
      attributes.set("levels", levels);
      attributes.set("axis", int64_t{p.is_image ? 1 : -1});
      return copy.add(node, "strassen_product", {copy[node.inputs[0]], sums, of_columns}, attributes)[0];
    });
    CompileOptions options;
    options.threads = p.threads;
    const NDArray actual = compile(fast, target, options).run(arrays)[0];
    for (int64_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual.get_float(i), expected.get_float(i), 5e-6 * largest) << levels << " levels";
  }
}

TEST(Strassen, IsRightForAnyNumberOfRows) {
  for (const int64_t rows : {1, 2, 3, 5, 8, 17, 50})
    if (!tw::test::is_sanitized || rows == 5) expect_right_product({{1, rows}, 64, 128});
}

TEST(Strassen, IsRightForImages) {
  for (const int64_t size : {1, 3, 4, 7, 14})
    if (!tw::test::is_sanitized || size == 3) expect_right_product({{2, size, size + 1}, 64, 192, true, size > 3});
}

TEST(Strassen, IsRightForBatchesAndResiduals) {
  for (const int threads : {1, 2, 3})
    if (!tw::test::is_sanitized || threads == 3) expect_right_product({{3, 2, 5}, 128, 64, false, true, threads});
}

// Widths that vectors do not divide, nor blocks.
TEST(Strassen, IsRightForAnyWidth) {
  expect_right_product({{1, 9}, 67, 65});
  expect_right_product({{1, 3, 5}, 33, 70, true, true});
  expect_right_product({{1, 9}, 20, 36});
  expect_right_product({{1, 9}, 20, 64});
  expect_right_product({{1, 3, 5}, 12, 40, true});
}

// Whoever decides is asked once for each product, with no level and those that are worth trying.
TEST(Strassen, AsksAndObeys) {
  const Graph graph = product_by(256, random_array({256, 256}, 1, 1.0 / 16));
  const NDArray x = random_array({1, 256, 256}, 2);
  const NDArray expected = evaluate(graph, {x})[0];
  Target target = parse_target("cpu");
  target.fma_ports = 1;  // as many levels are worth trying whatever this machine multiplies a cycle
  for (const int64_t levels : {0, 1, 2}) {
    CompileOptions options;
    options.threads = 1;
    int asked = 0;
    options.decide = [&](const GraphDecision& decision) {
      ++asked;
      EXPECT_EQ(decision.node, "c");
      EXPECT_EQ(decision.asked.name, "strassen");
      EXPECT_EQ(decision.asked.candidates.size(), 3u);
      return Choice{levels};
    };
    const NDArray result = compile(graph, target, options).run({x})[0];
    EXPECT_EQ(asked, 1);
    for (int64_t i = 0; i < result.size(); ++i) ASSERT_NEAR(result.get_float(i), expected.get_float(i), 2e-5);
  }
  CompileOptions options;
  options.constraints = parse_decisions("strassen=0");
  options.decide = [&](const GraphDecision&) { return ADD_FAILURE() << "asked what is forbidden", Choice{1}; };
  compile(graph, target, options);
}

}  // namespace
}  // namespace tw::relay
