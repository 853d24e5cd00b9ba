// The text form: everything that prints parses back to itself, and what does not parse is refused, not crashed on.
#include <gtest/gtest.h>

#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"
#include "tensor_ir/verify.h"
#include "tests/unit/tensor_ir/random.h"

namespace tw {
namespace {

void expect_round_trip(const Func& f) {
  std::string text = to_text(f);
  Func again;
  ASSERT_NO_THROW(
      try { again = parse_func(text); } catch (const Error& e) {
        ADD_FAILURE() << e.what() << "\n" << text;
        throw;
      });
  EXPECT_TRUE(structural_equal(f, again)) << text << "\n=>\n" << to_text(again);
  EXPECT_EQ(structural_hash(f), structural_hash(again)) << text;
  EXPECT_EQ(to_text(again), text);
}

std::string error_of(const std::string& text) {
  try {
    parse_func(text, "t.tw");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::text) << e.what();
    return e.what();
  }
  return "";
}

// An expression in the smallest Func around it.
std::string body(const std::string& statements) {
  return "func f[n](A: f32[n, 8], I: i64[n], X: f32x4[2]) -> (C: f32[n, 8], M: bool[n], D: i64[n]) {\n" + statements +
         "\n}\n";
}

TEST(Text, PrintsWhatItReads) {
  const char* canonical =
      R"(func matmul[n](A: f32[n, 512], B: f32[512, 512] strides [513, 1] align 16 constant) -> (C: f32[n, 512] streamed) attrs {ratio = 0.5, why = "a \"b\""} {
  alloc T: f32[6, 16] in register
  for i in 0..n parallel {
    for j in 0..512 vectorized attrs {factor = 2} {
      block C(spatial vi: n = i, spatial vj: 512 = j, reduce vk: 512 = (i + j) % 4) where i * 16 + j < 512 attrs {x = 1} {
        init {
          C[vi, vj] = 0.0f
        }
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
      }
    }
    {
      let x = i * 4
      alloc L: i32[] in stack
      L[] = i32(x)
      prefetch(A[x, 0], 3)
    }
    for t in 0..32 thread.x {
      barrier()
    }
    if i < 3 {
      C[i, 0] = let y = A[i, 0] in y * y
    } else if i == 4 {} else {
      C[i where i < n] = -inf_f32
    }
  }
  seq {
    T[0, 0] = T[0 where false]
  }
}
)";
  Func f = parse_func(canonical);
  EXPECT_EQ(to_text(f), canonical);
  expect_round_trip(f);
}

