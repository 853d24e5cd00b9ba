// Models for some sizes of their open dimensions.
#include "relay_ir/compile/profile.h"

#include <gtest/gtest.h>

#include <set>

#include "relay_ir/compile/compile.h"
#include "relay_ir/compile/constant_pool.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"
#include "tests/unit/machines.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay {
namespace {

const char* const flat_rows = R"(graph g [n: 1..64, m: 2..] (x: f32[n, m, 4]) {
  y = reshape(x) {shape = [n * m, 4]}
  z = relu(y)
  return z
})";

std::string text_at(const Profile& profile, const char* model = flat_rows) {
  const SpecialGraph special = specialise(parse_graph(model), profile);
  verify(special.graph);
  return to_text(special.graph);
}

TEST(Profile, SizesBecomeNumbersEverywhere) {
  EXPECT_EQ(text_at({{"n", {3, 3}}, {"m", {5, 5}}}), to_text(parse_graph(R"(graph g (x: f32[3, 5, 4]) {
    y = reshape(x) {shape = [15, 4]}
    z = relu(y)
    return z
  })")));
}

TEST(Profile, RangesNarrowWhatStaysOpen) {
  EXPECT_EQ(text_at({{"n", {3, 9}}}), to_text(parse_graph(R"(graph g [n: 3..9, m: 2..] (x: f32[n, m, 4]) {
    y = reshape(x) {shape = [n * m, 4]}
    z = relu(y)
    return z
  })")));
  const SpecialGraph special = specialise(parse_graph(flat_rows), {{"n", {3, 9, 8}}});
  EXPECT_EQ(special.sizes[0], (DimensionBounds{3, 9}));
  EXPECT_EQ(special.sizes[1].low, 2);
  EXPECT_EQ(typical_shape(special.graph.values[special.graph.nodes[0].outputs[0]].type), (Shape{8 * 128, 4}));
}

TEST(Profile, WhatNobodySaysIsAsUsual) {
  const auto typical = [](const Graph& graph, size_t node) {
    return typical_shape(graph.values[graph.nodes[node].outputs[0]].type);
  };
  const Graph model = parse_graph(R"(graph g [n: 1.., h: 1.., w: 1..100, s: 256.., t: 0..]
      (x: f32[n, 3, h, w], y: f32[n, s], z: f32[t]) {
    a = relu(x)
    b = relu(y)
    c = relu(z)
    return a, b, c
  })");
  const Graph usual = with_elements(model);
  EXPECT_EQ(typical(usual, 0), (Shape{1, 3, 224, 100}));  // an image
  EXPECT_EQ(typical(usual, 1), (Shape{1, 256}));          // texts of this length or more
  EXPECT_EQ(typical(usual, 2), (Shape{128}));
  const Graph special = specialise(model, {{"h", {32, 640, 64}}, {"w", {8, 16}}}).graph;
  EXPECT_EQ(typical(special, 0), (Shape{1, 3, 64, 16}));
}

const char* const halves = R"(graph g [n: 2..64, m: 1..32] (x: f32[n], w: f32[m]) where n // 2 == m {
  y = relu(x)
  z = relu(w)
  return y, z
})";

TEST(Profile, WhatEqualitiesSayFollows) {
  const SpecialGraph special = specialise(parse_graph(halves), {{"n", {10, 10}}});
  EXPECT_TRUE(special.graph.symbols.empty());
  EXPECT_TRUE(special.graph.equalities.empty());
  EXPECT_EQ(special.sizes[1], (DimensionBounds{5, 5}));
  const SpecialGraph range = specialise(parse_graph(halves), {{"m", {4, 8}}});
  EXPECT_EQ(range.graph.symbols.size(), 2u);
  EXPECT_EQ(range.graph.equalities.size(), 1u);
}

TEST(Profile, WhatTheModelCannotHaveIsAnError) {
  const auto error = [](const char* model, const Profile& profile) -> std::string {
    try {
      specialise(parse_graph(model), profile);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::shape);
      EXPECT_NE(std::string(error.what()).find("help:"), std::string::npos);
      return error.what();
    }
    return "none";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, error(flat_rows, {{"k", {1, 1}}}), "`n` 1..64, `m` 2..");
  EXPECT_PRED2(has, error(flat_rows, {}), "names no dimension");
  EXPECT_PRED2(has, error(flat_rows, {{"n", {0, 4}}}), "sizes of `n` are 1..64");
  EXPECT_PRED2(has, error(flat_rows, {{"n", {60, 65}}}), "sizes of `n` are 1..64");
  EXPECT_PRED2(has, error(flat_rows, {{"m", {9, 4}}}), "smallest size first");
  EXPECT_PRED2(has, error(flat_rows, {{"m", {4, 9, 10}}}), "smallest size first");
  EXPECT_PRED2(has, error(halves, {{"n", {10, 10}}, {"m", {4, 4}}}), "are not equal there");
  EXPECT_PRED2(has, error(halves, {{"n", {2, 9}}, {"m", {5, 7}}}), "are not equal there");
  EXPECT_PRED2(has, error("graph g (x: f32[3]) {\n y = relu(x)\n return y\n}", {{"n", {1, 1}}}), "no open dimensions");
}

