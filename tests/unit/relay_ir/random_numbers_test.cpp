// Random numbers: those of a state are always the same, whatever computes them, and runs have states of their own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "relay_ir/compile/compile.h"
#include "relay_ir/compile/profile.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"
#include "tensor_ir/scalar_meaning.h"
#include "tests/unit/machines.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay {
namespace {

// The first of a node's own stream, as they are, as floats, and of two steps of a loop.
const char* const draws = R"(graph draws (x: f32[3, 700], state: u64[2] random) {
  own = random_bits(state) {shape = [2], first = [8]}
  y = random_bits(own) {shape = [3, 700]}
  bits = constant [40]: u64[]
  shifted = shift(y, bits) {left = 0}
  whole = cast(shifted) {to = "f32"}
  scale = constant [5.9604644775390625e-08]: f32[]
  unit = multiply(whole, scale)
  z = add(x, unit)
  steps = loop(_, state) {steps = [3], carried = 0}: u64[3, 5]
  region[step: 0..2] (around: u64[2]) {
    of_step = random_bits(around) {shape = [2], first = [step * 2]}
    drawn = random_bits(of_step) {shape = [5]}
    return drawn
  }
  return y, z, steps
})";

Graph parsed(const char* text) {
  Graph graph = parse_graph(text);
  verify(graph);
  return graph;
}

bool is_same(const NDArray& a, const NDArray& b) {
  if (a.shape() != b.shape()) return false;
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.dtype().is_float() ? a.get_float(i) != b.get_float(i) : a.get_int(i) != b.get_int(i)) return false;
  return true;
}

bool is_same(const std::vector<NDArray>& a, const std::vector<NDArray>& b) {
  return std::ranges::equal(a, b, [](const NDArray& x, const NDArray& y) { return is_same(x, y); });
}

NDArray zeros() {
  NDArray x(f32, {3, 700});
  std::memset(x.data(), 0, x.byte_size());
  return x;
}

TEST(Random, ElementsAreTheGeneratorsBlocks) {
  const uint64_t key = 0x0123456789abcdef, high = 0xfedcba9876543210;
  const NDArray state = int_array({static_cast<int64_t>(key), static_cast<int64_t>(high)}, u64);
  const NDArray drawn =
      evaluate_op(*find_op("random_bits"),
                  attributes_of({{"shape", std::vector<Expr>{2, 3}}, {"first", std::vector<Expr>{7}}}), {state})[0];
  for (int64_t i = 0; i < drawn.size(); ++i) {
    const auto words = meaning::philox(key, static_cast<uint64_t>(7 + i), high);
    EXPECT_EQ(static_cast<uint64_t>(drawn.get_int(i)), uint64_t{words[1]} << 32 | words[0]);
  }
}

TEST(Random, TextsParseAndPrint) {
  const Graph graph = parsed(draws);
  EXPECT_TRUE(graph.has_random_state);
  EXPECT_EQ(graph.inputs_of_caller(), 1u);
  EXPECT_EQ(to_text(parse_graph(to_text(graph))), to_text(graph));
  EXPECT_THROW(parse_graph("graph g (state: u64[2] random, x: f32[2]) {\n  return x\n}"), Error);
  EXPECT_THROW(verify(parse_graph("graph g (x = sequence(state: u64[2] random)) {\n  return state\n}")), Error);
  EXPECT_THROW(verify(parse_graph("graph g (x: f32[2], state: u64[3] random) {\n  return x\n}")), Error);
}