TEST(Text, KeepsEveryExpressionAsWritten) {
  // Each must print exactly so: parentheses only where the tree needs them.
  const std::pair<const char*, const char*> cases[] = {
      {"D", "n + 1 - (n - 1)"},
      {"D", "(n + 1) * 2"},
      {"D", "n // 2 * 2 + n % 2"},
      {"D", "n // (2 * n)"},
      {"D", "div(n, 2) + mod(n, 2)"},
      {"D", "-n - -3"},
      {"D", "-(3)"},
      {"D", "-(-3)"},
      {"D", "~n & 7 | n ^ 3 << 2"},
      {"D", "(n | 1) & 3"},
      {"D", "n >> 1 << 1"},
      {"D", "min(n, max(3, I[n - 1]))"},
      {"D", "-9223372036854775808"},
      {"D", "9223372036854775807"},
      {"D", "i64(7i32)"},
      {"D", "i64(255u8) + i64(-128i8)"},
      {"D", "i64(18446744073709551615u64)"},
      {"D", "select(n < 3 && !(n == 2) || n != 4, n, 0)"},
      {"D", "select((n < 3) == (n < 4), 1, 0)"},
      {"D", "reduce_add(ramp(n, 2, 16)) * reduce_max(broadcast(n, 3))"},
      {"D", "(let x = n * n in x + x) + 1"},
      {"D", "popcount(n)"},
      {"D", "i64(philox(u64(n), 3u64, 4u64))"},
      {"D", "I[I[n] where n < 3]"},
      {"D", "D[n]"},
      {"M", "true"},
      {"M", "!false"},
      {"M", "A[0, 0] <= 0.1f"},
      {"M", "is_nan(A[n, 0])"},
      {"M", "reduce_and(ramp(0, 1, 4) < broadcast(n, 4))"},
      {"M", "M[0] && (M[1] || M[2])"},
      {"M", "M[0] & M[1] ^ M[2]"},
      {"C", "A[0, 0] / 3.0f / 4.0f"},
      {"C", "A[0, 0] // (3.0f / 4.0f)"},
      {"C", "1e+30f"},
      {"C", "-0.0f"},
      {"C", "nan_f32"},
      {"C", "f32(0.1f64 + inf_f64)"},
      {"C", "f32(0.1f16 * 6.55e+04f16) + f32(0.1bf16)"},
      {"C", "f32(1.401298464324817e-45f64)"},
      {"C", "1e-45f"},
      {"C", "fma(A[0, 0], A[n - 1, 7], exp(1.0f))"},
      {"C", "reinterpret:f32(reinterpret:i32(A[0, 0]) ^ 1i32)"},
      {"C", "reduce_add(lane_concat(lane_slice:f32x2(X[0], 2), lane_slice:f32x2(X[1], 0)))"},
      {"C", "reduce_add(A[ramp(0, 1, 4), broadcast(0, 4) where ramp(0, 1, 4) < broadcast(n, 4)])"},
      {"C", "reduce_mul(f32x4(ramp(0, 1, 4)))"},
      {"C", "A[]"},
  };
  for (auto [target, expression] : cases) {
    std::string store = std::string(target) + "[0" + (*target == 'C' ? ", 0] = " : "] = ") + expression;
    if (std::string(expression) == "A[]") {
      EXPECT_NE(error_of(body(store)).find("2 dimensions but 0 indices"), std::string::npos);
      continue;
    }
    Func f;
    ASSERT_NO_THROW(
        try { f = parse_func(body(store)); } catch (const Error& e) {
          ADD_FAILURE() << e.what();
          throw;
        });
    EXPECT_NE(to_text(f).find("  " + store + "\n"), std::string::npos) << expression << "\n" << to_text(f);
    expect_round_trip(f);
  }
}

TEST(Text, ReadsEveryIntrinsicOperatorScopeAndLoopKind) {
  for (const char* word : syntax::intrinsic_words) {
    for (const char* call : {"(A[0, 0])", "(A[0, 0], A[0, 0])", "(A[0, 0], A[0, 0], A[0, 0])"}) {
      if (std::string(word).find("dot_") != std::string::npos || std::string(word).find("matrix_") == 0 ||
          std::string(word).find("mma_") != std::string::npos)
        continue;  // below
      if (std::string(word).find("lane") == 0 || std::string(word) == "reinterpret" || std::string(word) == "barrier")
        continue;
      std::string name = word;
      DType result = name.find("is_") == 0 ? boolean : f32;
      std::string argument = call;
      if (name == "prefetch") argument = "(A[0, 0], 2)";
      if (name == "popcount" || name == "philox" || name.starts_with("decode_")) continue;  // of integers
      if (name.starts_with("encode_")) continue;                                            // to integers
      try {
        expect_round_trip(parse_func(body(
            name == "prefetch" ? name + argument : (result.is_bool() ? "M[0] = " : "C[0, 0] = ") + name + argument)));
        break;  // the number of arguments fitted
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("argument"), std::string::npos) << e.what();
        EXPECT_NE(std::string(call).find("A[0, 0], A[0, 0], A"), 0u);
      }
    }
  }
  for (const char* value :
       {"dot_bf16(A[0, 0], 1u32, 2u32)",
        "tile_dot_bf16(A[0, 0], 1u32, 2u32)",
        "f32(tile_dot_s8s8(1i32, 2u32, 3u32))",
        "reduce_add(f32x4(matrix_s8s8(broadcast(1i32, 4), broadcast(2u32, 4), broadcast(3u32, 4))))",
        "f32(dot_u8s8(1i32, 2u32, 3u32))",
        "f32(dot_s8s8(1i32, 2u32, 3u32))",
        "f32(word_at:u64(A[0, 0]))",
        "mma_bf16(A[0, 0], 1.0bf16, 2.0bf16)",
        "mma_f16(A[0, 0], 1.0f16, 2.0f16)",
        "mma_tf32(A[0, 0], 1.0f, 2.0f)",
        "f32(mma_s8s8(1i32, 2i8, 3i8))",
        "f32(mma_u8s8(1i32, 2u8, 3i8))",
        "f32(mma_s8u8(1i32, 2i8, 3u8))",
        "f32(mma_u8u8(1i32, 2u8, 3u8))",
        "mma_e4m3e4m3(A[0, 0], 2u8, 3u8)",
        "mma_e4m3e5m2(A[0, 0], 2u8, 3u8)",
        "mma_e5m2e4m3(A[0, 0], 2u8, 3u8)",
        "mma_e5m2e5m2(A[0, 0], 2u8, 3u8)",
        "decode_e4m3(encode_e4m3(A[0, 0]))",
        "decode_e5m2(encode_e5m2(A[0, 0]))",
        "wgmma_bf16(A[0, 0], 1.0bf16, 2.0bf16)",
        "wgmma_f16(A[0, 0], 1.0f16, 2.0f16)",
        "f32(wgmma_u8s8(1i32, 2u8, 3i8))",
        "wgmma_e5m2e4m3(A[0, 0], 2u8, 3u8)"}) {
    expect_round_trip(parse_func(body(std::string("C[0, 0] = ") + value)));
  }
  for (const char* scope : syntax::scope_words) {
    expect_round_trip(parse_func(body(std::string("alloc B: f32[2] in ") + scope + "\nB[0] = 1.0f")));
  }
  for (const char* kind : {"", "serial", "parallel", "vectorized", "unrolled", "tensorized", "block.x", "block.y",
                           "block.z", "thread.x", "thread.y", "thread.z"}) {
    expect_round_trip(parse_func(body(std::string("for i in 0..n ") + kind + " { D[i] = i }")));
  }
}

