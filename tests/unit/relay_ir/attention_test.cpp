// Attention's schedule by the oracle: on cores of every width, for shapes that divide and shapes that do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "relay_ir/compile/compile.h"
#include "relay_ir/compile/group.h"
#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/targets/same_meaning.h"

namespace tw::relay {
namespace {

Target core(int vector_bits, int registers, int threads) {
  Target target;
  target.name = "core of " + std::to_string(vector_bits) + " bits";
  target.vector_bits = vector_bits;
  target.vector_registers = registers;
  target.has_masks = vector_bits == 512;
  target.has_fma = true;
  target.threads = threads;
  return target;
}

struct TextCase {
  const char* name;
  const char* text;
};

const TextCase cases[] = {
    {"even", R"(graph g (q: f32[1, 2, 8, 16], k: f32[1, 2, 32, 16], v: f32[1, 2, 32, 16]) {
       y = attention(q, k, v) {scale = 0.25}
       return y
     })"},
    {"odd, masked", R"(graph g (q: f32[2, 1, 7, 9], k: f32[2, 1, 37, 9], v: f32[2, 1, 37, 11], m: f32[1, 1, 7, 37]) {
       y = attention(q, k, v, m) {scale = 0.25}
       return y
     })"},
    {"shared heads, chosen keys", R"(graph g (q: f32[4, 5, 8], k: f32[2, 19, 8], v: f32[2, 19, 8], m: bool[5, 19]) {
       y = attention(q, k, v, m) {masked = -1e9, zero_if_masked = 1}
       return y
     })"},
    {"keys and values are the last rows", R"(graph g (q: f32[2, 7, 8], x: f32[2, 40, 8]) {
       k = slice(x) {axes = [1], starts = [3], sizes = [37]}
       y = attention(q, k, k)
       return y
     })"},
    {"keys are each second row", R"(graph g (q: f32[2, 7, 8], x: f32[2, 40, 8], v: f32[2, 20, 8]) {
       k = slice(x) {axes = [1], starts = [1], sizes = [20], steps = [2]}
       y = attention(q, k, v)
       return y
     })"},
    {"each query sees one key more", R"(graph g (q: f32[2, 70, 16], k: f32[2, 90, 16], v: f32[2, 90, 24]) {
       y = attention(q, k, v) {scale = 0.25, causal = 21}
       return y
     })"},
    {"each query sees one key more, of a tail", R"(graph g (q: f32[3, 131, 9], k: f32[3, 131, 9], v: f32[3, 131, 11]) {
       y = attention(q, k, v) {causal = 1}
       return y
     })"},
    {"each query sees one key more, of few", R"(graph g (q: f32[2, 40, 8], k: f32[2, 40, 8], v: f32[2, 40, 8]) {
       y = attention(q, k, v) {causal = 1}
       return y
     })"},
    {"each query sees one key more, of one panel", R"(graph g (q: f32[2, 64, 8], k: f32[2, 64, 8], v: f32[2, 64, 8]) {
       y = attention(q, k, v) {causal = 1}
       return y
     })"},
    {"each query sees one key more, of factors in tf32",
     R"(graph g (q: f32[2, 40, 8], k: f32[2, 40, 8], v: f32[2, 40, 8]) {
       y = attention(q, k, v) {causal = 1, operands = "tf32"}
       return y
     })"},
    {"one query sees some keys", R"(graph g (q: f32[4, 1, 9], k: f32[2, 70, 9], v: f32[2, 70, 9]) {
       y = attention(q, k, v) {causal = 60}
       return y
     })"},
    {"each query sees one key more, some chosen",
     R"(graph g (q: f32[4, 68, 8], k: f32[2, 68, 8], v: f32[2, 68, 8], m: bool[68, 68]) {
       y = attention(q, k, v, m) {causal = 1, zero_if_masked = 1}
       return y
     })"},
    {"all heads share one", R"(graph g (q: f32[2, 4, 5, 8], k: f32[2, 1, 19, 8], v: f32[2, 1, 19, 8]) {
       o = attention(q, k, v)
       y = transpose(o) {perm = [0, 2, 1, 3]}
       return y
     })"},
    {"one query, all heads share one", R"(graph g (q: f32[4, 1, 32], k: f32[1, 21, 32], v: f32[1, 21, 32]) {
       y = attention(q, k, v)
       return y
     })"},
    {"one query, shared heads", R"(graph g (q: f32[1, 6, 1, 32], k: f32[1, 2, 21, 32], v: f32[1, 2, 21, 32]) {
       y = attention(q, k, v)
       return y
     })"},
    {"one query, elements that are no whole vectors",
     R"(graph g (q: f32[3, 1, 20], k: f32[3, 33, 20], v: f32[3, 33, 20]) {
       y = attention(q, k, v)
       return y
     })"},
    {"halves", R"(graph g (q: f16[2, 6, 8], k: f16[2, 10, 8], v: f16[2, 10, 8]) {
       y = attention(q, k, v)
       return y
     })"},
    {"parts of one projection", R"(graph g (x: f32[2, 5, 9, 8]) {
       a = slice(x) {axes = [2], starts = [0], sizes = [3]}
       b = slice(x) {axes = [2], starts = [3], sizes = [3]}
       c = slice(x) {axes = [2], starts = [6], sizes = [3]}
       q = transpose(a) {perm = [0, 2, 1, 3]}
       k = transpose(b) {perm = [0, 2, 1, 3]}
       v = transpose(c) {perm = [0, 2, 1, 3]}
       o = attention(q, k, v)
       y = transpose(o) {perm = [0, 2, 1, 3]}
       return y
     })"},
};

