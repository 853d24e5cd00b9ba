// Products whose columns are equal parts, which one kernel combines (relay_ir/compile/fuse.cpp).
#include "tests/unit/relay_ir/compiles_right.h"

namespace tw::relay {
namespace {

using test::expect_compiles_right_with_random_constants;

size_t kernels_of(const std::string& text) {
  return compile(parse_graph(text), parse_target("cpu")).plan().steps.size();
}

// The halves of a product's columns, with whatever is between `p = matmul(x, w)` and what is returned.
std::string of_columns(const std::string& body, const std::string& returned = "y") {
  return R"(graph g (x: f32[5, 24]) {
    w = constant [0.25]: f32[24, 32]
    p = matmul(x, w)
    )" + body +
         "\n    return " + returned + "\n  }";
}

TEST(Compile, ColumnsInEqualPartsAreCombinedInOneKernel) {
  const std::string parts = R"(a = slice(p) {axes = [1], starts = [0], sizes = [16]}
    b = slice(p) {axes = [1], starts = [16], sizes = [16]}
    s = sigmoid(b)
    )";
  const std::string glu = of_columns(parts + "y = multiply(a, s)");
  expect_compiles_right_with_random_constants(glu);
  EXPECT_EQ(kernels_of(glu), 1u);
  // What else is made of the parts leaves the kernel.
  const std::string two = of_columns(parts + "y = multiply(a, s)\n    z = exp(y)", "z, s, y");
  expect_compiles_right_with_random_constants(two);
  // Not where others use the product, a part is not combined element by element, or parts overlap.
  for (const std::string& text : {of_columns(parts + "y = multiply(a, s)", "y, p"),
                                  of_columns(parts + "t = transpose(a) {perm = [1, 0]}", "s, t"),
                                  of_columns(R"(a = slice(p) {axes = [1], starts = [0], sizes = [16]}
    b = slice(p) {axes = [1], starts = [8], sizes = [16]}
    y = multiply(a, b))")}) {
    expect_compiles_right_with_random_constants(text);
    EXPECT_GE(kernels_of(text), 2u) << text;
  }
}

// A step of an LSTM: state and cell leave one kernel, and the state twice.
TEST(Compile, AStepOfAnLstmIsOneKernel) {
  for (const std::string rows : {"1", "3"}) {
    const std::string text = "graph g (x: f32[" + rows + ", 96], h: f32[" + rows + ", 24], c: f32[" + rows + R"(, 24]) {
      w = constant [0.25]: f32[96, 24]
      p = matmul(h, w) {transpose_b = 1}
      all = add(x, p)
      i = slice(all) {axes = [1], starts = [0], sizes = [24]}
      o = slice(all) {axes = [1], starts = [24], sizes = [24]}
      f = slice(all) {axes = [1], starts = [48], sizes = [24]}
      g = slice(all) {axes = [1], starts = [72], sizes = [24]}
      si = sigmoid(i)
      so = sigmoid(o)
      sf = sigmoid(f)
      tg = tanh(g)
      kept = multiply(sf, c)
      new = multiply(si, tg)
      cell = add(kept, new)
      t = tanh(cell)
      state = multiply(so, t)
      return state, cell, state
    })";
    expect_compiles_right_with_random_constants(text);
    EXPECT_EQ(kernels_of(text), 1u) << rows;
  }
}

// Of a GRU the input's parts are parts of another value, which is no product here.
TEST(Compile, AStepOfAGruIsOneKernel) {
  for (const std::string rows : {"1", "3"}) {
    const std::string text = "graph g (x: f32[" + rows + ", 72], h: f32[" + rows + R"(, 24]) {
      w = constant [0.25]: f32[72, 24]
      bias = constant [0.5]: f32[72]
      p = matmul(h, w) {transpose_b = 1}
      all = add(p, bias)
      xz = slice(x) {axes = [1], starts = [0], sizes = [24]}
      pz = slice(all) {axes = [1], starts = [0], sizes = [24]}
      az = add(xz, pz)
      z = sigmoid(az)
      xr = slice(x) {axes = [1], starts = [24], sizes = [24]}
      pr = slice(all) {axes = [1], starts = [24], sizes = [24]}
      ar = add(xr, pr)
      r = sigmoid(ar)
      pn = slice(all) {axes = [1], starts = [48], sizes = [24]}
      reset = multiply(r, pn)
      xn = slice(x) {axes = [1], starts = [48], sizes = [24]}
      an = add(xn, reset)
      n = tanh(an)
      one = constant [1]: f32[]
      rest = subtract(one, z)
      new = multiply(rest, n)
      kept = multiply(z, h)
      state = add(new, kept)
      return state
    })";
    expect_compiles_right_with_random_constants(text);
    EXPECT_EQ(kernels_of(text), 1u) << rows;
  }
}

}  // namespace
}  // namespace tw::relay
