// Convolutions that go before what enlarges their maps compute the same.
#include <gtest/gtest.h>

#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "tests/unit/relay_ir/compiles_right.h"

namespace tw::relay::test {
namespace {

// As the head of a segmentation network: maps of four sizes, put together in any order, and mixed.
std::string head(const std::string& parts) {
  return R"(graph head (a: f32[2, 48, 8, 12], b: f32[2, 64, 4, 6], c: f32[2, 40, 2, 3], d: f32[2, 3, 2, 3]) {
    rows4 = constant [0, 0, 0, 1, 0, 1, 1, 2, 1, 2, 2, 3, 2, 3, 3, 3]: i64[8, 2]
    columns6 = constant [0, 1, 0, 1, 1, 2, 1, 2, 2, 3, 2, 3, 3, 4, 3, 4, 4, 5, 4, 5, 4, 5, 5, 5]: i64[12, 2]
    rows2 = constant [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]: i64[8, 2]
    columns3 = constant [0, 1, 0, 1, 0, 1, 0, 1, 1, 2, 1, 2, 1, 2, 1, 2, 0, 2, 0, 2, 0, 2, 0, 2]: i64[12, 2]
    of_rows = constant [0.5]: f32[8, 2]
    of_columns = constant [0.25]: f32[12, 2]
    w = constant [1]: f32[40, 155, 1, 1]
    bias = constant [1]: f32[40, 1, 1]
    b0 = interpolate(b, rows4, of_rows) {axis = 2}
    large_b = interpolate(b0, columns6, of_columns) {axis = 3}
    c0 = interpolate(c, columns3, of_columns) {axis = 3}
    large_c = interpolate(c0, rows2, of_rows) {axis = 2}
    d0 = interpolate(d, columns3, of_columns) {axis = 3}
    large_d = interpolate(d0, rows2, of_rows) {axis = 2}
    all = concat()" +
         parts + R"() {axis = 1}
    mixed = conv(all, w)
    biased = add(mixed, bias)
    y = relu(biased)
    return y
  })";
}

int64_t channels_mixed_at_full_size(const Graph& graph) {
  int64_t channels = 0;
  for (const Node& node : graph.nodes) {
    const Shape shape = *static_shape(graph.values[node.inputs[0]].type);
    if (node.op->name == "conv" && shape[2] == 8) channels += shape[1];
  }
  return channels;
}

TEST(Resizes, AreMovedBehindConvolutionsOfTheirParts) {
  for (const char* parts :
       {"a, large_b, large_c, large_d", "large_c, a, large_d, large_b", "large_d, large_b, large_c, a"}) {
    SCOPED_TRACE(parts);
    expect_compiles_right_with_random_constants(head(parts));
    EXPECT_EQ(channels_mixed_at_full_size(move_resizes(parse_graph(head(parts)))), 48 + 3);  // a, and the few of d
  }
}

TEST(Resizes, AreMovedBehindAConvolution) {
  expect_compiles_right_with_random_constants(R"(graph g (x: f32[1, 17, 5, 3]) {
    rows = constant [4, 3, 2, 1, 0, 0, 1, 2, 3, 4]: i64[10, 1]
    of_rows = constant [1]: f32[10, 1]
    w = constant [1]: f32[33, 17, 1, 1]
    tall = interpolate(x, rows, of_rows) {axis = 2}
    y = conv(tall, w)
    z = relu(y)
    return z
  })");
}

// As in detectors: elements that are repeated, and two convolutions of what is put together.
TEST(Resizes, ThatRepeatElementsAreMovedToo) {
  const std::string text = R"(graph g (x: f32[1, 64, 4, 6], z: f32[1, 40, 8, 12]) {
    v = constant [1]: f32[48, 104, 1, 1]
    w = constant [1]: f32[56, 104, 1, 1]
    a = reshape(x) {shape = [1, 64, 4, 1, 6]}
    b = broadcast_to(a) {shape = [1, 64, 4, 2, 6]}
    c = reshape(b) {shape = [1, 64, 8, 6, 1]}
    d = broadcast_to(c) {shape = [1, 64, 8, 6, 2]}
    large = reshape(d) {shape = [1, 64, 8, 12]}
    all = concat(large, z) {axis = 1}
    y1 = conv(all, v)
    y2 = conv(all, w)
    return y1, y2
  })";
  expect_compiles_right_with_random_constants(text);
  EXPECT_EQ(channels_mixed_at_full_size(move_resizes(parse_graph(text))), 2 * 40);
}

}  // namespace
}  // namespace tw::relay::test