// In parts, as split_kv decides.
const TextCase cut_cases[] = {
    {"parts of shared heads", R"(graph g (q: f32[1, 6, 1, 32], k: f32[1, 2, 96, 32], v: f32[1, 2, 96, 32]) {
       y = attention(q, k, v) decided "split_kv=32"
       return y
     })"},
    {"parts that are not filled", R"(graph g (q: f32[2, 3, 1, 32], k: f32[2, 3, 75, 32], v: f32[2, 3, 75, 48]) {
       y = attention(q, k, v) {scale = 0.25} decided "split_kv=32"
       return y
     })"},
    {"parts, masked",
     R"(graph g (q: f32[1, 4, 1, 64], k: f32[1, 1, 80, 64], v: f32[1, 1, 80, 64], m: f32[1, 1, 1, 80]) {
       y = attention(q, k, v, m) decided "split_kv=48"
       return y
     })"},
    {"parts without any key that is seen",
     R"(graph g (q: f32[4, 1, 32], k: f32[2, 70, 32], v: f32[2, 70, 32], m: bool[1, 70]) {
       y = attention(q, k, v, m) {zero_if_masked = 1} decided "split_kv=16"
       return y
     })"},
    {"parts of caches by position",
     R"(graph g (q: f32[1, 1, 4, 32], k: f32[1, 64, 2, 32], v: f32[1, 64, 2, 32]) {
       a = transpose(q) {perm = [0, 2, 1, 3]}
       b = transpose(k) {perm = [0, 2, 1, 3]}
       c = transpose(v) {perm = [0, 2, 1, 3]}
       o = attention(a, b, c) decided "split_kv=16"
       y = transpose(o) {perm = [0, 2, 1, 3]}
       return y
     })"},
    {"parts of many queries", R"(graph g (q: f32[2, 9, 8], k: f32[2, 40, 8], v: f32[2, 40, 8]) {
       y = attention(q, k, v) decided "split_kv=16"
       return y
     })"},
    {"parts for blocks of queries, shared heads",
     R"(graph g (q: f32[1, 4, 120, 16], k: f32[1, 2, 64, 16], v: f32[1, 2, 64, 32]) {
       y = attention(q, k, v) {scale = 0.25} decided "split_kv=32"
       return y
     })"},
    {"parts for one block of queries, shared heads, with rows left",
     R"(graph g (q: f32[1, 6, 13, 16], k: f32[1, 2, 64, 16], v: f32[1, 2, 64, 24]) {
       y = attention(q, k, v) decided "split_kv=32"
       return y
     })"},
    {"parts for blocks of queries, the last one smaller",
     R"(graph g (q: f32[2, 131, 8], k: f32[2, 32, 8], v: f32[2, 32, 8], m: f32[131, 32]) {
       y = attention(q, k, v, m) decided "split_kv=16"
       return y
     })"},
    {"parts for blocks of queries, masked, with places left",
     R"(graph g (q: f32[2, 16, 9], k: f32[2, 75, 9], v: f32[2, 75, 20], m: f32[16, 75]) {
       y = attention(q, k, v, m) decided "split_kv=32"
       return y
     })"},
    {"parts of which each query sees more", R"(graph g (q: f32[2, 150, 8], k: f32[2, 160, 8], v: f32[2, 160, 24]) {
       y = attention(q, k, v) {causal = 5} decided "split_kv=80"
       return y
     })"},
    {"parts of which each query sees more, with places left",
     R"(graph g (q: f32[2, 90, 8], k: f32[2, 170, 8], v: f32[2, 170, 8]) {
       y = attention(q, k, v) {causal = 11} decided "split_kv=80"
       return y
     })"},
    {"parts for blocks of queries by position", R"(graph g (x: f32[1, 48, 2, 48]) {
       a = slice(x) {axes = [3], starts = [0], sizes = [16]}
       b = slice(x) {axes = [3], starts = [16], sizes = [16]}
       c = slice(x) {axes = [3], starts = [32], sizes = [16]}
       q = transpose(a) {perm = [0, 2, 1, 3]}
       k = transpose(b) {perm = [0, 2, 1, 3]}
       v = transpose(c) {perm = [0, 2, 1, 3]}
       o = attention(q, k, v) decided "split_kv=16"
       y = transpose(o) {perm = [0, 2, 1, 3]}
       return y
     })"},
};

