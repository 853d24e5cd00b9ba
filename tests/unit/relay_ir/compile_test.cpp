// Graphs through the whole compiler, compared with the oracle's answer node by node.
#include "relay_ir/compile/compile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "relay_ir/compile/layout.h"
#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/verify.h"
#include "runtime/artifact/file_map.h"
#include "targets/backend.h"
#include "targets/llvm/compile_image.h"
#include "tensor_ir/pass.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/relay_ir/compiles_right.h"
#include "tests/unit/relay_ir/run.h"
#include "tests/unit/sanitized.h"

namespace tw::relay {
namespace {

using test::evaluate;
using test::expect_close;
using test::expect_compiles_right;
using test::expect_compiles_right_with_random_constants;
using test::random_array;

TEST(Compile, ResidualNetwork) {
  expect_compiles_right(R"(graph g (x: f32[1, 3, 9, 9]) {
    w1 = constant [0.25]: f32[20, 3, 3, 3]
    w2 = constant [0.125]: f32[20, 20, 1, 1]
    b = constant [0.5]: f32[20, 1, 1]
    c1 = conv(x, w1) {pads = [1, 1, 1, 1]}
    a1 = add(c1, b)
    r1 = relu(a1)
    c2 = conv(r1, w2)
    s = add(c2, r1)
    r2 = relu(s)
    p = max_pool(r2) {kernel = [2, 2], `strides` = [2, 2], dilations = [1, 1], pads = [0, 0, 0, 0]}
    m = reduce_mean(p) {axes = [2, 3]}
    f = reshape(m) {shape = [1, 20]}
    v = constant [0.5]: f32[20, 5]
    y = matmul(f, v)
    return y, r2
  })");
}

// Blocked values whose channels do not fill their last block, in reductions, concatenations and slices.
TEST(Compile, PaddedChannelsAreNeverRead) {
  expect_compiles_right(R"(graph g (x: f32[2, 3, 6, 6]) {
    w1 = constant [0.25]: f32[13, 3, 3, 3]
    w2 = constant [0.25]: f32[13, 1, 3, 3]
    c1 = conv(x, w1)
    low = constant [-0.5]: f32[]
    a = subtract(c1, low)
    d = conv(a, w2) {groups = 13, pads = [1, 1, 1, 1]}
    j = concat(a, d) {axis = 1}
    top = slice(d) {axes = [2], starts = [1], sizes = [2]}
    total = reduce_sum(d) {axes = [1, 2, 3], keepdims = 0}
    mean = reduce_mean(d) {axes = [2, 3]}
    w3 = constant [0.5]: f32[4, 13, 1, 1]
    last = conv(d, w3)
    return j, top, total, mean, last
  })");
}

// Groups that fill vectors, divide them, or neither; strides, even kernels, maps and channels that end in part of a
// tile.
TEST(Compile, GroupedConvolutions) {
  struct Case {
    int groups, in, out, size, kernel, stride, pad;
  };
  const Case cases[] = {{3, 24, 24, 9, 3, 1, 1}, {7, 24, 24, 7, 3, 2, 1},  {2, 56, 56, 5, 3, 1, 1},
                        {5, 40, 40, 4, 3, 1, 1}, {3, 20, 20, 30, 3, 1, 1}, {11, 8, 8, 7, 3, 1, 1},
                        {9, 4, 4, 10, 3, 2, 1},  {3, 16, 16, 15, 5, 1, 2}, {2, 32, 48, 6, 3, 1, 1},
                        {3, 12, 24, 8, 1, 1, 0}, {2, 24, 16, 8, 2, 2, 0},  {8, 2, 2, 6, 3, 1, 1},
                        {6, 3, 5, 6, 3, 1, 1},   {12, 1, 2, 6, 3, 1, 1},   {12, 2, 1, 6, 3, 1, 1}};
  for (size_t i = 0; i < std::size(cases); i += tw::test::is_sanitized ? 2 : 1) {
    const Case& c = cases[i];
    const std::string groups = std::to_string(c.groups), in = std::to_string(c.groups * c.in),
                      out = std::to_string(c.groups * c.out), kernel = std::to_string(c.kernel),
                      size = std::to_string(c.size), stride = std::to_string(c.stride), pad = std::to_string(c.pad);
    SCOPED_TRACE(in + " -> " + out + " in " + groups + " groups, " + kernel + "x" + kernel + ", stride " + stride);
    expect_compiles_right_with_random_constants(
        "graph g (x: f32[1, 3, " + size + ", " + size + "]) {\n w = constant [0.1]: f32[" + in +
        ", 3, 1, 1]\n g = constant [0.1]: f32[" + out + ", " + std::to_string(c.in) + ", " + kernel + ", " + kernel +
        "]\n b = constant [0.1]: f32[" + out + ", 1, 1]\n l = constant [0.1]: f32[5, " + out +
        ", 1, 1]\n c1 = conv(x, w)\n c2 = conv(c1, g) {groups = " + groups + ", pads = [" + pad + ", " + pad + ", " +
        pad + ", " + pad + "], `strides` = [" + stride + ", " + stride +
        "]}\n a = add(c2, b)\n r = relu(a)\n c3 = conv(r, l)\n return r, c3\n}");
  }
}

