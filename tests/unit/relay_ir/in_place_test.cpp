// Outputs in place of inputs: the same values as without, hazards ordered or refused.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "relay_ir/compile/compile.h"
#include "relay_ir/op.h"
#include "relay_ir/text/parser.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay {
namespace {

using Pairs = std::map<std::string, std::string>;

NDArray small_numbers(const TensorType& type, std::mt19937& random) {
  NDArray array(type.dtype, *static_shape(type));
  for (int64_t i = 0; i < array.size(); ++i) {
    if (type.dtype.is_float()) {
      array.set_float(i, static_cast<double>(random() % 100));
    } else {
      array.set_int(i, static_cast<int64_t>(random() % 9) - 2);
    }
  }
  return array;
}

// Several runs one after the other, whose inputs in place are what the run before has left, beside the oracle.
void expect_updates_in_place(const std::string& text, const Pairs& in_place) {
  SCOPED_TRACE(text);
  const Graph graph = parse_graph(text);
  CompileOptions options;
  options.in_place = in_place;
  options.threads = 2;
  Executable executable = compile(graph, parse_target("cpu"), options);
  std::mt19937 random(5);
  std::vector<NDArray> inputs;
  for (const ValueId id : graph.inputs) inputs.push_back(small_numbers(graph.values[id].type, random));
  for (int round = 0; round < 4; ++round) {
    std::vector<NDArray> copies;
    for (const NDArray& input : inputs) copies.push_back(input.clone());
    const std::vector<NDArray> expected = test::evaluate(graph, copies), outputs = executable.run(inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const TensorInfo& info = executable.plan().outputs[i];
      const bool is_first = std::none_of(executable.plan().outputs.begin(), executable.plan().outputs.begin() + i,
                                         [&](const TensorInfo& other) { return other.name == info.name; });
      ASSERT_EQ(info.in_place >= 0, is_first && in_place.count(info.name) == 1) << info.name;
      if (info.in_place >= 0) {
        EXPECT_EQ(executable.plan().inputs[info.in_place].name, in_place.at(info.name));
        EXPECT_EQ(outputs[i].data(), inputs[info.in_place].data()) << info.name;
      }
      for (int64_t e = 0; e < expected[i].size(); ++e)
        ASSERT_EQ(outputs[i].get_float(e), expected[i].get_float(e)) << info.name << ", element " << e;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorInfo& info = executable.plan().inputs[i];
      const bool is_changed =
          std::any_of(in_place.begin(), in_place.end(), [&](const auto& pair) { return pair.second == info.name; });
      if (!is_changed) {
        for (int64_t e = 0; e < inputs[i].size(); ++e) ASSERT_EQ(inputs[i].get_float(e), copies[i].get_float(e));
        inputs[i] = small_numbers(graph.values[graph.inputs[i]].type, random);
      }
    }
  }
}

ErrorCode refusal(const std::string& text, const Pairs& in_place, const std::string& words) {
  CompileOptions options;
  options.in_place = in_place;
  try {
    compile(parse_graph(text), parse_target("cpu"), options);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    return error.code();
  }
  ADD_FAILURE() << "was not refused: " << text;
  return ErrorCode::internal;
}

TEST(InPlace, EveryUpdateMeansTheSame) {
  expect_updates_in_place(R"(graph g (past: f32[2, 3, 8, 4], new: f32[2, 3, 2, 4], at: i64[2]) {
    y = cache_update(past, new, at)
    return y
  })",
                          {{"y", "past"}});
  expect_updates_in_place(R"(graph g (past: f32[2, 8, 4], new: f32[2, 3, 4], at: i64[2]) {
    y = cache_update(past, new, at) {circular = 1}
    return y
  })",
                          {{"y", "past"}});
  expect_updates_in_place(R"(graph g (past: f32[1, 8, 4], new: f32[1, 3, 4]) {
    y = cache_update(past, new)
    return y
  })",
                          {{"y", "past"}});
  for (const char* reduction : {"none", "add", "max"}) {
    expect_updates_in_place(R"(graph g (past: f32[8, 4], i: i64[3, 1], new: f32[3, 4]) {
      y = scatter_nd(past, i, new) {reduction = ")" +
                                std::string(reduction) + R"("}
      return y
    })",
                            {{"y", "past"}});
    expect_updates_in_place(R"(graph g (past: f32[8, 4], i: i64[2, 4], new: f32[2, 4]) {
      y = scatter_elements(past, i, new) {axis = 0, reduction = ")" +
                                std::string(reduction) + R"("}
      return y
    })",
                            {{"y", "past"}});
  }
}

TEST(InPlace, ChainsViewsAndSeveralCaches) {
  expect_updates_in_place(R"(graph g (k: f32[4, 8], v: f32[4, 8], i: i64[1, 1], j: i64[1, 1], new: f32[1, 8]) {
    a = reshape(k) {shape = [2, 2, 8]}
    b = reshape(a) {shape = [4, 8]}
    c = scatter_nd(b, i, new)
    d = scatter_nd(c, j, new) {reduction = "add"}
    w = scatter_nd(v, j, new)
    s = multiply(d, w)
    return d, w, s
  })",
                          {{"d", "k"}, {"w", "v"}});
  // Nothing is changed at all.
  expect_updates_in_place("graph g (x: f32[4, 8]) {\n y = relu(x)\n return x, y\n}", {{"x", "x"}});
}

