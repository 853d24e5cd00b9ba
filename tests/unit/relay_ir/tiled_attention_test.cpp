// Attention in tiles on GPUs: the oracle runs it with threads in random order and copies that land late, the emulator
// its text.
#include <gtest/gtest.h>

#include "relay_ir/compile/group.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "targets/cuda/emit.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/cuda_device.h"
#include "tests/unit/mutants.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/targets/run.h"

namespace tw::relay {
namespace {

const Target& sm_90() {
  static const Target target = parse_target("cuda:sm_90");
  return target;
}
const Target& sm_75() {  // without tensor cores of these sizes, and with little shared memory
  static const Target target = parse_target("cuda:sm_75");
  return target;
}

struct TiledCase {
  const char* name;
  const char* text;
  const Target& target = sm_90();
  Precision precision = Precision::f32;
};

const TiledCase tiled_cases[] = {
    {"even", R"(graph g (q: f32[2, 64, 32], k: f32[2, 64, 32], v: f32[2, 64, 32]) {
       y = attention(q, k, v) {scale = 0.25}
       return y
     })"},
    {"tails", R"(graph g (q: f32[1, 3, 37, 16], k: f32[1, 3, 75, 16], v: f32[1, 3, 75, 48]) {
       y = attention(q, k, v) {scale = 0.25}
       return y
     })"},
    {"masked", R"(graph g (q: f32[2, 2, 20, 16], k: f32[2, 2, 70, 16], v: f32[2, 2, 70, 16], m: f32[2, 1, 1, 70]) {
       y = attention(q, k, v, m) {scale = 0.25}
       return y
     })"},
    {"chosen keys, shared heads",
     R"(graph g (q: f32[4, 40, 16], k: f32[2, 70, 16], v: f32[2, 70, 16], m: bool[40, 70]) {
       y = attention(q, k, v, m) {masked = -1e9, zero_if_masked = 1}
       return y
     })"},
    {"by position", R"(graph g (x: f32[2, 50, 2, 48]) {
       a = slice(x) {axes = [3], starts = [0], sizes = [16]}
       b = slice(x) {axes = [3], starts = [16], sizes = [16]}
       c = slice(x) {axes = [3], starts = [32], sizes = [16]}
       q = transpose(a) {perm = [0, 2, 1, 3]}
       k = transpose(b) {perm = [0, 2, 1, 3]}
       v = transpose(c) {perm = [0, 2, 1, 3]}
       o = attention(q, k, v)
       y = transpose(o) {perm = [0, 2, 1, 3]}
       return y
     })"},
    {"keys are columns", R"(graph g (q: f32[3, 37, 32], k: f32[3, 32, 80], v: f32[3, 80, 48]) {
       l = transpose(k) {perm = [0, 2, 1]}
       y = attention(q, l, v) {scale = 0.25}
       return y
     })"},
    {"keys of halves are columns", R"(graph g (q: f16[3, 37, 32], k: f16[3, 32, 70], v: f16[3, 70, 48]) {
       l = transpose(k) {perm = [0, 2, 1]}
       y = attention(q, l, v) {scale = 0.25}
       return y
     })"},
    {"halves", R"(graph g (q: f16[2, 64, 32], k: f16[2, 64, 32], v: f16[2, 64, 32]) {
       y = attention(q, k, v) {scale = 0.25}
       return y
     })"},
    {"brain floats, tails", R"(graph g (q: bf16[3, 50, 64], k: bf16[3, 197, 64], v: bf16[3, 197, 32]) {
       y = attention(q, k, v) {scale = 0.125}
       return y
     })"},
    {"one query of halves", R"(graph g (q: f16[2, 1, 32], k: f16[2, 70, 32], v: f16[2, 70, 32]) {
       y = attention(q, k, v) {scale = 0.25}
       return y
     })"},
    {"one query, as many parts as rows", R"(graph g (q: f32[2, 1, 16], k: f32[2, 256, 16], v: f32[2, 256, 16]) {
       y = attention(q, k, v) {scale = 0.25} decided "query_tile=16 split_kv=16"
       return y
     })"},
    {"halves without tensor cores", R"(graph g (q: f16[3, 37, 32], k: f16[3, 70, 32], v: f16[3, 70, 48]) {
       y = attention(q, k, v) {scale = 0.25}
       return y
     })",
     sm_75()},
    {"wide rows, little shared memory", R"(graph g (q: f32[3, 37, 128], k: f32[3, 70, 128], v: f32[3, 70, 128]) {
       y = attention(q, k, v) {scale = 0.1}
       return y
     })",
     sm_75()},
    {"causal", R"(graph g (q: f32[2, 100, 32], k: f32[2, 100, 32], v: f32[2, 100, 32]) {
       y = attention(q, k, v) {scale = 0.25, causal = 1}
       return y
     })"},
    {"causal, of halves, behind others", R"(graph g (q: f16[2, 75, 32], k: f16[2, 150, 32], v: f16[2, 150, 48]) {
       y = attention(q, k, v) {scale = 0.25, causal = 76}
       return y
     })"},
    {"causal, each part begins within a tile",
     R"(graph g (q: bf16[2, 160, 16], k: bf16[2, 160, 16], v: bf16[2, 160, 16]) {
       y = attention(q, k, v) {scale = 0.25, causal = 7}
       return y
     })"},
    {"causal, some chosen", R"(graph g (q: f16[2, 75, 32], k: f16[2, 75, 32], v: f16[2, 75, 32], m: bool[75]) {
       y = attention(q, k, v, m) {scale = 0.25, causal = 1, zero_if_masked = 1}
       return y
     })"},
    {"tf32", R"(graph g (q: f32[2, 64, 32], k: f32[2, 64, 32], v: f32[2, 64, 32]) {
       y = attention(q, k, v) {scale = 0.25}
       return y
     })",
     sm_90(), Precision::tf32},
    {"tf32, tails, chosen keys",
     R"(graph g (q: f32[4, 37, 16], k: f32[2, 75, 16], v: f32[2, 75, 48], m: bool[37, 75]) {
       y = attention(q, k, v, m) {masked = -1e9, zero_if_masked = 1}
       return y
     })",
     sm_90(), Precision::tf32},
    {"tf32, keys are columns", R"(graph g (q: f32[3, 37, 32], k: f32[3, 32, 80], v: f32[3, 80, 128]) {
       l = transpose(k) {perm = [0, 2, 1]}
       y = attention(q, l, v) {scale = 0.25}
       return y
     })",
     sm_90(), Precision::tf32},
    {"parts without any key that is seen",
     R"(graph g (q: f32[2, 18, 16], k: f32[2, 70, 16], v: f32[2, 70, 16], m: bool[1, 70]) {
       y = attention(q, k, v, m) {zero_if_masked = 1} decided "query_tile=32 split_kv=16"
       return y
     })"},
};

