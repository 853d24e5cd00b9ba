// Control flow: compiled code beside the oracle, for workers of every number.
#include <gtest/gtest.h>

#include "relay_ir/compile/compile.h"
#include "relay_ir/compile/planned_graph.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay {
namespace {

NDArray number(DType dtype, int64_t value) {
  NDArray array(dtype, {});
  array.set_int(0, value);
  return array;
}

struct ControlCase {
  const char* name;
  const char* text;
  std::vector<std::vector<NDArray>> inputs;
};

NDArray numbers(const std::vector<int64_t>& values) {
  return NDArray::from<int64_t>(i64, {static_cast<int64_t>(values.size())}, values);
}

NDArray mask(const std::vector<int>& values) {
  NDArray array(boolean, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) array.set_int(static_cast<int64_t>(i), values[i]);
  return array;
}

NDArray rows(int64_t count, int64_t width) {
  return test::random_array({count, width}, static_cast<uint32_t>(100 * count + width));
}

const ControlCase control_cases[] = {
    {"branches",
     R"(graph g (x: f32[n, 64], flag: bool[]) {
       y, other = branch(flag, x)
       region (a: f32[n, 64]) {
         r = reduce_sum(a) {axes = [1], keepdims = 1}
         s = subtract(a, r)
         return s, a
       }
       region (a: f32[n, 64]) {
         e = tanh(a)
         f = add(e, a)
         return e, f
       }
       z = add(y, x)
       return z, other
     })",
     {{rows(1, 64), number(boolean, 1)}, {rows(300, 64), number(boolean, 0)}, {rows(300, 64), number(boolean, 1)}}},
    {"steps that many workers share, and few",
     R"(graph g (x: f32[n, 512, 64], s: f32[512, 64], w: f32[64, 64]) {
       last, other, all = loop(_, s, s, x, w) {steps = [n], carried = 2, reversed = [1]}
       region[step: 0..] (a: f32[512, 64], b: f32[512, 64], rows: f32[n, 512, 64], v: f32[64, 64]) {
         row = pick(rows) {index = [step]}
         p = matmul(a, v)
         q = add(p, row)
         next = tanh(q)
         lowest = reduce_min(next) {axes = [0, 1], keepdims = 0}
         shifted = subtract(b, lowest)
         part = reduce_max(shifted) {axes = [1], keepdims = 0}
         return shifted, next, part
       }
       sum = add(last, other)
       return sum, last, all
     })",
     {{test::random_array({1, 512, 64}, 1), rows(512, 64), rows(64, 64)},
      {test::random_array({2, 512, 64}, 2), rows(512, 64), rows(64, 64)},
      {test::random_array({7, 512, 64}, 3), rows(512, 64), rows(64, 64)}}},
    {"as many rows as a mask chooses",
     R"(graph g (x: f32[n, 64], m: bool[n], w: f32[64, 32]) {
       ones = cast(m) {to = "i64"}
       count = reduce_sum(ones) {axes = [0], keepdims = 0}
       item(count) {number = [k: 0..]}
       at, found = positions(m) {count = [k]}
       rows = gather(x, at) {axis = 0}
       p = matmul(rows, w)
       y = tanh(p)
       s = reduce_sum(y) {axes = [0], keepdims = 0}
       item(found) {number = [k]} as again
       return y, s, at
     })",
     {{rows(7, 64), mask({1, 0, 0, 1, 1, 0, 1}), rows(64, 32)},
      {rows(5, 64), mask({0, 0, 0, 0, 0}), rows(64, 32)},
      {rows(1, 64), mask({1}), rows(64, 32)},
      {rows(300, 64), mask(std::vector<int>(300, 1)), rows(64, 32)}}},
    {"a result as large as the branch that was taken makes it",
     R"(graph g (x: f32[n, 8], c: i64[]) {
       zero = constant [3]: i64[]
       is_long = less(zero, c)
       y = branch(is_long, x, c)
       region (a: f32[n, 8], d: i64[]) {
         item(d) {number = [m: 0..]}
         at = range() {count = [m]}
         b = gather(a, at) {axis = 0}
         return b
       }
       region (a: f32[n, 8], d: i64[]) {
         size = sizes() {values = [2], shape = []}
         item(size) {number = [m: 0..]}
         at = range() {count = [m]}
         e = exp(a)
         b = gather(e, at) {axis = 0}
         return b
       }
       z = relu(y)
       return z, y
     })",
     {{rows(5, 8), number(i64, 4)}, {rows(5, 8), number(i64, 1)}, {rows(5, 8), number(i64, 9)}}},
    {"another size in each step, and what is kept of steps that are done",
     R"(graph g (x: f32[6, 4], s: f32[], c: i64[6], limit: i64[]) {
       zero = constant [0]: i64[]
       goes = less(zero, limit)
       last, done, all = loop(goes, s, zero, x, c, limit) {steps = [6], carried = 2}
       region[step: 0..5] (a: f32[], d: i64[], rows: f32[6, 4], counts: i64[6], most: i64[]) {
         count = pick(counts) {index = [step]}
         item(count) {number = [k: 0..6]}
         at = range() {count = [k]}
         part = gather(rows, at) {axis = 0}
         e = exp(part)
         sum = reduce_sum(e) {axes = [0, 1], keepdims = 0}
         b = add(a, sum)
         one = constant [1]: i64[]
         next = add(d, one)
         again = less(next, most)
         return again, b, next, sum
       }
       item(done) {number = [n: 0..6]}
       kept = slice(all) {axes = [0], starts = [0], sizes = [n]}
       return last, kept
     })",
     {{rows(6, 4), number(f32, 0), numbers({3, 0, 6, 1, 2, 5}), number(i64, 6)},
      {rows(6, 4), number(f32, 0), numbers({3, 0, 6, 1, 2, 5}), number(i64, 2)},
      {rows(6, 4), number(f32, 0), numbers({3, 0, 6, 1, 2, 5}), number(i64, 0)}}},
    {"parts that begin anywhere",
     R"(graph g (x: f32[n, 3], s: i8[]) {
       all, flags = loop(_, s, x) {steps = [n], carried = 0}
       region[step: 0..] (a: i8[], rows: f32[n, 3]) {
         row = pick(rows) {index = [n - 1 - step]}
         zero = constant [0]: f32[]
         is_less = less(row, zero)
         return row, is_less
       }
       return all, flags
     })",
     {{rows(1, 3), number(i8, 1)}, {rows(5, 3), number(i8, 1)}, {rows(40, 3), number(i8, 1)}}},
    {"rows that are added in each step, at both ends and in front",
     R"(graph g (x: f32[n, 8], none: f32[0, 8], wide: f32[3, 2]) {
       all, sums = loop(_, none, wide, x) {steps = [n], carried = 2}
       region[step: 0..] (a: f32[step, 8], b: f32[3, 4 * step + 2], xs: f32[n, 8]) {
         row = pick(xs) {index = [step]}
         one = reshape(row) {shape = [1, 8]}
         old = tanh(a)
         more = concat(old, one) {axis = 0}
         four = constant [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]: f32[3, 4]
         sum = reduce_sum(more) {axes = [0, 1], keepdims = 0}
         part = add(four, sum)
         wider = concat(part, b) {axis = 1}
         return more, wider
       }
       y = negate(sums)
       return all, y
     })",
     {{rows(1, 8), rows(0, 8), rows(3, 2)},
      {rows(2, 8), rows(0, 8), rows(3, 2)},
      {rows(37, 8), rows(0, 8), rows(3, 2)}}},
    {"rows that are added until a condition is false",
     R"(graph g (x: f32[3, 8], w: f32[8, 8], goes: bool[], limit: i64[]) {
       all, kept = loop(goes, x, w, limit) {steps = [40], carried = 1, done = [n: 0..40]}
       region[step: 0..39] (a: f32[2 * step + 3, 8], b: f32[8, 8], most: i64[]) {
         p = matmul(a, b)
         s = softmax(p) {axis = 1}
         row = slice(s) {axes = [0], starts = [0], sizes = [2]}
         more = concat(a, row) {axis = 0}
         at = sizes() {values = [step + 1], shape = []}
         again = less(at, most)
         first = slice(row) {axes = [0], starts = [0], sizes = [1]}
         return again, more, first
       }
       y = tanh(all)
       at = range() {count = [n]}
       those = gather(kept, at) {axis = 0}
       return y, all, those
     })",
     {{rows(3, 8), rows(8, 8), number(boolean, 1), number(i64, 40)},
      {rows(3, 8), rows(8, 8), number(boolean, 1), number(i64, 5)},
      {rows(3, 8), rows(8, 8), number(boolean, 0), number(i64, 5)}}},
    {"rows that are added in as many steps as it takes",
     R"(graph g (x: f32[3, 8], w: f32[8, 8], goes: bool[], limit: i64[], k: i64[]) {
       item(k) {number = [most: 0..]}
       all, last = loop(goes, x, limit, w, limit) {steps = [most], carried = 2, done = [n: 0..]}
       region[step: 0..] (a: f32[2 * step + 3, 8], l: i64[], b: f32[8, 8], end: i64[]) {
         p = matmul(a, b)
         s = softmax(p) {axis = 1}
         row = slice(s) {axes = [0], starts = [0], sizes = [2]}
         more = concat(a, row) {axis = 0}
         at = sizes() {values = [step + 1], shape = []}
         again = less(at, end)
         return again, more, at
       }
       y = tanh(all)
       return y, all, last
     })",
     {{rows(3, 8), rows(8, 8), number(boolean, 1), number(i64, 400), number(i64, INT64_MAX)},
      {rows(3, 8), rows(8, 8), number(boolean, 1), number(i64, 5), number(i64, INT64_MAX)},
      {rows(3, 8), rows(8, 8), number(boolean, 1), number(i64, 9), number(i64, 4)},
      {rows(3, 8), rows(8, 8), number(boolean, 0), number(i64, 5), number(i64, 8)}}},
    {"what grows in loops in each other",
     R"(graph g (x: f32[n, 4], none: f32[0, 4], flag: bool[]) {
       all = loop(_, none, x, flag) {steps = [n], carried = 1}
       region[step: 0..] (a: f32[step * 3, 4], xs: f32[n, 4], c: bool[]) {
         row = pick(xs) {index = [step]}
         one = reshape(row) {shape = [1, 4]}
         inner = loop(_, a, one, c) {steps = [3], carried = 1}
         region[turn: 0..2] (b: f32[turn + step * 3, 4], r: f32[1, 4], d: bool[]) {
           t = exp(r)
           y = concat(t, b) {axis = 0}
           return y
         }
         twice = loop(c, inner, one, c) {steps = [2], carried = 1, done = [m: 0..2]}
         region[turn: 0..1] (b: f32[2 * turn + step * 3 + 3, 4], r: f32[1, 4], d: bool[]) {
           y = concat(b, r, r) {axis = 0}
           return d, y
         }
         all = slice(twice) {axes = [0], starts = [0], sizes = [3 * step + 3]}
         more = concat(a, one, one, one) {axis = 0}
         q = add(more, all)
         return q
       }
       return all
     })",
     {{rows(1, 4), rows(0, 4), number(boolean, 1)}, {rows(9, 4), rows(0, 4), number(boolean, 1)}}},
    {"as much as data says, and twice as much",
     R"(graph g (x: f32[n, 4], none: f32[0, 4], limit: f32[]) {
       all, twice = loop(_, none, x, x, limit) {steps = [4], carried = 2, sizes = [s: 0.., t: 0..]}
       region[r: 0.., q: 0.., step: 0..3] (a: f32[r, 4], b: f32[q, 4], xs: f32[n, 4], l: f32[]) {
         sums = reduce_sum(xs) {axes = [1], keepdims = 0}
         mask = less(sums, l)
         ones = cast(mask) {to = "i64"}
         found = reduce_sum(ones) {axes = [0], keepdims = 0}
         item(found) {number = [k: 0..]}
         at, same = positions(mask) {count = [k]}
         rows = gather(xs, at) {axis = 0}
         bent = tanh(rows)
         more = concat(bent, a, rows) {axis = 0}
         c = negate(b)
         d = concat(b, c) {axis = 0}
         return more, d
       }
       y = exp(all)
       return y, all, twice
     })",
     {{rows(1, 4), rows(0, 4), test::random_array({}, 2)},
      {rows(9, 4), rows(0, 4), test::random_array({}, 2)},
      {rows(300, 4), rows(0, 4), test::random_array({}, 3)}}},
    {"sizes that branches and loops within decide",
     R"(graph g (x: f32[n, 4], first: f32[2, 4], flag: bool[]) {
       all = loop(flag, first, x, flag) {steps = [5], carried = 1, done = [m: 0..5], sizes = [s: 0..]}
       region[r: 0.., step: 0..4] (a: f32[r, 4], xs: f32[n, 4], c: bool[]) {
         some = branch(c, a, xs)
         region (p: f32[r, 4], q: f32[n, 4]) {
           t = concat(p, q) {axis = 0}
           size = sizes() {values = [r + n], shape = []}
           item(size) {number = [k: 0..]}
           at = range() {count = [k]}
           u = gather(t, at) {axis = 0}
           return u
         }
         region (p: f32[r, 4], q: f32[n, 4]) {
           size = sizes() {values = [r], shape = []}
           item(size) {number = [k: 0..]}
           at = range() {count = [k]}
           u = gather(p, at) {axis = 0}
           return u
         }
         inner = loop(_, some, xs) {steps = [step], carried = 1, sizes = [v: 0..]}
         region[w: 1.., turn: 0..] (b: f32[w, 4], o: f32[n, 4]) {
           row = slice(b) {axes = [0], starts = [0], sizes = [1]}
           y = concat(row, b, row) {axis = 0}
           return y
         }
         again = constant [true]: bool[]
         return again, inner
       }
       y = tanh(all)
       return y
     })",
     {{rows(1, 4), rows(2, 4), number(boolean, 1)},
      {rows(7, 4), rows(2, 4), number(boolean, 1)},
      {rows(7, 4), rows(2, 4), number(boolean, 0)}}},
    {"parts that steps within take on",
     R"(graph g (x: f32[n, 3], s: f32[3], flag: bool[]) {
       all = loop(_, s, x, flag) {steps = [n], carried = 0}
       region[step: 0..] (a: f32[3], rows: f32[n, 3], c: bool[]) {
         row = pick(rows) {index = [step]}
         best = branch(c, row, a)
         region (p: f32[3], q: f32[3]) {
           t = tanh(p)
           return t
         }
         region (p: f32[3], q: f32[3]) {
           t = add(p, q)
           return t
         }
         sum = loop(_, best, row) {steps = [3], carried = 1}
         region[turn: 0..2] (b: f32[3], r: f32[3]) {
           t = add(b, r)
           return t
         }
         return sum
       }
       return all
     })",
     {{rows(1, 3), test::random_array({3}, 2), number(boolean, 1)},
      {rows(9, 3), test::random_array({3}, 2), number(boolean, 0)}}},
    {"one number a step",
     R"(graph g (x: f32[n], s: f32[]) {
       last, all = loop(_, s, x) {steps = [n], carried = 1}
       region[step: 0..] (a: f32[], xs: f32[n]) {
         now = pick(xs) {index = [step]}
         next = add(a, now)
         return next, next
       }
       return last, all
     })",
     {{test::random_array({1}, 1), test::random_array({}, 2)},
      {test::random_array({9}, 1), test::random_array({}, 2)}}},
    {"until a condition is false",
     R"(graph g (s: f32[512, 8], flag: bool[], limit: i64[]) {
       last = loop(flag, s, limit) {steps = [100], carried = 1}
       region[step: 0..99] (a: f32[512, 8], most: i64[]) {
         half = constant [0.5]: f32[]
         b = multiply(a, half)
         c = add(b, half)
         at = sizes() {values = [step + 1], shape = []}
         again = less(at, most)
         return again, c
       }
       y = negate(last)
       return y
     })",
     {{rows(512, 8), number(boolean, 1), number(i64, 1)},
      {rows(512, 8), number(boolean, 1), number(i64, 6)},
      {rows(512, 8), number(boolean, 0), number(i64, 6)}}},
    {"in each other",
     R"(graph g (x: f32[n, 256, 16], flag: bool[]) {
       zero = constant [0]: f32[256, 16]
       last, all = loop(_, zero, x, flag) {steps = [n], carried = 1}
       region[step: 0..] (a: f32[256, 16], xs: f32[n, 256, 16], c: bool[]) {
         row = pick(xs) {index = [step]}
         inner = loop(_, a, row, c) {steps = [3], carried = 1}
         region[turn: 0..2] (b: f32[256, 16], r: f32[256, 16], d: bool[]) {
           now = branch(d, b, r)
           region (p: f32[256, 16], q: f32[256, 16]) {
             t = add(p, q)
             u = tanh(t)
             return u
           }
           region (p: f32[256, 16], q: f32[256, 16]) {
             return p
           }
           k = sizes() {values = [turn + step], shape = []}
           kf = cast(k) {to = "f32"}
           y = add(now, kf)
           return y
         }
         return inner, inner
       }
       return last, all
     })",
     {{test::random_array({1, 256, 16}, 1), number(boolean, 1)},
      {test::random_array({4, 256, 16}, 2), number(boolean, 1)},
      {test::random_array({4, 256, 16}, 2), number(boolean, 0)}}},
};

