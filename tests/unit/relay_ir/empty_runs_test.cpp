// Runs in which open dimensions are 0 (relay_ir/compile/empty_runs.h).
#include "relay_ir/compile/empty_runs.h"

#include <gtest/gtest.h>

#include "relay_ir/text/parser.h"

namespace tw::relay {
namespace {

std::string sizes_text(const SpecialGraph& run) {
  std::string text;
  for (const auto& [low, high] : run.sizes)
    text += (text.empty() ? "" : ", ") + std::to_string(low) + (low == high ? "" : "..");
  return text;
}

TEST(EmptyRuns, where_nothing_is_left_others_may_be_anything) {
  const auto runs = empty_runs(parse_graph(R"(
graph g [n: 0.., m: 0..] (x: f32[n, m]) {
  y = exp(x)
  return y
}
)"));
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(sizes_text(runs[0]), "0, 0..");
  EXPECT_EQ(sizes_text(runs[1]), "0.., 0");
}

TEST(EmptyRuns, what_does_not_depend_on_the_dimension_is_left) {
  const auto runs = empty_runs(parse_graph(R"(
graph g [n: 0.., past: 0..] (p: f32[n, past, 4], x: f32[n, 3, 4]) {
  y = concat(p, x) {axis = 1}
  return y
}
)"));
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(sizes_text(runs[0]), "0, 0..");  // the least that is left comes first
  EXPECT_EQ(sizes_text(runs[1]), "1.., 0");
}

TEST(EmptyRuns, none_where_dimensions_have_an_element) {
  EXPECT_TRUE(empty_runs(parse_graph(R"(
graph g [n: 1..] (x: f32[n]) {
  y = exp(x)
  return y
}
)"))
                  .empty());
}

TEST(EmptyRuns, the_model_is_that_of_runs_with_elements) {
  const Graph graph = with_elements(parse_graph(R"(
graph g [n: 0..] (x: f32[n]) {
  y = exp(x)
  return y
}
)"));
  EXPECT_EQ(dimension_bounds(graph.symbols[0]), (DimensionBounds{1}));
}

}  // namespace
}  // namespace tw::relay