// Units that shuffle channels and take half of them, of widths that fill no blocks; the last result keeps its order.
TEST(Compile, ShuffledChannels) {
  expect_compiles_right_with_random_constants(R"(graph g (x: f32[1, 3, 7, 7]) {
    w1 = constant [0.1]: f32[26, 3, 1, 1]
    w2 = constant [0.1]: f32[26, 3, 1, 1]
    w3 = constant [0.1]: f32[26, 26, 1, 1]
    w4 = constant [0.1]: f32[52, 1, 3, 3]
    w5 = constant [0.1]: f32[40, 52, 1, 1]
    b = constant [0.1]: f32[52, 1, 1]
    c1 = conv(x, w1)
    c2 = conv(x, w2)
    j1 = concat(c1, c2) {axis = 1}
    r1 = reshape(j1) {shape = [1, 2, 26, 7, 7]}
    t1 = transpose(r1) {perm = [0, 2, 1, 3, 4]}
    s1 = reshape(t1) {shape = [1, 52, 7, 7]}
    low = slice(s1) {axes = [1], starts = [0], sizes = [26]}
    high = slice(s1) {axes = [1], starts = [26], sizes = [26]}
    c3 = conv(high, w3)
    a3 = relu(c3)
    j2 = concat(low, a3) {axis = 1}
    r2 = reshape(j2) {shape = [1, 2, 26, 7, 7]}
    t2 = transpose(r2) {perm = [0, 2, 1, 3, 4]}
    s2 = reshape(t2) {shape = [1, 52, 7, 7]}
    d = conv(s2, w4) {groups = 52, pads = [1, 1, 1, 1]}
    e = add(d, b)
    p = max_pool(e) {kernel = [2, 2], `strides` = [2, 2], dilations = [1, 1], pads = [0, 0, 0, 0]}
    y = conv(p, w5)
    last = slice(s1) {axes = [1], starts = [20], sizes = [12]}
    z = relu(last)
    return y, z
  })");
}

// Elementwise operators are part of the copy that puts blocked channels together, whether its parts fill blocks or not.
TEST(Compile, ConcatenationsOfBlocksWithEpilogues) {
  expect_compiles_right_with_random_constants(R"(graph g (x: f32[1, 3, 6, 5]) {
    w1 = constant [0.1]: f32[32, 3, 1, 1]
    w2 = constant [0.1]: f32[48, 3, 1, 1]
    w3 = constant [0.1]: f32[20, 80, 1, 1]
    s = constant [0.1]: f32[80, 1, 1]
    t = constant [0.1]: f32[1, 80, 1, 1]
    two = constant [2]: f32[]
    a = conv(x, w1)
    b = conv(x, w2)
    j = concat(a, b) {axis = 1}
    m = multiply(j, s)
    n = add(m, t)
    r = relu(n)
    c = conv(r, w3)
    k = concat(j, c, j) {axis = -3}
    gate = sigmoid(k)
    silu = multiply(k, gate)
    halves = divide(silu, two)
    top = slice(halves) {axes = [1], starts = [70], sizes = [60]}
    e = exp(top)
    return r, halves, e
  })");
}

TEST(Compile, OutputsThatAreViewsInputsOrConstants) {
  expect_compiles_right(R"(graph g (x: f32[2, 6], unused: i64[3]) {
    k = constant [1, 2, 3]: i32[3]
    one = constant [4]: f32[]
    r = reshape(x) {shape = [3, 4]}
    e = negate(r)
    v = reshape(e) {shape = [12]}
    return first = x, second = x, r, e, v, k, one
  })");
}

