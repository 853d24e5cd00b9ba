// Concatenations whose parts kernels make in their places, and those whose parts are copied.
#include <gtest/gtest.h>

#include <algorithm>

#include "relay_ir/compile/compile.h"
#include "relay_ir/text/parser.h"
#include "tests/unit/relay_ir/compiles_right.h"

namespace tw::relay::test {
namespace {

// Kernels make the parts of large concatenations where they lie in the result, views of them and inner ones too.
TEST(Concatenations, PartsAreMadeInPlace) {
  const auto steps_of = [](const std::string& text) {
    expect_compiles_right_with_random_constants(text);
    return compile(parse_graph(text), parse_target("cpu")).plan().steps.size();
  };
  EXPECT_EQ(steps_of(R"(graph g (x: f32[1, 100, 96], y: f32[60, 160]) {
    a = layer_norm(x) {axis = 2}
    b = layer_norm(y) {axis = 1}
    v = reshape(b) {shape = [1, 100, 96]}
    inner = concat(a, v) {axis = 1}
    u = negate(b)
    s = softmax(x) {axis = 2}
    joined = concat(s, inner) {axis = 1}
    r = reduce_sum(joined) {axes = [2]}
    return r, joined, u
  })"),
            5u);
  EXPECT_EQ(steps_of(R"(graph g (x: f32[1, 16, 9, 9]) {
    w = constant [1]: f32[64, 16, 3, 3]
    v = constant [1]: f32[128, 64, 1, 1]
    u = constant [1]: f32[24, 192, 1, 1]
    a = conv(x, w)
    b = conv(a, v)
    joined = concat(a, b) {axis = 1}
    y = conv(joined, u)
    return y
  })"),
            3u);
}

// …but not those that are the caller's or constants, that come twice, begin between vectors, or lie in pieces.
TEST(Concatenations, OtherPartsAreCopied) {
  for (const auto& [joined, outputs] :
       std::vector<std::pair<std::string, std::string>>{{"concat(a, s) {axis = 1}", "r, a"},
                                                        {"concat(a, x) {axis = 1}", "r"},
                                                        {"concat(a, w) {axis = 1}", "r"},
                                                        {"concat(a, a) {axis = 1}", "r"},
                                                        {"concat(n, m) {axis = 1}", "r"},
                                                        {"concat(a, s) {axis = 2}", "r"}}) {
    SCOPED_TRACE(joined);
    const std::string text = R"(graph g (x: f32[1, 100, 96], y: f32[1, 101, 95]) {
      w = constant [1]: f32[1, 100, 96]
      a = layer_norm(x) {axis = 2}
      s = softmax(x) {axis = 2}
      n = layer_norm(y) {axis = 2}
      m = softmax(y) {axis = 2}
      joined = )" + joined + R"(
      r = reduce_sum(joined) {axes = [2]}
      return )" + outputs + "\n}";
    expect_compiles_right_with_random_constants(text);
    const Executable executable = compile(parse_graph(text), parse_target("cpu"));
    EXPECT_GE(std::ranges::count(executable.plan().steps, "joined", &Step::name), 1);  // one for each part
  }
}

TEST(Concatenations, LargeOnesCopyTheirParts) {
  expect_compiles_right(R"(graph g (x: f32[1, 4, 37, 64], y: f32[1, 4, 1, 64], z: f32[1, 16, 20, 20]) {
    seven = constant [7]: f32[4, 1, 1]
    wide = reshape(seven) {shape = [1, 4, 1, 1]}
    w = constant [0.25]: f32[16, 16, 1, 1]
    j = concat(x, y, x) {axis = 2}
    r = relu(j)
    c = conv(z, w)
    d = relu(c)
    k = concat(c, d) {axis = -3}
    s = reduce_mean(k) {axes = [2, 3]}
    return r, k, s
  })");
}

// Parts whose extents share no factor with a vector's, along each axis: rows of neighbours, shared out.
TEST(Concatenations, PartsAreCopiedInParallel) {
  CompileReport report;
  for (const char* axis : {"0", "1", "3"}) {
    const std::string text = std::string(R"(graph g (x: f32[32, 64, 28, 28], y: f32[32, 64, 28, 28]) {
      j = concat(x, y) {axis = )") +
                             axis + "}\n return j\n}";
    const Executable executable = compile(parse_graph(text), parse_target("cpu"), {}, &report);
    EXPECT_TRUE(report.serial_loops.empty()) << report.serial_loops[0];
    ASSERT_EQ(executable.plan().steps.size(), 2u);
    for (const Step& step : executable.plan().steps) EXPECT_GT(step.tasks, 1);
  }
}

}  // namespace
}  // namespace tw::relay::test