std::vector<TextCase> all_cases() {
  std::vector<TextCase> all(std::begin(cases), std::end(cases));
  all.insert(all.end(), std::begin(cut_cases), std::end(cut_cases));
  return all;
}

TEST(Attention, SchedulesMeanTheSame) {
  std::vector<Target> cores{core(128, 16, 2), core(512, 32, 3)};
  if (!test::is_sanitized) cores.insert(cores.end(), {core(128, 32, 8), core(256, 16, 2)});
  for (const Target& target : cores) {
    for (const TextCase& c : all_cases()) {
      SCOPED_TRACE(std::string(c.name) + " on a " + target.name);
      const Graph graph = parse_graph(c.text);
      const std::vector<Group> groups = fuse(graph);
      ASSERT_EQ(groups.size(), 1u);
      const Func func = lower_group(graph, groups[0]);
      const Func scheduled = cpu::default_schedule(func, target).func();
      const std::vector<NDArray> inputs = test::random_buffers(func, 3);
      std::vector<NDArray> expected, actual;
      for (const NDArray& input : inputs) expected.push_back(input.clone()), actual.push_back(input.clone());
      interpret(func, expected);
      interpret(scheduled, actual);
      const double tolerance = func.buffers.back()->dtype == f16 ? 2e-3 : 1e-5;
      EXPECT_LT(tw::test::largest_difference(actual.back(), expected.back()), tolerance) << to_text(scheduled);
      EXPECT_EQ(to_text(scheduled).find("independence_unproven"), std::string::npos) << to_text(scheduled);
    }
  }
}

// Whatever the number of queries: no array between the stages is in memory that outlives a few rows.
TEST(Attention, ScoresAreNeverInMemory) {
  for (const TextCase& c : cases) {
    const Graph graph = parse_graph(c.text);
    const Target target = core(512, 32, 2);
    const Func scheduled = cpu::default_schedule(lower_group(graph, fuse(graph)[0]), target).func();
    int buffers = 0;
    visit(scheduled.body, [&](const Allocate& a) {
      ++buffers;
      EXPECT_TRUE(a.buffer->scope == Scope::stack || a.buffer->scope == Scope::register_)
          << c.name << " " << a.buffer->name;
    });
    EXPECT_GE(buffers, 6) << c.name;
    const auto* task = scheduled.body.as<For>();
    ASSERT_TRUE(task) << to_text(scheduled);
    EXPECT_EQ(task->loop_kind, LoopKind::parallel) << c.name;
  }
}