TEST(Text, RandomFuncsRoundTrip) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    expect_round_trip(testing::RandomFunc(seed).make());
    if (HasFailure()) return;
  }
}

TEST(Text, NamesThatCollideAreMadeUnique) {
  Var outer("i"), inner("i"), free("i");
  Buffer b("i", i64, {Expr(4)});
  Stmt store_inner = store(b, {inner}, outer + free);
  Stmt s =
      make_stmt<For>(outer, Expr(4), LoopKind::serial, make_stmt<For>(inner, Expr(4), LoopKind::serial, store_inner));
  EXPECT_EQ(to_text(s), "for i_2 in 0..4 {\n  for i_3 in 0..4 {\n    i[i_3] = i_2 + i_1\n  }\n}\n");
  // A name is free again after its scope.
  Stmt two = seq({make_stmt<For>(outer, Expr(2), LoopKind::serial, store(b, {outer}, 1)),
                  make_stmt<For>(inner, Expr(2), LoopKind::serial, store(b, {inner}, 2))});
  Func f{"f", {b}, 1, {}, two, {}};
  EXPECT_NE(to_text(f).find("i[i_1] = 1"), std::string::npos);
  EXPECT_NE(to_text(f).find("i[i_1] = 2"), std::string::npos);
  expect_round_trip(f);
}

TEST(Text, SeveralFuncsInOneText) {
  std::vector<Func> funcs = parse_funcs("# two\nfunc a() -> (C: f32[1]) { C[0] = 1.0f }\nfunc b() -> () { }\n# end");
  ASSERT_EQ(funcs.size(), 2u);
  EXPECT_EQ(funcs[1].name, "b");
  EXPECT_EQ(funcs[1].output_count, 0);
  EXPECT_TRUE(parse_funcs("").empty());
}

TEST(Text, ErrorsLocateExplainAndSuggest) {
  std::string error = error_of("func f(A: f32[4]) -> (C: f32[4]) {\n  for i in 0..4 {\n    C[i] = A[ii]\n  }\n}\n");
  EXPECT_NE(error.find("error[parse]: unknown name `ii`\n"
                       "  t.tw:3  C[i] = A[ii]\n"
                       "                   ^\n"
                       "  help: did you mean `i`?"),
            std::string::npos)
      << error;
}