TEST(Compile, EmptyTensors) {
  expect_compiles_right(R"(graph g (x: f32[0, 4], y: f32[2, 4]) {
    e = negate(x)
    j = concat(e, y) {axis = 0}
    s = reduce_sum(x) {axes = [0]}
    return e, j, s
  })");
}

TEST(Compile, AttentionShapes) {
  expect_compiles_right(R"(graph g (q: f32[2, 5, 8], k: f32[2, 7, 8], mask: bool[5, 7]) {
    scale = constant [0.3]: f32[]
    zero = constant [0]: f32[]
    t = transpose(k) {perm = [0, 2, 1]}
    s = matmul(q, t)
    scaled = multiply(s, scale)
    masked = `where`(mask, scaled, zero)
    m = reduce_max(masked) {axes = [2]}
    d = subtract(masked, m)
    sum = reduce_sum(d) {axes = [2]}
    n = divide(d, sum)
    y = matmul(n, k)
    return y, m
  })");
}

// Slices of whole rows are names of bytes that are there: of inputs, of results, of other slices, at odd places.
TEST(Compile, SlicesThatAreViews) {
  expect_compiles_right(R"(graph g (x: f32[4, 3, 16], y: f32[6, 5]) {
    whole = exp(x)
    rows = slice(whole) {axes = [0], starts = [1], sizes = [2]}
    row = slice(rows) {axes = [0, 1], starts = [1, 1], sizes = [1, 2]}
    part = slice(row) {axes = [1], starts = [1], sizes = [1]}
    a = negate(row)
    b = negate(part)
    joined = reshape(rows) {shape = [6, 16]}
    given = slice(x) {axes = [0], starts = [3], sizes = [1]}
    c = tanh(given)
    odd = slice(y) {axes = [0], starts = [1], sizes = [3]}
    d = negate(odd)
    left = slice(rows) {axes = [0], starts = [0], sizes = [1]}
    same = reshape(left) {shape = [48]}
    return whole, a, b, joined, c, d, left, same
  })");
  const Graph graph = parse_graph(R"(graph g (x: f32[4, 16]) {
    e = exp(x)
    s = slice(e) {axes = [0], starts = [1], sizes = [2]}
    y = sqrt(s)
    z = negate(e)
    return y, z
  })");
  EXPECT_EQ(compile(graph, parse_target("cpu")).plan().steps.size(), 3u);
}

// Rotations of halves are one kernel: parts of a small concatenation are computed where they go.
TEST(Compile, RotaryEmbeddingIsOneKernel) {
  const std::string text = R"(graph g (x: f32[1, 3, 5, 8], cosine: f32[5, 8], sine: f32[5, 8]) {
    a = slice(x) {axes = [3], starts = [0], sizes = [4]}
    b = slice(x) {axes = [3], starts = [4], sizes = [4]}
    n = negate(b)
    t = concat(n, a) {axis = 3}
    p = multiply(x, cosine)
    q = multiply(t, sine)
    y = add(p, q)
    return y
  })";
  expect_compiles_right(text);
  EXPECT_EQ(compile(parse_graph(text), parse_target("cpu")).plan().steps.size(), 1u);
}

TEST(Compile, IntegersAndCasts) {
  expect_compiles_right(R"(graph g (x: i64[3, 5], y: i32[5]) {
    a = cast(y) {to = "i64"}
    s = add(x, a)
    c = cast(s) {to = "u8"}
    f = cast(c) {to = "f32"}
    h = cast(f) {to = "f16"}
    b = less(x, s)
    return s, c, f, h, b
  })");
}

// A convolution that nothing follows goes to a blocked result as one with an activation does: vectors of channels.
TEST(Compile, ProductsGoToBlockedResultsThroughACopy) {
  const Graph graph = parse_graph(R"(graph g (x: f32[1, 32, 20, 20]) {
    w1 = constant [0.25]: f32[32, 32, 1, 1]
    w2 = constant [0.125]: f32[32, 32, 1, 1]
    c = conv(x, w1)
    m = max_pool(c) {kernel = [2, 2], `strides` = [2, 2], dilations = [1, 1], pads = [0, 0, 0, 0]}
    d = conv(m, w2)
    e = relu(d)
    return e
  })");
  expect_compiles_right(graph);
  int blocked = 0;
  CompileOptions options;
  options.schedule = [&](const Func& func, const Target& target) {
    const Schedule schedule = target.default_schedule(func, target);
    const Buffer output = func.buffers.back();
    if (output.rank() == 4 && func.name == "conv") {  // its pixels are one axis
      ++blocked;
      const Block& last = Schedule(func).node(Schedule(func).blocks().back());
      EXPECT_EQ(last.iters.size(), 3u) << "dimensions as the graph has them";
      EXPECT_FALSE(last.init.is_defined());
    }
    return schedule;
  };
  options.jobs = 1;
  compile(graph, parse_target("cpu"), options);
  EXPECT_GE(blocked, 1);
}

