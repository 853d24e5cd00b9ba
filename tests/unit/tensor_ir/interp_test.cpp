// The oracle: what it computes, and everything that it must trap.
#include "tensor_ir/interp/interp.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/parser.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"

namespace tw {
namespace {

template <class T>
NDArray array_of(DType dtype, std::vector<T> values) {
  return NDArray::from<T>(dtype, {static_cast<int64_t>(values.size())}, std::span<const T>(values));
}

NDArray zeros(DType dtype, Shape shape) {
  NDArray a(dtype, std::move(shape));
  std::memset(a.data(), 0, a.byte_size());
  return a;
}

std::string trap_of(const std::string& text, std::vector<NDArray> arrays, InterpretOptions options = {}) {
  try {
    interpret(parse_func(text), arrays, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::verify) << e.what();
    EXPECT_NE(std::string(e.what()).find("help:"), std::string::npos) << e.what();
    return e.what();
  }
  return "no trap";
}

void expect_trap(const std::string& text, std::vector<NDArray> arrays, const std::string& part) {
  const std::string message = trap_of(text, std::move(arrays));
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Interpret, RunsScheduledBlocksWithInitAndPredicate) {
  const Func f = parse_func(R"(
func matmul[n](A: f32[n, 8], B: f32[8, 4]) -> (C: f32[n, 4]) {
  for io in 0..(n + 1) // 2 parallel {
    for ii in 0..2 {
      for j in 0..4 {
        for k in 0..8 {
          block C(spatial vi: n = io * 2 + ii, spatial vj: 4 = j, reduce vk: 8 = k) where io * 2 + ii < n {
            init { C[vi, vj] = 0.5f }
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
          }
        }
      }
    }
  }
})");
  NDArray a(f32, {5, 8}), b(f32, {8, 4}), c = zeros(f32, {5, 4});
  for (int i = 0; i < 40; ++i) a.set_float(i, i % 7 - 3);
  for (int i = 0; i < 32; ++i) b.set_float(i, i % 5 - 2);
  InterpretOptions options;
  options.parameters["n"] = 5;
  interpret(f, {a, b, c}, options);
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 4; ++j) {
      double sum = 0.5;
      for (int k = 0; k < 8; ++k) sum += a.get_float(i * 8 + k) * b.get_float(k * 4 + j);
      EXPECT_EQ(c.get_float(i * 4 + j), sum);
    }
  }
}

TEST(Interpret, RunsLoweredVectorsMasksAndLanes) {
  const Func f = parse_func(R"(
func v(A: f32[13], I: i32[8]) -> (C: f32[13], S: f32[4], R: u8[4], G: f32[8]) {
  for i in 0..2 {
    C[ramp(i * 8, 1, 8) where ramp(i * 8, 1, 8) < broadcast(13, 8)] = A[ramp(i * 8, 1, 8) where ramp(i * 8, 1, 8) < broadcast(13, 8)] * broadcast(2.0f, 8)
  }
  S[0] = reduce_add(A[ramp(0, 1, 8)])
  S[1] = reduce_max(lane_slice:f32x4(A[ramp(0, 2, 6)], 2))
  S[2] = reduce_add(lane_concat(A[ramp(0, 1, 2)], A[ramp(4, 1, 2)]))
  S[3] = (let x = A[3] in x * x)
  R[ramp(0, 1, 4)] = reinterpret:u8x4(A[1])
  G[ramp(0, 1, 8)] = A[i64x8(I[ramp(0, 1, 8)])]
})");
  std::vector<float> values;
  for (int i = 0; i < 13; ++i) values.push_back(static_cast<float>(i) + 0.25f);
  NDArray c = zeros(f32, {13}), s = zeros(f32, {4}), r = zeros(u8, {4}), g = zeros(f32, {8});
  interpret(f, {array_of(f32, values), array_of<int32_t>(i32, {12, 0, 3, 3, 7, 1, 2, 5}), c, s, r, g});
  for (int i = 0; i < 13; ++i) EXPECT_EQ(c.get_float(i), 2 * values[i]);
  EXPECT_EQ(s.get_float(0), 28 + 2.0);
  EXPECT_EQ(s.get_float(1), 10.25);
  EXPECT_EQ(s.get_float(2), 0 + 1 + 4 + 5 + 1.0);
  EXPECT_EQ(s.get_float(3), 3.25 * 3.25);
  const auto bits = std::bit_cast<uint32_t>(values[1]);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(r.get_int(i), bits >> (8 * i) & 255);
  EXPECT_EQ(g.get_float(0), 12.25);
  EXPECT_EQ(g.get_float(4), 7.25);
}