class Control : public testing::TestWithParam<const ControlCase*> {};

TEST_P(Control, ComputesWhatTheOracleDoes) {
  const Graph graph = parse_graph(GetParam()->text);
  verify(graph);
  ConstantTable constants;
  const std::string text = to_text(graph, &constants);
  EXPECT_EQ(to_text(parse_graph(text, "<text>", constants)), text);
  Executable executable = compile(graph, parse_target("cpu"));
  for (const std::vector<NDArray>& inputs : GetParam()->inputs) {
    const std::vector<NDArray> expected = test::evaluate(graph, inputs);
    for (const int threads : {1, 2, 3, 8}) {
      executable.set_threads(threads);
      executable.fill_scratch(std::byte{0xff});  // NaN
      for (int run = 0; run < 3; ++run) {
        const std::vector<NDArray> outputs = executable.run(inputs);
        ASSERT_EQ(outputs.size(), expected.size());
        for (size_t i = 0; i < outputs.size(); ++i) {
          ASSERT_EQ(outputs[i].shape(), expected[i].shape());
          for (int64_t k = 0; k < outputs[i].size(); ++k) {
            const double error = std::abs(outputs[i].get_float(k) - expected[i].get_float(k));
            ASSERT_LE(error, 1e-3 + 1e-4 * std::abs(expected[i].get_float(k)))
                << threads << " workers, output " << i << ", element " << k;
          }
        }
      }
    }
    EXPECT_FALSE(executable.profile(inputs, 2).empty());
    EXPECT_FALSE(executable.trace(inputs, 2).empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Control, testing::ValuesIn([] {
                           std::vector<const ControlCase*> cases;
                           for (const ControlCase& each : control_cases) cases.push_back(&each);
                           return cases;
                         }()));

// Its steps find them in the cache that cores share, but not what is larger than that.
TEST(Loops, ConstantsOfStepsStayCached) {
  const auto cached = [](int64_t l3_bytes) {
    Target target = parse_target("x86:avx2");
    target.l3.bytes = l3_bytes;
    PlannedGraph planned = plan_groups(parse_graph(R"(graph g (x: f32[16]) {
      w = constant [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]: f32[16]
      first = multiply(x, w)
      last = loop(_, first) {steps = [9], carried = 1}
      region[step: 0..] (a: f32[16]) {
        v = constant [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]: f32[16]
        next = add(a, v)
        return next
      }
      return last
    })"),
                                       {});
    UniqueFuncs funcs(target);
    funcs.add(planned);
    std::vector<std::pair<std::string, bool>> found;
    for (const Func& func : funcs.funcs())
      for (const Buffer& buffer : func.buffers)
        if (buffer->is_constant) found.emplace_back(func.name, buffer->is_cached);
    return found;
  };
  using Found = std::vector<std::pair<std::string, bool>>;
  EXPECT_EQ(cached(1 << 20), (Found{{"multiply", false}, {"add", true}}));
  EXPECT_EQ(cached(64), (Found{{"multiply", false}, {"add", false}}));
}

// Rows behind all others are written where these lie: in memory of a size that is known, or that grows.
TEST(Loops, AppendInPlace) {
  const auto moved = [](const std::string& steps, const std::string& rows, const std::string& sizes, const char* parts,
                        size_t staying) {
    const Graph graph = parse_graph(
        "graph g (x: f32[2, 64], flag: bool[]) {\n"
        "  all = loop(flag, x, flag) {steps = [" +
        steps + "], carried = 1, done = [m: 0..]" + sizes +
        "}\n"
        "  region[" +
        (sizes.empty() ? "" : "r: 1.., ") + "step: 0..] (a: f32[" + rows +
        ", 64], c: bool[]) {\n"
        "    row = slice(a) {axes = [0], starts = [0], sizes = [1]}\n"
        "    e = tanh(row)\n"
        "    b = concat(" +
        parts +
        ") {axis = 0}\n"
        "    return c, b\n"
        "  }\n"
        "  return all\n"
        "}");
    const Executable executable = compile(graph, parse_target("cpu"), {});
    const Plan& plan = executable.plan();
    size_t found = 0;
    for (size_t i = 0; i < plan.tensors.size(); ++i) found += plan.tensors[i].before == static_cast<int32_t>(i) ? 1 : 0;
    EXPECT_EQ(found, staying);
    const auto makes_it = [](const Step& step) { return step.kind == StepKind::kernel && step.name.ends_with("b"); };
    const auto step = std::ranges::find_if(plan.steps, makes_it);
    EXPECT_NE(step, plan.steps.end());
    return step->bytes.is_known() ? int64_t{step->bytes} : -1;
  };
  EXPECT_EQ(moved("100", "step + 2", "", "a, e", 0), 256);
  EXPECT_EQ(moved("10000", "step + 2", "", "a, e", 1), 256);
  EXPECT_GT(moved("100", "r", ", sizes = [s: 0..]", "a, e, e", 1), 0);
  EXPECT_EQ(moved("100", "step + 2", "", "e, a", 0), -1);
  EXPECT_EQ(moved("10000", "step + 2", "", "e, a", 0), -1);
}

// What a step picks is read where it lies, and is all that it reads.
TEST(Loops, PickWithoutACopy) {
  const Graph graph = parse_graph(R"(graph g (x: f32[n, 16], s: f32[16]) {
    last = loop(_, s, x) {steps = [n], carried = 1}
    region[step: 0..] (a: f32[16], rows: f32[n, 16]) {
      row = pick(rows) {index = [step]}
      next = add(a, row)
      return next
    }
    y = negate(last)
    return y
  })");
  Executable executable = compile(graph, parse_target("cpu"));
  int kernels = 0;
  for (const StepProfile& step : executable.profile({rows(10, 16), test::random_array({16}, 1)}, 1)) {
    kernels += !step.kernel.empty();
    if (step.name == "next") EXPECT_EQ(step.bytes, 10 * 3 * 64);
  }
  EXPECT_EQ(kernels, 3);  // a copy of s, the sum, the result
}

