// What a copy cannot prove of open dimensions becomes something that runs make sure of; mistakes stay errors.
#include <gtest/gtest.h>

#include "relay_ir/text/parser.h"
#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay {
namespace {

// With the sum of both inputs before the nodes, which take it for the first one.
Graph with_sum(const Graph& graph) {
  GraphCopy copy(graph);
  const ValueId sum = copy.to().add_node("add", {copy[graph.inputs[0]], copy[graph.inputs[1]]}, {}, "sum")[0];
  copy.set(graph.inputs[0], sum);
  Graph result = copy.rewrite([](const Node&) { return no_value; });
  verify(result);
  EXPECT_EQ(to_text(parse_graph(to_text(result))), to_text(result));
  return result;
}

TEST(graph_copy, relies_on_what_it_cannot_prove) {
  const Graph graph = with_sum(parse_graph(R"(graph g (x: f32[n, 4], y: f32[m, 4]) {
  r = relu(x)
  return r
})"));
  ASSERT_EQ(graph.equalities.size(), 1u);
  EXPECT_EQ(to_string(graph.equalities[0]), "n = m");
  EXPECT_EQ(evaluate(graph, {test::random_array({3, 4}, 1), test::random_array({3, 4}, 2)}).size(), 1u);
  EXPECT_THROW(evaluate(graph, {test::random_array({3, 4}, 1), test::random_array({2, 4}, 2)}), Error);
}

TEST(graph_copy, types_before_an_equality_have_what_it_says) {
  const Graph graph = parse_graph(R"(graph g (x: f32[n, 4], y: f32[n // 2 * 2, 4]) {
  r = relu(y)
  return x, r
})");
  GraphCopy copy(graph);
  copy.copy(graph.nodes[0]);
  copy.to().add_node("add", {copy[graph.inputs[0]], copy[graph.nodes[0].outputs[0]]}, {}, "sum");
  const Graph result = copy.finish();
  verify(result);
  ASSERT_EQ(result.equalities.size(), 1u);
  EXPECT_EQ(to_text(parse_graph(to_text(result))), to_text(result));
}

TEST(graph_copy, regions_know_what_is_relied_on_around_them) {
  const Graph graph = with_sum(parse_graph(R"(graph g (x: f32[n, 4], y: f32[m, 4], flag: bool[]) {
  z = branch(flag, x, y): f32[n, 4]
  region (a: f32[n, 4], b: f32[m, 4]) {
    r = relu(a)
    return r
  }
  region (a: f32[n, 4], b: f32[m, 4]) where m == n {
    s = add(a, b)
    return s
  }
  return z
})"));
  ASSERT_EQ(graph.equalities.size(), 1u);
  for (const Graph& region : graph.nodes[1].regions) EXPECT_TRUE(own_equalities(graph, region).empty());
}

TEST(graph_copy, what_differs_is_an_error) {
  const auto sum_of = [](const char* x, const char* y) {
    with_sum(parse_graph(std::string("graph g (x: ") + x + ", y: " + y + ") {\n  r = relu(x)\n  return r\n}"));
  };
  EXPECT_THROW(sum_of("f32[3, 4]", "f32[2, 4]"), Error);
  EXPECT_THROW(sum_of("f32[n, 4]", "f32[n + 1, 4]"), Error);
  EXPECT_THROW(sum_of("f32[n * 2 + 4, 4]", "f32[3, 4]"), Error);
}

TEST(graph_copy, outputs_keep_their_sizes) {
  const Graph graph = parse_graph(R"(graph g (x: f32[n, 4], y: f32[m, 4], z: f32[3, 4]) {
  r = relu(x)
  return r
})");
  GraphCopy open(graph);
  const Graph result = open.rewrite([&](const Node&) { return open[graph.inputs[1]]; });
  verify(result);
  ASSERT_EQ(result.equalities.size(), 1u);
  EXPECT_EQ(to_string(result.equalities[0]), "m = n");
  const Graph fixed = parse_graph(R"(graph g (x: f32[2, 4], y: f32[3, 4]) {
  r = relu(x)
  return r
})");
  GraphCopy wrong(fixed);
  EXPECT_THROW(wrong.rewrite([&](const Node&) { return wrong[fixed.inputs[1]]; }), Error);
}

}  // namespace
}  // namespace tw::relay
