// Products in a row that become one compute the same.
#include <gtest/gtest.h>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "tests/unit/relay_ir/compiles_right.h"

namespace tw::relay::test {
namespace {

int64_t products_of(const Graph& graph) {
  return std::ranges::count_if(graph.nodes, [&](const Node& node) { return linear_of(graph, node).has_value(); });
}

void expect_one_product(const std::string& text) {
  expect_compiles_right_with_random_constants(text);
  EXPECT_EQ(products_of(eliminate_dead(fold_products(parse_graph(text)))), 1);
}

TEST(ProductsInARow, OfTokensThatBecomeAnImage) {
  expect_one_product(R"(graph g (x: f32[2, 30, 17]) {
    a = constant [1]: f32[17, 40]
    bias = constant [1]: f32[40]
    w = constant [1]: f32[23, 40, 1, 1]
    projected = matmul(x, a)
    biased = add(bias, projected)
    channels = transpose(biased) {perm = [0, 2, 1]}
    image = reshape(channels) {shape = [2, 40, 5, 6]}
    mixed = conv(image, w)
    y = relu(mixed)
    return y
  })");
}

// Weights lie in any order, and what is added has any rank.
TEST(ProductsInARow, OfImagesThatBecomeTokens) {
  expect_one_product(R"(graph g (x: f32[1, 9, 4, 5]) {
    a = constant [1]: f32[33, 9, 1, 1]
    bias = constant [1]: f32[1, 33, 1, 1]
    w = constant [1]: f32[12, 33]
    mixed = conv(x, a)
    biased = add(mixed, bias)
    rows = reshape(biased) {shape = [1, 33, 20]}
    tokens = transpose(rows) {perm = [0, 2, 1]}
    y = matmul(tokens, w) {transpose_b = 1}
    return y
  })");
}

TEST(ProductsInARow, OfMatrices) {
  expect_one_product(R"(graph g (x: f32[7, 8]) {
    a = constant [1]: f32[30, 8]
    b = constant [1]: f32[30, 11]
    u = matmul(x, a) {transpose_b = 1}
    y = matmul(u, b)
    return y
  })");
}

}  // namespace
}  // namespace tw::relay::test