TEST(Text, LimitsAreErrors) {
  auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  EXPECT_NE(error_of(body("D[0] = " + repeat("(", 5000) + "n" + repeat(")", 5000))).find("levels deep"),
            std::string::npos);
  EXPECT_NE(error_of(body("D[0] = " + repeat("-", 5000) + "n")).find("levels deep"), std::string::npos);
  EXPECT_NE(error_of(body("D[0] = n" + repeat(" + n", 5000))).find("1024 levels"), std::string::npos);
  EXPECT_EQ(error_of(body("D[0] = n" + repeat(" + n", 1000))), "");
  EXPECT_NE(error_of(body(repeat("if true { ", 300) + repeat("}", 300))).find("levels deep"), std::string::npos);
  EXPECT_NE(error_of(body("if true { } " + repeat("else if true { } ", 300))).find("levels deep"), std::string::npos);
  std::string lets;
  for (int i = 0; i < 3000; ++i) lets += "let x" + std::to_string(i) + " = n\n";
  EXPECT_NE(error_of(body(lets)).find("2048 let"), std::string::npos);
  EXPECT_NE(error_of(std::string((16 << 20) + 1, ' ')).find("longer than the limit"), std::string::npos);
  EXPECT_LT(error_of("func " + std::string(1 << 20, 'x') + " " + std::string(1 << 20, 'y')).size(), 2000u);
}

TEST(Text, EveryTruncationAndEveryByteChangeIsSurvived) {
  std::string text = to_text(testing::RandomFunc(5).make());
  for (size_t i = 0; i < text.size(); ++i) {
    try {
      parse_funcs(text.substr(0, i));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::text);
    }
    for (char c : {'\0', '(', '}', '`', '"', '\xff', '9'}) {
      std::string changed = text;
      changed[i] = c;
      try {
        expect_round_trip(parse_func(changed));
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::text) << e.what();
      }
    }
  }
}

TEST(Structural, EqualUpToBoundNamesOnly) {
  auto parse = [](const std::string& s) { return parse_func(body(s)); };
  Func a = parse("for i in 0..n { D[i] = i + 1 }");
  EXPECT_TRUE(structural_equal(a, parse("for j in 0..n { D[j] = j + 1 }")));
  EXPECT_EQ(structural_hash(a), structural_hash(parse("for j in 0..n { D[j] = j + 1 }")));
  for (const char* other : {"for i in 0..n { D[i] = 1 + i }", "for i in 0..n parallel { D[i] = i + 1 }",
                            "for i in 0..n { D[i] = i + 2 }", "for i in 0..n { I[i] = i + 1 }",
                            "for i in 0..n { D[i where true] = i + 1 }", "for i in 0..n attrs {a = 1} { D[i] = i + 1 }",
                            "for i in 0..n { D[i] = n + 1 }", "for i in 0..n { for j in 0..n { D[i] = i + 1 } }"}) {
    EXPECT_FALSE(structural_equal(a, parse(other))) << other;
    EXPECT_NE(structural_hash(a), structural_hash(parse(other))) << other;
  }
  Var x("x"), y("x");
  EXPECT_FALSE(structural_equal(x + 1, y + 1));  // free: not the same object
  EXPECT_TRUE(structural_equal(x + 1, x + 1));
  EXPECT_FALSE(structural_equal(float_imm(f32, 0.0), float_imm(f32, -0.0)));
  EXPECT_TRUE(structural_equal(float_imm(f32, NAN), float_imm(f32, -NAN)));
  // Facts of parameters count, their names do not.
  Func named = parse_func("func f(A: f32[1], B: f32[1] constant) -> () { }");
  EXPECT_TRUE(structural_equal(named, parse_func("func g(X: f32[1], W: f32[1] constant) -> () { }")));
  EXPECT_FALSE(structural_equal(named, parse_func("func g(X: f32[1] constant, W: f32[1]) -> () { }")));
}

