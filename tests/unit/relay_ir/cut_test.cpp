// Graphs with other outputs, and with values that a caller gives.
#include "relay_ir/cut.h"

#include <gtest/gtest.h>

#include "relay_ir/compile/compile.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"
#include "targets/target.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay {
namespace {

constexpr const char* text = R"(graph g (x: f32[n, 4]) {
  a = exp(x)
  b = concat(a, a) {axis = 0}
  c = log(b)
  d = relu(x)
  return c, d
})";

ValueId named(const Graph& graph, const std::string& name) {
  for (size_t id = 0; id < graph.values.size(); ++id)
    if (graph.values[id].name == name) return static_cast<ValueId>(id);
  ADD_FAILURE() << name;
  return no_value;
}

TEST(cut, only_what_is_wanted_is_computed) {
  const Graph graph = parse_graph(text), part = cut(graph, {}, {named(graph, "a")});
  verify(part);
  EXPECT_EQ(part.nodes.size(), 1u);
  EXPECT_EQ(part.output_name(0), "a");
  const NDArray x = test::random_array({2, 4}, 1);
  EXPECT_EQ(evaluate(part, {x})[0].shape(), (Shape{2, 4}));
}

TEST(cut, nodes_read_what_is_given_and_outputs_are_what_is_computed) {
  const Graph graph = parse_graph(text);
  const ValueId a = named(graph, "a"), b = named(graph, "b");
  const Graph part = cut(graph, {a}, {a, b});
  verify(part);
  ASSERT_EQ(part.inputs.size(), 2u);
  EXPECT_EQ(part.output_name(0), "a");
  const NDArray x = test::random_array({2, 4}, 1), given = test::random_array({2, 4}, 2);
  const std::vector<NDArray> found = evaluate(part, {x, given});
  EXPECT_FLOAT_EQ(found[0].get_float(3), std::exp(x.get_float(3)));
  EXPECT_EQ(found[1].get_float(3), given.get_float(3));
  EXPECT_EQ(found[1].get_float(11), given.get_float(3));
}

TEST(cut, sizes_of_what_is_given_follow_from_the_inputs) {
  const Graph graph = parse_graph(text);
  const ValueId b = named(graph, "b");
  ASSERT_TRUE(may_be_given(graph, b));
  const Graph part = cut(graph, {b}, {named(graph, "c")});
  Executable executable = compile(part, parse_target("cpu"));
  const NDArray x = test::random_array({2, 4}, 1);
  EXPECT_EQ(executable.run({x, test::random_array({4, 4}, 2)})[0].shape(), (Shape{4, 4}));
  EXPECT_THROW(executable.run({x, test::random_array({3, 4}, 2)}), Error);
}

TEST(cut, a_size_that_only_a_run_knows_cannot_be_given) {
  const Graph graph = parse_graph(R"(graph g (x: f32[n], c: i64[1]) {
  item(c) {number = [k: 0..9]} as first
  at = range() {count = [k]}
  y = gather(x, at) {axis = 0}
  z = negate(y)
  return z
})");
  const ValueId y = named(graph, "y");
  EXPECT_FALSE(may_be_given(graph, y));
  EXPECT_THROW(cut(graph, {y}, {named(graph, "z")}), Error);
  EXPECT_EQ(cut(graph, {}, {y}).nodes.size(), 3u);
}

}  // namespace
}  // namespace tw::relay