// Of two branches that demand something of sizes each, a run checks the one that it takes.
TEST(ControlChecks, AreThoseOfTheWayThatIsTaken) {
  const Graph graph = parse_graph(R"(graph g (x: f32[n, 4], flag: bool[]) {
    y = branch(flag, x)
    region (a: f32[n, 4]) where n == 2 {
      zero = constant [0]: f32[]
      r = add(a, zero)
      s = reduce_sum(r) {axes = [0], keepdims = 0}
      return s
    }
    region (a: f32[n, 4]) where n == 3 {
      s = reduce_max(a) {axes = [0], keepdims = 0}
      return s
    }
    return y
  })");
  Executable executable = compile(graph, parse_target("cpu"));
  for (const int64_t n : {2, 3}) {
    for (const int64_t flag : {0, 1}) {
      const std::vector<NDArray> inputs{rows(n, 4), number(boolean, flag)};
      if ((n == 2) == (flag == 1)) {
        EXPECT_EQ(executable.run(inputs)[0].shape(), Shape{4});
        continue;
      }
      for (const bool by_oracle : {true, false}) {
        try {
          by_oracle ? (void)test::evaluate(graph, inputs) : (void)executable.run(inputs);
          FAIL() << "the sizes were not checked";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::input);
          EXPECT_NE(std::string(error.what()).find("`n"), std::string::npos) << error.what();
        }
      }
    }
  }
}

}  // namespace
}  // namespace tw::relay