// A head is one task, or several where that leaves no thread without work.
TEST(Attention, TasksAreAsManyAsBalanceThreads) {
  const auto tasks_of = [](const std::string& heads, int threads) {
    const std::string type = "f32[1, " + heads + ", 197, 64]";
    const Graph graph = parse_graph("graph g (q: " + type + ", k: " + type + ", v: " + type +
                                    ") {\n y = attention(q, k, v)\n return y\n}");
    const Func func = lower_group(graph, fuse(graph)[0]);
    const Func scheduled = cpu::default_schedule(func, core(512, 32, threads)).func();
    const auto* task = scheduled.body.as<For>();
    return task ? as_int(task->extent) : std::nullopt;
  };
  EXPECT_EQ(tasks_of("12", 2), 12);
  EXPECT_EQ(tasks_of("3", 2), 6);
  EXPECT_EQ(tasks_of("1", 2), 2);
}

// Rows of weights that lie a multiple of 4096 bytes apart share a set of the first cache, which holds so many lines.
TEST(Attention, RowsThatShareASetOfTheCacheAreFew) {
  Target target = core(512, 32, 2);
  const auto rows_for = [&](const std::string& keys) {
    const std::string type = "f32[4, " + keys + ", 8]";
    const Graph graph = parse_graph("graph g (q: f32[4, 240, 8], k: " + type + ", v: " + type +
                                    ") {\n y = attention(q, k, v)\n return y\n}");
    const Schedule schedule = cpu::default_schedule(lower_group(graph, fuse(graph)[0]), target);
    const auto tile = std::ranges::find(schedule.asked(), "attention_tile", &AskedDecision::name);
    return tile->candidates[tile->analytic].value[0];
  };
  EXPECT_GT(rows_for("1040"), target.l1.ways);
  EXPECT_LE(rows_for("1024"), target.l1.ways);
}

// Parts change the order of sums, nothing else.
TEST(Attention, PartsMeanTheSame) {
  for (const TextCase& c : cut_cases) {
    SCOPED_TRACE(c.name);
    Graph graph = parse_graph(c.text), whole = graph;
    for (Node& node : whole.nodes) {
      node.decisions.clear();
    }
    const Func cut = lower_group(graph, fuse(graph)[0]), uncut = lower_group(whole, fuse(whole)[0]);
    std::vector<NDArray> expected = test::random_buffers(uncut, 5), actual;
    for (const NDArray& array : expected) actual.push_back(array.clone());
    interpret(uncut, expected);
    interpret(cut, actual);
    EXPECT_LT(tw::test::largest_difference(actual.back(), expected.back()), 1e-5);
  }
}

// Whoever asks later sees more; what nobody of a tile sees is neither read nor computed.
TEST(Attention, KeysThatNobodySeesAreLeftOut) {
  for (const char* split : {"", " decided \"split_kv=80\""}) {
    const Graph graph = parse_graph(std::string(R"(graph g (q: f32[2, 40, 16], k: f32[2, 320, 16], v: f32[2, 320, 16]) {
       y = attention(q, k, v) {causal = 20})") +
                                    split + "\n return y\n}");
    const Func func = lower_group(graph, fuse(graph)[0]);
    constexpr int64_t seen = 59, together = 64;  // by the last query; keys that a tile leaves out or does not
    std::vector<NDArray> arrays = test::random_buffers(func, 5), expected;
    for (const NDArray& array : arrays) expected.push_back(array.clone());
    interpret(func, expected);
    for (int64_t head = 0; head < 2; ++head)
      for (int64_t i = (seen + together) * 16; i < 320 * 16; ++i)
        arrays[2].set_float(head * 320 * 16 + i, std::nan(""));
    for (const Target& target : {core(128, 16, 2), core(256, 16, 2), core(512, 32, 3)}) {
      SCOPED_TRACE(target.name + split);
      std::vector<NDArray> actual;
      for (const NDArray& array : arrays) actual.push_back(array.clone());
      const Func scheduled = cpu::default_schedule(func, target).func();
      interpret(scheduled, actual);
      EXPECT_LT(tw::test::largest_difference(actual.back(), expected.back()), 1e-5) << to_text(scheduled);
    }
  }
}