Graph tiled(const TiledCase& c) {
  const Graph graph = parse_graph(c.text);
  return graph.nodes.back().decisions.empty() ? tile_attention(graph, {c.target, c.precision}) : graph;
}

LoweredFunc lowered_attention(const Func& func, const Target& target) {
  return lower(target.default_schedule(func, target).func(), target, "attention");
}

// Weights are rounded as operands are.
double tolerance_of(const Func& func, Precision precision = Precision::f32) {
  const DType dtype = func.buffers.back()->dtype;
  return dtype == bf16 ? 2e-2 : dtype == f16 || precision == Precision::tf32 ? 4e-3 : 1e-5;
}

TEST(TiledAttention, GivesTheOraclesAnswerInOneKernel) {
  for (size_t i = 0; i < std::size(tiled_cases); i += tw::test::is_sanitized ? 3 : 1) {
    const TiledCase& c = tiled_cases[i];
    SCOPED_TRACE(c.name);
    const Graph graph = tiled(c);
    Graph plain = graph;
    for (Node& node : plain.nodes) node.decisions.clear();
    ASSERT_EQ(fuse(graph).size(), 1u);
    const Func as_written = lower_group(plain, fuse(plain)[0]), func = lower_group(graph, fuse(graph)[0]);
    const LoweredFunc lowered = lowered_attention(func, c.target);
    ASSERT_EQ(lowered.kernels.size(), 1u);
    const std::string text = cuda::emit_cuda(lowered.kernels, c.target.shared_bytes);
    const bool has_products = func.buffers[0]->dtype.bytes() == 2 || c.precision == Precision::tf32;
    const bool on_tensor_cores = has_products && c.target.tensor_core_rate > 0;
    EXPECT_EQ(tw::test::count_of(text, "  tw_mma_"), on_tensor_cores ? 2 : 0) << text;
    visit(lowered.kernels[0].func.body, [&](const Allocate& a) {
      if (a.buffer->name.starts_with("attention_rounded"))
        EXPECT_EQ(a.buffer->scope, on_tensor_cores ? Scope::fragment : Scope::shared);
    });
    const std::vector<NDArray> arrays = tw::test::random_buffers(func, 5);
    std::vector<NDArray> expected, tiles, by_oracle;
    for (const NDArray& array : arrays)
      for (auto* copies : {&expected, &tiles, &by_oracle}) copies->push_back(array.clone());
    interpret(as_written, expected);
    interpret(func, tiles);
    EXPECT_LT(tw::test::largest_difference(tiles.back(), expected.back()), tolerance_of(func, c.precision));
    tw::test::interpret_kernels(lowered, func, by_oracle, {.parameters = {}, .seed = 3});
    EXPECT_LT(tw::test::largest_difference(by_oracle.back(), expected.back()), tolerance_of(func, c.precision));
    tw::test::run_on_device(lowered, func, tw::test::emulated_image(text), arrays);
    EXPECT_LT(tw::test::largest_difference(arrays.back(), expected.back()), tolerance_of(func, c.precision));
  }
}