TEST(Interpret, WrapsAndRoundsAsTheTypesSay) {
  auto integer = [](const std::string& e, int64_t x, int64_t y) {
    const Func f = parse_func("func f(X: i64[2]) -> (C: i64[]) { C[] = i64(" + e + ") }");
    NDArray c = zeros(i64, {});
    interpret(f, {array_of<int64_t>(i64, {x, y}), c});
    return c.get_int(0);
  };
  EXPECT_EQ(integer("i8(X[0]) + i8(X[1])", 100, 100), -56);
  EXPECT_EQ(integer("u8(X[0]) - u8(X[1])", 3, 5), 254);
  EXPECT_EQ(integer("u16(X[0]) * u16(X[1])", 65535, 65535), 1);
  EXPECT_EQ(integer("X[0] // X[1]", -7, 2), -4);
  EXPECT_EQ(integer("X[0] % X[1]", -7, 2), 1);
  EXPECT_EQ(integer("div(X[0], X[1])", -7, 2), -3);
  EXPECT_EQ(integer("mod(X[0], X[1])", -7, 2), -1);
  EXPECT_EQ(integer("i32(X[0]) >> i32(X[1])", -8, 1), -4);
  EXPECT_EQ(integer("u32(X[0]) >> u32(X[1])", -8, 1), 0x7ffffffc);
  EXPECT_EQ(integer("~u8(X[0])", 1, 0), 254);
  EXPECT_EQ(integer("u64(X[0]) < u64(X[1])", -1, 1), 0);
  EXPECT_EQ(integer("max(u64(X[0]), u64(X[1]))", -1, 1), -1);
  EXPECT_EQ(integer("popcount(u8(X[0]))", -1, 0), 8);
  EXPECT_EQ(integer("i8(f32(X[0]))", 1000, 0), 127);
  auto real = [](const std::string& e, double x, double y) {
    const Func f = parse_func("func f(X: f64[2]) -> (C: f64[]) { C[] = f64(" + e + ") }");
    NDArray c = zeros(f64, {});
    interpret(f, {array_of<double>(f64, {x, y}), c});
    return c.get_float(0);
  };
  EXPECT_EQ(real("f32(X[0]) + f32(X[1])", 16777216, 1), 16777216);
  EXPECT_EQ(real("f16(X[0]) + f16(X[1])", 2048, 1), 2048);
  EXPECT_EQ(real("bf16(X[0]) + bf16(X[1])", 256, 1), 256);
  EXPECT_EQ(real("bf16(X[0])", 1.00390625 + 1e-9, 0), 1.0);  // through f32, then to even
  EXPECT_EQ(real("min(X[0], X[1])", NAN, 2), 2);
  EXPECT_TRUE(std::isnan(real("minimum(X[0], X[1])", NAN, 2)));
  EXPECT_EQ(real("round_even(X[0])", 2.5, 0), 2);
  const auto tf32 = [&](double x) { return real("round_tf32(f32(X[0]))", x, 0); };
  EXPECT_EQ(tf32(1 + 0x1p-11), 1 + 0x1p-10);  // ties away from zero
  EXPECT_EQ(tf32(-1 - 0x1p-11), -1 - 0x1p-10);
  EXPECT_EQ(tf32(1 + 0x1p-11 - 0x1p-23), 1);
  EXPECT_EQ(tf32(0x1p-126 * (1 - 0x1p-12)), 0x1p-126);
  EXPECT_EQ(tf32(0x1p-137), 0x1p-136);
  EXPECT_EQ(tf32(0x1p-137 - 0x1p-149), 0);
  EXPECT_EQ(tf32(std::numeric_limits<float>::max()), INFINITY);
  EXPECT_EQ(tf32(-INFINITY), -INFINITY);
  EXPECT_TRUE(std::isnan(tf32(NAN)));
  EXPECT_EQ(real("fma(f32(X[0]), f32(X[0]), f32(X[1]))", 1 + 0x1p-12, -1), 0x1p-11 + 0x1p-24);
  EXPECT_EQ(real("select(is_nan(X[0]), X[1], X[0])", NAN, 3), 3);
}