// Rows of few pixels would leave register tiles half empty, and the last tile of a row is seldom full.
TEST(Compile, RowsOfPixelsAreOneRow) {
  const auto spatial_axes = [](int64_t size) {
    const Graph graph =
        parse_graph("graph g (x: f32[1, 32, " + std::to_string(size) + ", " + std::to_string(size) +
                    "]) { w = constant [0.25]: f32[32, 32, 1, 1]\n y = conv(x, w)\n z = relu(y)\n return z }");
    expect_compiles_right(graph);
    size_t found = 0;
    CompileOptions options;
    options.jobs = 1;
    options.schedule = [&](const Func& func, const Target& target) {
      if (func.name == "conv") found = Schedule(func).node(Schedule(func).blocks().back()).iters.size();
      return target.default_schedule(func, target);
    };
    compile(graph, parse_target("cpu"), options);
    return found;
  };
  EXPECT_EQ(spatial_axes(7), 3u);
  EXPECT_EQ(spatial_axes(40), 3u);
}

// Twelve rows in four steps of one blocked image have one pointer and constants, and none of them is reloaded.
TEST(Compile, RowsOfATileShareAPointer) {
  const Graph graph = parse_graph(R"(graph g (x: f32[1, 48, 35, 35]) {
    w1 = constant [0.25]: f32[48, 48, 1, 1]
    w2 = constant [0.125]: f32[64, 48, 5, 5]
    c = conv(x, w1)
    r = relu(c)
    d = conv(r, w2) {pads = [2, 2, 2, 2]}
    y = relu(d)
    return y
  })");
  Target target = parse_target("x86:avx512");
  target.l2.bytes = 2 << 20, target.l3.bytes = 64 << 20, target.threads = 2;
  std::string assembly;
  CompileOptions options;
  options.jobs = 1;
  options.schedule = [&](const Func& func, const Target& machine) {
    if (to_text(func).find(": 5 = ") == std::string::npos) return machine.default_schedule(func, machine);
    const Schedule schedule = machine.decided_schedule(func, machine, {{"tile", {12, 2}}, {"row_a_task", {1}}});
    assembly = emit_text(lower(schedule.func(), machine, "k").kernels, machine, EmitForm::assembly);
    return schedule;
  };
  compile(graph, target, options);
  const auto count_of = [&](const std::string& word) {
    int count = 0;
    for (size_t at = 0; (at = assembly.find(word, at)) != std::string::npos; at += word.size()) ++count;
    return count;
  };
  EXPECT_GT(count_of("vfmadd"), 100);
  EXPECT_LT(count_of("8-byte Reload"), 60) << assembly;
}

TEST(Compile, EqualLayersShareTheirKernels) {
  const Graph graph = parse_graph(R"(graph g (x: f32[4, 8]) {
    w1 = constant [0.5]: f32[8, 8]
    w2 = constant [0.25]: f32[8, 8]
    a = matmul(x, w1)
    b = relu(a)
    c = matmul(b, w2)
    d = relu(c)
    return d
  })");
  const Executable executable = compile(graph, parse_target("cpu"));
  std::set<std::string> kernels;
  for (const Step& step : executable.plan().steps) kernels.insert(step.kernel);
  EXPECT_EQ(kernels.size() * 2, executable.plan().steps.size());
}