// One kernel for any batch and length.
TEST(TiledAttention, OpenSizesAreOneKernel) {
  for (const char* text : {
           R"(graph g [b: 1.., n: 1..] (q: f16[b, 2, n, 32], k: f16[b, 2, n, 32], v: f16[b, 2, n, 32]) {
       y = attention(q, k, v) {scale = 0.25}
       return y
     })",
           R"(graph g [n: 1.., k: 1..64] (q: f32[3, n, 16], k: f32[3, k, 16], v: f32[3, k, 48], m: f32[n, k]) {
       y = attention(q, k, v, m) {scale = 0.25}
       return y
     })"}) {
    const Graph graph = tile_attention(parse_graph(text), {sm_90()});
    ASSERT_FALSE(graph.nodes.back().decisions.empty());
    Graph plain = graph;
    for (Node& node : plain.nodes) node.decisions.clear();
    const Func as_written = lower_group(plain, fuse(plain)[0]), func = lower_group(graph, fuse(graph)[0]);
    const LoweredFunc lowered = lowered_attention(func, sm_90());
    ASSERT_EQ(lowered.kernels.size(), 1u);
    const std::string program = cuda::emit_cuda(lowered.kernels, sm_90().shared_bytes);
    const std::vector<std::byte> image = tw::test::emulated_image(program);
    for (const int64_t size : {1, 7, 64, 100}) {
      SCOPED_TRACE(size);
      const std::map<std::string, int64_t> sizes = {{"b", 2}, {"n", size}, {"k", size / 2 + 1}};
      std::map<std::string, int64_t> own;
      for (const Var& parameter : func.parameters) own[parameter.name()] = sizes.at(parameter.name());
      const std::vector<NDArray> arrays = tw::test::random_buffers(func, 5, own);
      std::vector<NDArray> expected, by_oracle;
      for (const NDArray& array : arrays)
        for (auto* copies : {&expected, &by_oracle}) copies->push_back(array.clone());
      const InterpretOptions options{.parameters = own, .seed = 3};
      interpret(as_written, expected, options);
      tw::test::interpret_kernels(lowered, func, by_oracle, options);
      EXPECT_LT(tw::test::largest_difference(by_oracle.back(), expected.back()), tolerance_of(func));
      tw::test::run_on_device(lowered, func, image, arrays, own);
      EXPECT_LT(tw::test::largest_difference(arrays.back(), expected.back()), tolerance_of(func));
    }
  }
}

// What a tile of queries does not see is neither read nor computed.
TEST(TiledAttention, CausalTilesEndWhereTheySeeNothingMore) {
  for (const char* type : {"f32", "f16"}) {
    const std::string queries = std::string(type) + "[1, 40, 32]", keys = std::string(type) + "[1, 320, 32]";
    const std::string text = "graph g (q: " + queries + ", k: " + keys + ", v: " + keys +
                             ") {\n y = attention(q, k, v) {causal = 20}\n return y\n}";
    const Graph graph = tile_attention(parse_graph(text), {sm_90()});
    const Func func = lower_group(graph, fuse(graph)[0]);
    const LoweredFunc lowered = lowered_attention(func, sm_90());
    std::vector<NDArray> arrays = tw::test::random_buffers(func, 5);
    std::vector<NDArray> expected, by_oracle;
    for (const NDArray& array : arrays) expected.push_back(array.clone());
    interpret(func, expected);
    for (const size_t input : {1, 2})
      for (int64_t i = 128 * 32; i < arrays[input].size(); ++i) arrays[input].set_float(i, std::nan(""));
    for (const NDArray& array : arrays) by_oracle.push_back(array.clone());
    tw::test::interpret_kernels(lowered, func, by_oracle, {.parameters = {}, .seed = 3});
    EXPECT_LT(tw::test::largest_difference(by_oracle.back(), expected.back()), tolerance_of(func));
    tw::test::run_on_device(lowered, func,
                            tw::test::emulated_image(cuda::emit_cuda(lowered.kernels, sm_90().shared_bytes)), arrays);
    EXPECT_LT(tw::test::largest_difference(arrays.back(), expected.back()), tolerance_of(func));
  }
}