TEST(Interpret, TrapsWhatIsWrong) {
  auto one = [] { return std::vector<NDArray>{zeros(f32, {8}), zeros(f32, {8})}; };
  auto with = [](const std::string& body) { return "func f(A: f32[8]) -> (C: f32[8]) {\n" + body + "\n}"; };
  expect_trap(with("for i in 0..9 { C[i] = 1.0f }"), one(), "index 8 is out of bounds");
  expect_trap(with("for i in 0..8 { C[i] = A[i - 1] }"), one(), "index -1 is out of bounds");
  expect_trap(with("for i in 0..8 { C[i] = select(i < 1, 0.0f, A[i + 1]) }"), one(), "out of bounds");
  expect_trap(with("C[0] = C[1]"), one(), "never written");
  expect_trap(with("alloc T: f32[4] in register\nT[0] = 1.0f\nC[0] = T[1]"), one(), "`T` is read at element 1");
  expect_trap(with("for i in 0..2 { alloc T: f32[1] in stack\n if i == 0 { T[0] = 1.0f }\n C[i] = T[0] }"), one(),
              "never written");
  expect_trap(with("A[0] = 1.0f"), one(), "is an input");
  expect_trap(with("for i in 0..8 { C[i] = f32(8 // i) }"), one(), "division by zero");
  expect_trap(with("for i in 0..4 { block b(spatial v: 4 = i * 2) { C[v] = 0.0f } }"), one(), "outside its extent 4");
  expect_trap(with("for i in 0..8 parallel { C[0] = f32(i) }"), one(), "two iterations write it");
  expect_trap(with("for i in 0..8 { C[i] = 0.0f }\nfor i in 0..7 parallel { C[i + 1] = C[i] }"), one(),
              "one iteration writes what another reads");
  expect_trap(with("for i in 0..2 parallel { for j in 0..4 parallel { C[j] = f32(i) } }"), one(), "race");
  expect_trap(with("for i in 0..2 parallel { C[i] = C[7 - i] }\nC[0] = 0.0f"), one(), "never written");
  expect_trap(with("barrier()"), one(), "outside of thread-bound loops");
  EXPECT_EQ(trap_of(with("for i in 0..9 { C[i where i < 8] = A[i where i < 8] }"), one()), "no trap");
  EXPECT_EQ(
      trap_of(
          with(
              "for r in 0..3 { for i in 0..8 parallel { C[i] = f32(r) } }\nfor i in 0..4 parallel { C[i] = C[i + 4] }"),
          one()),
      "no trap");
  EXPECT_EQ(trap_of(with("for i in 0..2 parallel { alloc T: f32[4] in stack\n for j in 0..4 { T[j] = 1.0f }\n for j in "
                         "0..4 { C[i * 4 + j] = T[j] } }"),
                    one()),
            "no trap");
  EXPECT_EQ(trap_of(with("for i in 0..8 { prefetch(A[i + 100], 3) }"), one()), "no trap");
}

const char* reverse_in_shared = R"(
func f(A: f32[64]) -> (C: f32[64]) {
  for b in 0..2 block.x {
    alloc S: f32[32] in shared
    for t in 0..32 thread.x {
      alloc L: f32[1] in local
      L[0] = A[b * 32 + t]
      S[t] = L[0]
      BARRIER
      C[b * 32 + t] = S[31 - t]
    }
  }
})";

std::string with_barrier(std::string text, const std::string& barrier) {
  return text.replace(text.find("BARRIER"), 7, barrier);
}

TEST(Interpret, RunsThreadsBetweenBarriers) {
  NDArray a(f32, {64}), c = zeros(f32, {64});
  for (int i = 0; i < 64; ++i) a.set_float(i, i);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    InterpretOptions options;
    options.seed = seed;
    interpret(parse_func(with_barrier(reverse_in_shared, "barrier()")), {a, c}, options);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(c.get_float(i), i / 32 * 32 + 31 - i % 32);
  }
  // Siblings bound to one axis are one set of threads, with the barrier between them.
  const char* siblings = R"(
func f(A: f32[64]) -> (C: f32[64]) {
  for b in 0..2 block.x {
    alloc S: f32[32] in shared
    for t in 0..32 thread.x { S[t] = A[b * 32 + t] }
    barrier()
    for u in 0..16 thread.x { for v in 0..2 { C[b * 32 + u * 2 + v] = S[31 - u * 2 - v] } }
  }
})";
  c = zeros(f32, {64});
  interpret(parse_func(siblings), {a, c});
  for (int i = 0; i < 64; ++i) EXPECT_EQ(c.get_float(i), i / 32 * 32 + 31 - i % 32);
}

// What is copied is there when it was waited for; before, it may be or not.
TEST(Interpret, CopiesLandWhenTheyAreWaitedFor) {
  const auto with_wait = [](const std::string& wait) {
    return "func f(A: f32[64]) -> (C: f32[64]) { for b in 0..1 block.x { alloc S: f32[2, 32] in shared\n"
           "begin_copies() for t in 0..32 thread.x { S[0, t] = A[t] } commit_copies()\n"
           "begin_copies() for t in 0..32 thread.x { S[1, t] = A[32 + t] } commit_copies()\n" +
           wait +
           "\nbarrier() for t in 0..32 thread.x { C[t] = S[0, 31 - t] }\n"
           "wait_copies(0) barrier() for t in 0..32 thread.x { C[32 + t] = S[1, 31 - t] } } }";
  };
  NDArray a(f32, {64}), c = zeros(f32, {64});
  for (int i = 0; i < 64; ++i) a.set_float(i, i);
  interpret(parse_func(with_wait("wait_copies(1)")), {a, c});
  for (int i = 0; i < 64; ++i) EXPECT_EQ(c.get_float(i), i / 32 * 32 + 31 - i % 32);
  expect_trap(with_wait("wait_copies(2)"), {a, c}, "never written");
  expect_trap(with_wait(""), {a, c}, "never written");
}