TEST(Compile, KernelsAreNamedByWhatTheyCompute) {
  const auto kernels_of = [](const std::string& text) {
    const Executable executable = compile(parse_graph(text), parse_target("cpu"));
    std::vector<std::string> kernels;
    for (const Step& step : executable.plan().steps) kernels.push_back(step.kernel);
    return kernels;
  };
  const std::string end = "d = conv(c, w)\n return d\n}";
  const std::string begin = "graph g (x: f32[1, 8, 9, 9]) {\n w = constant [0.25]: f32[8, 8, 1, 1]\n";
  const auto one = kernels_of(begin + "c = max_pool(x) {kernel = [3, 3], `strides` = [2, 2]}\n" + end);
  const auto other = kernels_of(begin + "c = max_pool(x) {kernel = [2, 2], `strides` = [2, 2]}\n" + end);
  ASSERT_EQ(one.size(), other.size());
  EXPECT_NE(one.front(), other.front());
  EXPECT_EQ(one.back(), other.back());
}

TEST(Compile, ReportsSayWhatWasDone) {
  const auto directory = std::filesystem::temp_directory_path() / ("tilewright-report-" + std::to_string(getpid()));
  KernelCache cache(directory);
  const Graph graph = parse_graph(R"(graph g (x: f32[64, 64]) {
    a = exp(x)
    b = softmax(a) {axis = -1}
    c = exp(b)
    return c
  })");
  CompileOptions options;
  options.cache = &cache;
  // Stands for a schedule that has failed to prove its loops.
  options.schedule = [](const Func& func, const Target& target) {
    Schedule schedule = target.default_schedule(func, target);
    Schedule marked(schedule.func());
    marked.annotate(marked.loops(marked.blocks().back()).front(), "independence_unproven", int64_t{1});
    return marked;
  };
  CompileReport cold, warm;
  const auto first = compile(graph, parse_target("cpu"), options, &cold);
  const auto second = compile(graph, parse_target("cpu"), options, &warm);
  std::filesystem::remove_all(directory);
  EXPECT_GT(cold.kernels, 0);
  EXPECT_EQ(cold.cached_kernels, 0);
  EXPECT_EQ(warm.cached_kernels, cold.kernels);
  EXPECT_GE(cold.groups, cold.funcs);
  EXPECT_FALSE(cold.phases.empty());
  ASSERT_EQ(cold.serial_loops.size(), static_cast<size_t>(cold.groups));
  EXPECT_NE(cold.serial_loops[0].find(": loop `"), std::string::npos);
  ASSERT_EQ(first.plan().steps.size(), second.plan().steps.size());
  for (size_t i = 0; i < first.plan().steps.size(); ++i)
    EXPECT_EQ(first.plan().steps[i].kernel, second.plan().steps[i].kernel);
}

// A schedule that leaves the loops over a register buffer as they are.
TEST(Compile, RegistersThatVariablesIndexAreMemoryAndReported) {
  const Graph graph = parse_graph("graph g (x: f32[40]) {\n y = relu(x)\n return y\n}");
  CompileOptions options;
  options.schedule = [](const Func& func, const Target&) {
    Schedule schedule(func);
    schedule.cache_write(schedule.blocks().back(), func.buffers.back()->name, Scope::register_);
    return schedule;
  };
  CompileReport report;
  Executable executable = compile(graph, parse_target("cpu"), options, &report);
  ASSERT_EQ(report.spilled_buffers.size(), 1u);
  EXPECT_TRUE(report.spilled_buffers[0].starts_with("y: `")) << report.spilled_buffers[0];
  std::mt19937 random(1);
  const std::vector<NDArray> inputs = {random_array(graph.values[graph.inputs[0]].type, random)};
  const NDArray got = executable.run(inputs)[0], expected = evaluate(graph, inputs)[0];
  for (int64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got.get_float(i), expected.get_float(i));
}

// Every pass, alone, on a graph that gives it work: the same answer.
TEST(Passes, KeepTheMeaning) {
  const Graph graph = parse_graph(R"(graph g (x: f32[1, 2, 5, 5]) {
    w = constant [0.25]: f32[3, 2, 3, 3]
    two = constant [2]: f32[]
    scale = constant [2, -3, 0.5]: f32[1, 3, 1, 1]
    p = pad(x) {pads = [0, 0, 1, 0, 0, 0, 1, 2]}
    c = conv(p, w)
    s = multiply(c, scale)
    t = add(s, scale)
    u = power(t, two)
    v = transpose(u) {perm = [1, 0, 2, 3]}
    r = reshape(v) {shape = [3, 25]}
    q = reshape(r) {shape = [75]}
    e1 = exp(q)
    e2 = exp(q)
    y = subtract(e1, e2)
    k = negate(scale)
    z = multiply(u, k)
    return q, y, z
  })");
  std::mt19937 random(3);
  const std::vector<NDArray> inputs = {random_array(graph.values[graph.inputs[0]].type, random)};
  const auto expected = evaluate(graph, inputs);
  const Target target = parse_target("x86:avx2");
  for (const std::string& name : pass_names()) {
    const Graph changed = find_pass(name)(graph, {target});
    verify(changed);
    const auto outputs = evaluate(changed, inputs);
    ASSERT_EQ(outputs.size(), expected.size()) << name;
    for (size_t i = 0; i < outputs.size(); ++i) expect_close(outputs[i], expected[i], name);
  }
}