TEST(Profile, APlanOfItsOwnIsThatOfTheModelAtThisSize) {
  const std::string body = R"( {
    w = constant [0.125]: f32[64, 48]
    a = matmul(x, w)
    y = relu(a)
    return y
  })";
  const Target target = parse_target("cpu");
  CompileOptions options;
  options.profiles = {{{"n", {8, 8}}}, {{"n", {100, 200}}}};
  CompileReport report;
  const Graph model = parse_graph("graph g [n: 1..500] (x: f32[n, 64])" + body);
  Executable executable = compile(model, target, options, &report);
  const Executable alone = compile(parse_graph("graph g (x: f32[8, 64])" + body), target);
  const auto kernels_of = [](const Plan& plan) {
    std::vector<std::string> kernels;
    for (const Step& step : plan.steps) kernels.push_back(step.kernel);
    return kernels;
  };
  ASSERT_EQ(executable.plans().special.size(), 2u);
  EXPECT_EQ(kernels_of(executable.plans().special[0].plan), kernels_of(alone.plan()));
  EXPECT_NE(kernels_of(executable.plans().special[0].plan), kernels_of(executable.plan()));
  std::set<std::string> kernels;
  for (const auto& piece : report.pieces) kernels.insert(piece.kernels.begin(), piece.kernels.end());
  EXPECT_EQ(static_cast<int>(kernels.size()), report.kernels);
  for (const int64_t n : {1, 8, 9, 100, 150, 500}) {
    const NDArray x = test::random_array({n, 64}, 1);
    const NDArray got = executable.run({x}).at(0), wanted = test::evaluate(model, {x}).at(0);
    ASSERT_EQ(got.shape(), wanted.shape());
    for (int64_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got.get_float(i), wanted.get_float(i), 1e-5) << n;
  }
}

TEST(Profile, PlansRunOnEmulatedBoards) {
  const Graph model = parse_graph("graph g (x: f32[n, 6]) {\n y = softmax(x)\n z = relu(y)\n return z\n}");
  CompileOptions options;
  options.profiles = {{{"n", {8, 8}}}, {{"n", {10, 20}}}};
  for (const tw::test::Machine& machine : tw::test::machines) {
    Executable executable = compile(model, parse_target(machine.target), options);
    for (const int64_t n : {8, 15, 3}) {
      const NDArray x = test::random_array({n, 6}, 1);
      const NDArray got = tw::test::run_on(machine, executable, {x}).at(0), wanted = test::evaluate(model, {x}).at(0);
      ASSERT_EQ(got.shape(), wanted.shape());
      for (int64_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got.get_float(i), wanted.get_float(i), 1e-5) << machine.target << ", " << n;
    }
  }
}

TEST(ConstantPool, StoresEqualBytesOnce) {
  const NDArray a = test::random_array({4, 6}, 1), same = a.clone(), other = test::random_array({4, 6}, 2);
  const NDArray reshaped(f32, {24}, const_cast<void*>(a.data()), std::make_shared<const NDArray>(a));
  const NDArray part(f32, {2, 6}, const_cast<void*>(a.data()), std::make_shared<const NDArray>(a));
  ConstantPool pool;
  EXPECT_EQ(pool.add("a", a, {}).index, 0u);
  EXPECT_EQ(pool.add("same", same, {}).index, 0u);
  EXPECT_EQ(pool.add("other", other, {}).index, 1u);
  EXPECT_EQ(pool.add("reshaped", reshaped, {}).index, 2u);
  EXPECT_EQ(pool.add("part", part, {}).index, 3u);
  EXPECT_EQ(pool.add("again", part.clone(), {}).index, 3u);
  const std::vector<NDArray> packed = pool.pack(1);
  ASSERT_EQ(packed.size(), 4u);
  EXPECT_EQ(pool.infos()[3].shape, (Shape{2, 6}));
  EXPECT_EQ(packed[1].get_float(5), other.get_float(5));
}

}  // namespace
}  // namespace tw::relay