// Of open sizes, too.
TEST(Attention, EachQueryOfAnyNumberSeesOneKeyMore) {
  const Graph graph = parse_graph(R"(graph g [n: 1..] (q: f32[2, n, 16], k: f32[2, n, 16], v: f32[2, n, 16]) {
       y = attention(q, k, v) {causal = 1}
       return y
     })");
  const Func func = lower_group(graph, fuse(graph)[0]);
  for (const Target& target : {core(128, 32, 2), core(256, 16, 2), core(512, 32, 3)})
    for (const int64_t n : {1, 7, 64, 101}) tw::test::expect_same_meaning_at(func, target, {{func.parameters[0], n}});
}

// Whoever decides is asked once, and each candidate is computed.
TEST(Attention, SplitsAsItIsDecided) {
  for (const char* queries : {"1", "8"}) {
    const Graph graph = parse_graph(std::string("graph g (q: f32[1, 2, ") + queries +
                                    ", 64], k: f32[1, 2, 1024, 64]) {\n y = attention(q, k, k)\n return y\n}");
    std::vector<NDArray> inputs;
    for (const ValueId id : graph.inputs) {
      inputs.emplace_back(f32, *static_shape(graph.values[id].type));
      for (int64_t i = 0; i < inputs.back().size(); ++i)
        inputs.back().set_float(i, static_cast<double>((i * 7919 + 13) % 101) / 50 - 1);
    }
    const Node& node = graph.nodes[0];
    const NDArray expected = evaluate_op(*node.op, node.attributes, {inputs[0], inputs[1], inputs[1]})[0];
    size_t candidates = 1;
    for (size_t choice = 0; choice < candidates; ++choice) {
      CompileOptions options;
      options.threads = 2;
      options.decide = [&](const GraphDecision& decision) {
        EXPECT_EQ(decision.asked.name, "split_kv");
        candidates = decision.asked.candidates.size();
        for (const Candidate& candidate : decision.asked.candidates) EXPECT_GT(candidate.cost, 0);
        return decision.asked.candidates[choice].value;
      };
      CompileReport report;
      Executable executable = compile(graph, parse_target("cpu"), options, &report);
      ASSERT_EQ(report.decisions.size(), 1u);
      EXPECT_EQ(report.decisions[0].asked.chosen, choice);
      EXPECT_LT(tw::test::largest_difference(executable.run(inputs)[0], expected), 1e-5);
    }
    EXPECT_GE(candidates, 3u) << queries;
  }
}

int64_t part_chosen(const std::string& q, const std::string& k, int threads) {
  const Graph graph = parse_graph("graph g (q: f32[" + q + "], k: f32[" + k + "], v: f32[" + k +
                                  "]) {\n y = attention(q, k, v)\n return y\n}");
  return decided(split_kv(graph, {core(512, 32, threads)}).nodes[0].decisions, "split_kv");
}

TEST(Attention, IsCutWhereThatPays) {
  EXPECT_EQ(part_chosen("1, 16, 1, 64", "1, 4, 256, 64", 2), 0);     // short, and heads enough
  EXPECT_EQ(part_chosen("1, 12, 512, 64", "1, 12, 512, 64", 2), 0);  // k and v fit the second cache
  EXPECT_EQ(part_chosen("1, 4, 4099, 64", "1, 4, 4099, 64", 2), 0);  // tiles of queries would need guards
  EXPECT_EQ(part_chosen("1, 4, 4096, 64", "1, 4, 4096, 64", 2), 256);
  EXPECT_EQ(part_chosen("1, 16, 1, 20", "1, 4, 4096, 20", 2), 0);  // no whole vectors
  const int64_t long_part = part_chosen("1, 32, 1, 128", "1, 8, 4096, 128", 2);
  EXPECT_TRUE(long_part >= 64 && 4096 % long_part == 0) << long_part;
  const int64_t few = part_chosen("1, 2, 1, 64", "1, 2, 1024, 64", 16);  // a part for each worker
  EXPECT_TRUE(few >= 64 && 2 * 1024 / few >= 16) << few;
  EXPECT_GE(part_chosen("1, 4, 1, 64", "1, 1, 1009, 64", 4), 64);  // no divisor: the last part has places left
}

}  // namespace
}  // namespace tw::relay