// What a backend lists exists, and in the order in which passes run.
TEST(Passes, AreThoseThatBackendsList) {
  const std::vector<std::string> names = pass_names();
  for (const char* name : {"x86", "aarch64", "cuda:sm_80"}) {
    const Backend& backend = *parse_target(name).backend;
    auto at = names.begin();
    for (const std::string_view pass : backend.graph_passes) {
      at = std::find(at, names.end(), pass);
      ASSERT_NE(at, names.end()) << pass;
    }
    EXPECT_FALSE(backend.lowering.empty());
    for (const std::string_view pass : backend.lowering) EXPECT_TRUE(tw::find_pass(pass)) << pass;
  }
}

TEST(PackConstants, PackedOnesLieSideBySide) {
  std::mt19937 random(7);
  const auto array = [&](const Shape& shape) { return random_array({f32, {shape.begin(), shape.end()}}, random); };
  const NDArray first = array({5, 4}), kept = array({3}), last = array({2, 3});
  const IndexMap transposed = parse_index_map("(i, j) -> (j, i)"),
                 panels = parse_index_map("(i, j) -> (j // 4, i, j % 4)");
  const auto packed = pack_constants({{first, {transposed, panels}}, {kept, {}}, {last, {panels}}}, 2);
  ASSERT_EQ(packed.size(), 3u);
  EXPECT_EQ(packed[0].shape(), (Shape{2, 4, 4}));
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 8; ++j)
      EXPECT_EQ(packed[0].get_float(j / 4 * 16 + i * 4 + j % 4), j < 5 ? first.get_float(j * 4 + i) : 0.0);
  }
  EXPECT_EQ(packed[1].data(), kept.data());
  EXPECT_EQ(packed[2].as<char>(), packed[0].as<char>() + 128) << "in one storage";
  EXPECT_EQ(packed[2].get_float(6), last.get_float(5));
  EXPECT_EQ(packed[2].get_float(7), 0.0) << "padding";
}

TEST(PackConstants, LargeOnesMoveInParts) {
  std::mt19937 random(7);
  const NDArray array = random_array({f32, {1, 1500, 1700}}, random);
  const auto path = std::filesystem::temp_directory_path() / ("tw_pack_" + std::to_string(getpid()));
  const std::span<const std::byte> bytes(array.as<std::byte>(), array.byte_size());
  write_file(path, {{bytes}});
  const NDArray in_file(f32, array.shape(), FileMap::open(path));
  const IndexMap panels = parse_index_map("(b, i, j) -> (b, j // 24, i, j % 24)"),
                 transposed = parse_index_map("(b, i, j) -> (b, i // 16, j, i % 16)");
  const auto packed = pack_constants({{array, {panels}}, {in_file, {transposed}}, {in_file, {}}}, 2);
  EXPECT_EQ(packed[0].shape(), (Shape{1, 71, 1500, 24}));
  EXPECT_EQ(packed[1].shape(), (Shape{1, 94, 1700, 16}));
  const auto* from = array.as<float>();
  int64_t wrong = 0;
  for (int64_t i = 0; i < 1500; ++i) {
    for (int64_t j = 0; j < 1700; ++j) {
      wrong += packed[0].as<float>()[(j / 24 * 1500 + i) * 24 + j % 24] != from[i * 1700 + j];
      wrong += packed[1].as<float>()[(i / 16 * 1700 + j) * 16 + i % 16] != from[i * 1700 + j];
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(packed[0].as<float>()[packed[0].size() - 1], 0.0f) << "padding";
  EXPECT_EQ(std::memcmp(packed[2].data(), from, array.byte_size()), 0);
  EXPECT_FALSE(packed[2].file()) << "an executable needs no file of the model's";
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tw::relay