TEST(Structural, HashIsTheSameOnEveryPlatformAndInEveryRun) {
  Func f = parse_func(
      "func f[n](A: f32[n, 8] align 16 constant) -> (C: f32[n]) attrs {r = 0.5, s = \"t\"} {\n"
      "  alloc T: f32[4] in register\n"
      "  for i in 0..n parallel { block b(spatial v: n = i, reduce r: 8 = 3) { init { C[v] = 0.0f } C[v] = fma(A[v, "
      "r], 2.5f, C[v]) } } }");
  EXPECT_EQ(structural_hash(f), 17937787090309623617u);
}

TEST(Verify, AcceptsRandomFuncsAndFindsWhatIsBroken) {
  int accepted = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Func f = testing::RandomFunc(seed).make();
    try {
      verify(f);
      ++accepted;
    } catch (const Error& e) {
      ADD_FAILURE() << seed << ": " << e.what();
      return;
    }
  }
  EXPECT_EQ(accepted, 500);

  auto violation = [](const Func& f) -> std::string {
    try {
      verify(f);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::verify);
      return e.what();
    }
    return "";
  };
  Buffer in("A", f32, {Expr(4)}), out("C", f32, {Expr(4)}), other("T", f32, {Expr(4)});
  auto func = [&](Stmt s) { return Func{"f", {in, out}, 1, {}, s, {}}; };
  Var i("i");
  auto loop = [&](Stmt s) { return make_stmt<For>(i, Expr(4), LoopKind::serial, s); };
  EXPECT_EQ(violation(func(loop(store(out, {i}, load(in, {i}))))), "");
  EXPECT_NE(violation(func(store(out, {i}, float_imm(f32, 1)))).find("`i` is not bound here"), std::string::npos);
  EXPECT_NE(violation(func(store(other, {Expr(0)}, float_imm(f32, 1)))).find("neither a parameter nor allocated"),
            std::string::npos);
  EXPECT_NE(violation(func(store(in, {Expr(0)}, float_imm(f32, 1)))).find("only read"), std::string::npos);
  EXPECT_NE(violation(func(loop(loop(store(out, {i}, load(in, {i})))))).find("bound already"), std::string::npos);
  EXPECT_NE(violation(func(seq({loop(store(out, {i}, load(in, {i}))), loop(store(out, {i}, load(in, {i})))})))
                .find("share the variable"),
            std::string::npos);
  EXPECT_NE(violation(func(make_stmt<Store>(out, std::vector<Expr>{Expr(0)}, Expr(1)))).find("is stored where"),
            std::string::npos);
  EXPECT_NE(violation(func(make_stmt<Store>(out, std::vector<Expr>{}, float_imm(f32, 1)))).find("0 indices"),
            std::string::npos);
  EXPECT_NE(violation(func(store(out, {Expr(0)}, make_expr<Binary>(f32, BinaryOp::add, float_imm(f32, 1), Expr(1)))))
                .find("different types"),
            std::string::npos);
  EXPECT_NE(violation(func(store(out, {Expr(0)}, make_expr<FloatImm>(f32, 0.1)))).find("is not a value of f32"),
            std::string::npos);
  EXPECT_NE(violation(func(make_stmt<Evaluate>(Expr(3)))).find("effect"), std::string::npos);
  EXPECT_NE(violation(func(make_stmt<For>(i, Expr(4), LoopKind::thread, seq({})))).find("hardware axis"),
            std::string::npos);
  auto block = [&](const std::string& name, Stmt s) {
    return make_stmt<Block>(name, std::vector<IterVar>{}, Expr(), Stmt(), s);
  };
  EXPECT_NE(violation(func(block("a", block("b", seq({}))))).find("do not nest"), std::string::npos);
  EXPECT_NE(violation(func(seq({block("a", seq({})), block("a", seq({}))}))).find("two blocks"), std::string::npos);
  EXPECT_NE(violation(func(loop(block("a", store(out, {i}, float_imm(f32, 1)))))).find("of the loops around it"),
            std::string::npos);
  // All at once.
  std::string two =
      violation(func(seq({store(other, {Expr(0)}, float_imm(f32, 1)), store(in, {Expr(0)}, float_imm(f32, 1))})));
  EXPECT_NE(two.find("neither"), std::string::npos);
  EXPECT_NE(two.find("only read"), std::string::npos);
}

}  // namespace
}  // namespace tw