// The threads of a warp see what the others have put into a fragment when they have met; those of another warp never
// do.
TEST(Interpret, WarpsMeetForFragments) {
  const auto with = [](const std::string& meeting) {
    return "func f(A: f32[64]) -> (C: f32[64]) { for b in 0..1 block.x { alloc F: f32[32] in fragment\n"
           "for w in 0..2 thread.y { for t in 0..32 thread.x { F[t] = A[w * 32 + t] } }\n" +
           meeting + "\nfor w in 0..2 thread.y { for t in 0..32 thread.x { C[w * 32 + t] = F[31 - t] } } } }";
  };
  NDArray a(f32, {64}), c = zeros(f32, {64});
  for (int i = 0; i < 64; ++i) a.set_float(i, i);
  interpret(parse_func(with("warp_barrier()")), {a, c});
  for (int i = 0; i < 64; ++i) EXPECT_EQ(c.get_float(i), i / 32 * 32 + 31 - i % 32);
  expect_trap(with(""), {a, c}, "never written");
}

TEST(Interpret, TrapsRacesAndDivergenceOfThreads) {
  auto arrays = [] { return std::vector<NDArray>{zeros(f32, {64}), zeros(f32, {64})}; };
  auto diverging = [](const std::string& barrier) {
    return "func f(A: f32[64]) -> (C: f32[64]) { for t in 0..32 thread.x { C[t] = A[t]\n" + barrier + " } }";
  };
  const std::string without = trap_of(with_barrier(reverse_in_shared, ""), arrays());
  EXPECT_TRUE(without.find("never written") != std::string::npos || without.find("race") != std::string::npos)
      << without;
  expect_trap(diverging("if t < 16 { barrier() }"), arrays(), "not all threads of a block reach");
  expect_trap(diverging("if t < 16 { barrier() } else { barrier() }"), arrays(), "two different ones");
  expect_trap(R"(
func f(A: f32[64]) -> (C: f32[64]) {
  for b in 0..2 block.x { for t in 0..32 thread.x { C[t] = A[t] } }
})",
              arrays(), "two iterations write it");
  // The second phase overwrites what another thread may still read.
  expect_trap(R"(
func f(A: f32[64]) -> (C: f32[64]) {
  for t in 0..32 thread.x {
    alloc S: f32[32] in shared
    S[t] = A[t]
    barrier()
    C[t] = S[31 - t]
    S[t] = 0.0f
  }
})",
              arrays(), "one iteration writes what another reads");
}

TEST(Interpret, EvaluatesAllSamples) {
  const std::vector<test::SampleFunc> samples = test::sample_funcs();
  for (size_t s = 0; s < samples.size(); s += test::is_sanitized ? 2 : 1) {
    const test::SampleFunc& sample = samples[s];
    std::vector<NDArray> arrays = test::random_buffers(sample.func, 3), again;
    for (const NDArray& a : arrays) again.push_back(a.clone());
    interpret(sample.func, arrays);
    InterpretOptions in_order;
    in_order.check_races = false;
    Func simple = sample.func;
    simple.body = simplify(simple.body);
    interpret(simple, again, in_order);
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ(test::largest_difference(arrays[i], again[i]), 0) << sample.name;
    }
  }
}

TEST(Interpret, RefusesWrongArrays) {
  const Func f = parse_func("func f[n](A: f32[n]) -> (C: f32[n]) { for i in 0..n { C[i] = A[i] } }");
  InterpretOptions options;
  auto code_of = [&](std::vector<NDArray> arrays) {
    try {
      interpret(f, arrays, options);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code_of({zeros(f32, {8}), zeros(f32, {8})}), ErrorCode::input);  // no n
  options.parameters["n"] = 8;
  EXPECT_EQ(code_of({zeros(f32, {8})}), ErrorCode::input);
  EXPECT_EQ(code_of({zeros(f32, {7}), zeros(f32, {8})}), ErrorCode::input);
  EXPECT_EQ(code_of({zeros(f64, {8}), zeros(f32, {8})}), ErrorCode::input);
  EXPECT_EQ(code_of({zeros(f32, {8}), zeros(f32, {8})}), ErrorCode::internal);  // runs
}

}  // namespace
}  // namespace tw