// What reads old elements stands behind the update in the text, and is fused with what comes later.
TEST(InPlace, OldElementsAreReadBeforeTheyAreOverwritten) {
  expect_updates_in_place(R"(graph g (past: f32[8, 4], i: i64[1, 1], new: f32[1, 4]) {
    y = scatter_nd(past, i, new)
    whole = reshape(past) {shape = [32]}
    old = multiply(whole, whole)
    flat = reshape(y) {shape = [32]}
    now = multiply(flat, flat)
    both = subtract(now, old)
    return y, both
  })",
                          {{"y", "past"}});
  // The old elements are an output, too.
  expect_updates_in_place(R"(graph g (past: f32[8, 4], i: i64[1, 1], new: f32[1, 4]) {
    y = scatter_nd(past, i, new)
    return y, past, y
  })",
                          {{"y", "past"}});
  // Between two updates.
  expect_updates_in_place(R"(graph g (past: f32[8, 4], i: i64[1, 1], j: i64[1, 1], new: f32[1, 4]) {
    a = scatter_nd(past, i, new)
    y = scatter_nd(a, j, new) {reduction = "mul"}
    before = negate(past)
    between = negate(a)
    after = negate(y)
    return before, between, after, y
  })",
                          {{"y", "past"}});
  // What is written comes from the old elements.
  expect_updates_in_place(R"(graph g (past: f32[8, 4], i: i64[1, 1]) {
    a = slice(past) {axes = [0], starts = [3], sizes = [1]}
    new = multiply(a, a)
    y = scatter_nd(past, i, new)
    return y
  })",
                          {{"y", "past"}});
}

TEST(InPlace, OldElementsThatNeedTheNewOnesAreRefused) {
  const std::string text = R"(graph g (past: f32[8, 4], i: i64[1, 1], new: f32[1, 4]) {
    y = scatter_nd(past, i, new)
    z = subtract(past, y)
    return y, z
  })";
  EXPECT_EQ(refusal(text, {{"y", "past"}}, "reads `past`"), ErrorCode::unsupported);
  const std::string view = R"(graph g (past: f32[8, 16], i: i64[1, 1]) {
    new = slice(past) {axes = [0], starts = [3], sizes = [1]}
    y = scatter_nd(past, i, new)
    return y
  })";
  EXPECT_EQ(refusal(view, {{"y", "past"}}, "while it overwrites"), ErrorCode::unsupported);
}

TEST(InPlace, OtherOutputsAreRefused) {
  const std::string text = R"(graph g (past: f32[8, 4], other: f32[8, 4], new: f32[1, 4], i: i64[1, 1]) {
    grown = concat(past, new) {axis = 0}
    twice = add(past, past)
    y = scatter_nd(past, i, new)
    z = scatter_nd(past, i, new) {reduction = "add"}
    return grown, twice, y, z
  })";
  EXPECT_EQ(refusal(text, {{"grown", "past"}}, "fixed capacity"), ErrorCode::shape);
  EXPECT_EQ(refusal(text, {{"twice", "past"}}, "makes all of its elements anew"), ErrorCode::unsupported);
  EXPECT_EQ(refusal(text, {{"y", "other"}}, "is not made from it"), ErrorCode::unsupported);
  EXPECT_EQ(refusal(text, {{"y", "past"}, {"z", "past"}}, "cannot both"), ErrorCode::input);
  EXPECT_EQ(refusal(text, {{"w", "past"}}, "no output `w`"), ErrorCode::input);
  EXPECT_EQ(refusal(text, {{"y", "w"}}, "no input `w`"), ErrorCode::input);
}

// Nothing of the size of the cache is read or written.
TEST(InPlace, WritesTheUpdateOnly) {
  CompileOptions options;
  options.in_place = {{"y", "past"}};
  const Graph graph = parse_graph(R"(graph g (past: f32[1, 4, 4096, 64], new: f32[1, 4, 1, 64], at: i64[1]) {
    y = cache_update(past, new, at)
    return y
  })");
  const Executable executable = compile(graph, parse_target("cpu"), options);
  ASSERT_EQ(executable.plan().steps.size(), 1u);
  EXPECT_LT(executable.plan().steps[0].bytes, 10'000);
  EXPECT_EQ(executable.plan().arena_bytes, 0);
}

TEST(InPlace, RunsIntoTheInputsArrayOnly) {
  CompileOptions options;
  options.in_place = {{"y", "past"}};
  const Graph graph = parse_graph(R"(graph g (past: f32[4, 4], i: i64[1, 1], new: f32[1, 4]) {
    y = scatter_nd(past, i, new)
    return y
  })");
  Executable executable = compile(graph, parse_target("cpu"), options);
  std::mt19937 random(1);
  std::vector<NDArray> inputs;
  for (const ValueId id : graph.inputs) inputs.push_back(small_numbers(graph.values[id].type, random));
  std::vector<NDArray> own{NDArray(f32, {4, 4})};
  EXPECT_THROW(executable.run_into(inputs, own), Error);
  std::vector<NDArray> shared{inputs[0]};
  executable.run_into(inputs, shared);
  // An array that kernels cannot take where it lies is copied, and copied back.
  std::vector<std::byte> bytes(65 + 64);
  auto* odd = bytes.data() + (reinterpret_cast<uintptr_t>(bytes.data()) % 2 == 0 ? 1 : 0);
  NDArray unaligned(f32, {4, 4}, odd, nullptr);
  std::memcpy(odd, inputs[0].data(), 64);
  inputs[1].set_int(0, 2);
  const std::vector<NDArray> expected = test::evaluate(graph, inputs);
  inputs[0] = unaligned;
  executable.run(inputs);
  EXPECT_EQ(std::memcmp(odd, expected[0].data(), 64), 0);
}

}  // namespace
}  // namespace tw::relay