// The oracle finds out where one barrier is missing, or nobody waits for the keys that are on their way.
TEST(TiledAttention, ThreadsWaitNowhereInVain) {
  const Graph graph =
      tile_attention(parse_graph(R"(graph g (q: f16[1, 32, 16], k: f16[1, 150, 16], v: f16[1, 150, 16]) {
       y = attention(q, k, v) {causal = 100}
       return y
     })"),
                     {sm_90()});
  const Func kernel = lowered_attention(lower_group(graph, fuse(graph)[0]), sm_90()).kernels[0].func;
  const std::string text = to_text(kernel);
  const auto is_caught = [&](const std::string& changed) { return tw::test::is_caught(changed, kernel, 1e-2); };
  EXPECT_FALSE(is_caught(text)) << text;
  int barriers = 0, waits = 0;
  for (const std::string& effect : {std::string(" barrier()"), std::string(" wait_copies(0)")}) {
    for (size_t at = text.find(effect); at != std::string::npos; at = text.find(effect, at + 1)) {
      ++(effect == " barrier()" ? barriers : waits);
      EXPECT_TRUE(is_caught(std::string(text).erase(at, effect.size()))) << text.substr(0, at) << " HERE";
    }
  }
  EXPECT_EQ(waits, 1);
  EXPECT_LE(barriers, 7);
}

// Of tiles that the template does not take each stage is scheduled by itself.
TEST(TiledAttention, OtherTilesAreRightToo) {
  const Graph graph = parse_graph(R"(graph g (q: f32[2, 18, 16], k: f32[2, 50, 16], v: f32[2, 50, 8]) {
       y = attention(q, k, v) decided "query_tile=5 split_kv=12"
       return y
     })");
  const Func func = lower_group(graph, fuse(graph)[0]);
  const LoweredFunc lowered = lowered_attention(func, sm_90());
  EXPECT_GT(lowered.kernels.size(), 1u);
  std::vector<NDArray> expected = tw::test::random_buffers(func, 5), actual;
  for (const NDArray& array : expected) actual.push_back(array.clone());
  interpret(func, expected);
  tw::test::interpret_kernels(lowered, func, actual, {.parameters = {}, .seed = 3});
  EXPECT_LT(tw::test::largest_difference(actual.back(), expected.back()), 1e-5);
}

// Whatever the numbers of queries and keys: nothing between the operands and the result is in global memory, and no
// buffer has an element for each query of a head and each key.
TEST(TiledAttention, ScoresAreNeverInMemory) {
  for (const char* type : {"f32", "f16"}) {
    for (const int64_t length : {256, 1024, 4096}) {
      const std::string shape = std::string(type) + "[2, 40, " + std::to_string(length) + ", 64]";
      const std::string text =
          "graph g (q: " + shape + ", k: " + shape + ", v: " + shape + ") {\n y = attention(q, k, v)\n return y\n}";
      const Graph graph = tile_attention(parse_graph(text), {sm_90()});
      const LoweredFunc lowered = lowered_attention(lower_group(graph, fuse(graph)[0]), sm_90());
      EXPECT_TRUE(lowered.temporaries.empty());
      ASSERT_EQ(lowered.kernels.size(), 1u);
      visit(lowered.kernels[0].func.body, [&](const Allocate& a) {
        EXPECT_NE(a.buffer->scope, Scope::global) << a.buffer->name;
        EXPECT_LE(element_count(*const_shape(a.buffer)), 2 * 64 * 64) << a.buffer->name;
      });
    }
  }
}

}  // namespace
}  // namespace tw::relay