TEST(Random, RunsAreTheOraclesWithTheirNumber) {
  const Graph graph = parsed(draws);
  Executable executable = compile(graph, parse_target("cpu"));
  ASSERT_EQ(executable.plan().inputs.size(), 1u);
  const auto expected = [&](int64_t seed, int64_t run) {
    return evaluate(graph, {zeros(), int_array({seed, run}, u64)});
  };
  EXPECT_TRUE(is_same(executable.run({zeros()}), evaluate(graph, {zeros()})));
  for (const int threads : {2, 1, 3}) {
    executable.set_threads(threads);
    executable.set_seed(77);
    for (const int64_t run : {0, 1, 2}) EXPECT_TRUE(is_same(executable.run({zeros()}), expected(77, run)));
  }
  EXPECT_FALSE(is_same(expected(77, 0), expected(77, 1)));
  EXPECT_FALSE(is_same(expected(77, 0), expected(78, 0)));
  executable.set_seed(77);
  (void)executable.profile({zeros()}, 2);
  EXPECT_TRUE(is_same(executable.run({zeros()}), expected(77, 1)));
  // An executable that is loaded begins anew; two that share their state go on.
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "tw_random_numbers_test.twa";
  executable.save(path);
  Executable loaded = Executable::load(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(is_same(loaded.run({zeros()}), expected(0, 0)));
  loaded.share_random_state(executable);
  EXPECT_TRUE(is_same(loaded.run({zeros()}), expected(77, 2)));
  EXPECT_TRUE(is_same(executable.run({zeros()}), expected(77, 3)));
}

TEST(Random, MachinesDrawTheSame) {
  const Graph graph = parsed(draws);
  const std::vector<NDArray> expected = evaluate(graph, {zeros()});
  for (const tw::test::Machine& machine : tw::test::machines) {
    Executable executable = compile(graph, parse_target(machine.target));
    EXPECT_TRUE(is_same(tw::test::run_on(machine, executable, {zeros()}), expected)) << machine.target;
  }
  setenv("CUDA_HOME", TW_CUDA_EMULATOR, 1);  // before what this machine has
  Executable executable = compile(graph, parse_target("cuda:sm_90"));
  EXPECT_TRUE(is_same(executable.run({zeros()}), expected));
  EXPECT_TRUE(is_same(executable.run({zeros()}), evaluate(graph, {zeros(), int_array({0, 1}, u64)})));
}

TEST(Random, StatesDifferInEveryNodeStepAndRun) {
  const std::vector<NDArray> results = evaluate(parsed(draws), {zeros()});
  std::set<int64_t> seen;
  int64_t count = 0;
  for (const size_t output : {0, 2})
    for (int64_t i = 0; i < results[output].size(); ++i, ++count) seen.insert(results[output].get_int(i));
  EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
}

TEST(Random, PassesKeepNodesApart) {
  const Graph graph = parsed(R"(graph g (state: u64[2] random) {
    a = random_bits(state) {shape = [4]}
    b = random_bits(state) {shape = [4], first = [4]}
    c = random_bits(state) {shape = [4]}
    return a, b, c
  })");
  const std::vector<NDArray> outputs = compile(graph, parse_target("cpu")).run({});
  EXPECT_FALSE(is_same(outputs[0], outputs[1]));
  EXPECT_TRUE(is_same(outputs[0], outputs[2]));
}

TEST(Random, TheStateMayBeAnOutput) {
  const Graph graph = parsed("graph g (state: u64[2] random) {\n  return state\n}");
  Executable executable = compile(graph, parse_target("cpu"));
  executable.set_seed(~uint64_t{0});
  (void)executable.run({});
  const NDArray state = executable.run({}).at(0);
  EXPECT_EQ(state.get_int(0), -1);
  EXPECT_EQ(state.get_int(1), 1);
}

// The same whatever the sizes are that kernels are compiled for.
TEST(Random, OpenShapesAndProfiles) {
  const Graph graph = parsed(R"(graph g [n: 1..64] (x: f32[n, 9], state: u64[2] random) {
    y = random_bits(state) {shape = [n, 9]}
    return y
  })");
  CompileOptions options;
  options.profiles = {{{"n", {5, 5}}}};
  for (const CompileOptions& chosen : {CompileOptions(), options}) {
    Executable executable = compile(graph, parse_target("cpu"), chosen);
    for (const int64_t n : {1, 5, 33}) {
      const NDArray x = test::random_array({n, 9}, 1);
      executable.set_seed(3);
      EXPECT_TRUE(is_same(executable.run({x}), evaluate(graph, {x, int_array({3, 0}, u64)}))) << n;
      EXPECT_TRUE(is_same(executable.run({x}), evaluate(graph, {x, int_array({3, 1}, u64)}))) << n;
    }
  }
}

}  // namespace
}  // namespace tw::relay
