// Each instruction means what its description says: the loops and the intrinsic compute the same.
#include "tensor_ir/instruction.h"

#include <gtest/gtest.h>

#include <random>

#include "tensor_ir/interp/interp.h"
#include "tensor_ir/scalar_meaning.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/verify.h"

namespace tw {
namespace {

// Small numbers: integers are exact, and floats are as exact as the description's own roundings.
void fill(NDArray& array, std::mt19937_64& random) {
  for (int64_t i = 0; i < array.size(); ++i) {
    if (array.dtype().is_float())
      array.set_float(i, std::uniform_real_distribution<double>(-2, 2)(random));
    else
      array.set_int(i, static_cast<int64_t>(random()));
  }
}

TEST(TensorInstruction, DescriptionAndReplacementAgree) {
  ASSERT_FALSE(tensor_instructions().empty());
  std::mt19937_64 random(1);
  for (const TensorInstruction& instruction : tensor_instructions()) {
    verify(instruction.description);
    if (!instruction.replacement.body.is_defined()) continue;  // made for a nest: below
    verify(instruction.replacement);
    for (int round = 0; round < 100; ++round) {
      std::vector<NDArray> loops, call;
      for (const Buffer& buffer : instruction.description.buffers) {
        loops.emplace_back(buffer->dtype, *const_shape(buffer));
        fill(loops.back(), random);
        call.push_back(loops.back().clone());
      }
      InterpretOptions options;
      options.poison_outputs = false;  // the accumulator is read
      interpret(instruction.description, loops, options);
      interpret(instruction.replacement, call, options);
      const bool is_exact = !loops.back().dtype().is_float();
      EXPECT_NEAR(loops.back().get_float(0), call.back().get_float(0), is_exact ? 0 : 2e-6) << instruction.name;
    }
  }
}

// The nest of `text`, and what the instruction makes of it.
std::pair<Func, Func> nest_and_tile(const std::string& name, const std::string& text) {
  Func nest = parse_func(text), tile = nest;
  const InstructionMatch match = match_instruction(*find_tensor_instruction(name), *nest.body.as<For>(), {});
  EXPECT_TRUE(match.is_found()) << name << ": " << match.problem;
  if (match.is_found()) tile.body = match.replacement;
  return {nest, tile};
}

TEST(TensorInstruction, TilesFragmentsAndMatricesMeanTheirLoops) {
  const auto product = [](const std::string& name, const std::string& a, const std::string& b, const std::string& sum,
                          const std::string& g) {
    // 5 × 7 × 3 words; rows of a lie 40 apart, those of b 56.
    return std::pair{name, "func f(A: " + a + "[200], B: " + b + "[168]) -> (C: " + sum + "[35]) {" +
                               " for i in 0..5 { for j in 0..7 { for l in 0..3 { for t in 0.." + g + " {" +
                               "  C[i * 7 + j] = C[i * 7 + j] + " + sum + "(A[i * 40 + l * " + g + " + t]) * " + sum +
                               "(B[l * 56 + j * " + g + " + t])" + " } } } } }"};
  };
  const auto matrix = [](const std::string& name, const std::string& a) {  // rows of a lie 20 apart
    return std::pair{name, "func f(A: " + a +
                               "[40], B: i8[40]) -> (C: i32[9]) {"
                               " for i in 0..2 { for j in 0..2 { for t in 0..8 {"
                               "  C[i * 2 + j + 5] = C[i * 2 + j + 5] + i32(A[i * 20 + t + 3]) * i32(B[j * 8 + t + 16])"
                               " } } } }"};
  };
  const auto fragment = [](const std::string& name, const std::string& a, const std::string& b, const std::string& sum,
                           const std::string& factor,
                           const std::string& of_second = "") {  // rows of a lie 40 apart, columns of b 9
    return std::pair{name, "func f(A: " + a + "[200], B: " + b + "[168]) -> (C: " + sum + "[35]) {" +
                               " for i in 0..5 { for j in 0..7 { for l in 0..11 {" +
                               "  C[i * 7 + j] = C[i * 7 + j] + " + factor + "(A[i * 40 + l]) * " +
                               (of_second.empty() ? factor : of_second) + "(B[l * 9 + j])" + " } } } }"};
  };
  const std::pair<std::string, std::string> cases[] = {
      fragment("mma_bf16", "bf16", "bf16", "f32", "f32"),
      fragment("mma_f16", "f16", "f16", "f32", "f32"),
      fragment("mma_tf32", "f32", "f32", "f32", "round_tf32"),
      fragment("mma_s8s8", "i8", "i8", "i32", "i32"),
      fragment("mma_u8s8", "u8", "i8", "i32", "i32"),
      fragment("mma_s8u8", "i8", "u8", "i32", "i32"),
      fragment("mma_u8u8", "u8", "u8", "i32", "i32"),
      fragment("mma_e4m3e4m3", "u8", "u8", "f32", "decode_e4m3"),
      fragment("mma_e4m3e5m2", "u8", "u8", "f32", "decode_e4m3", "decode_e5m2"),
      fragment("mma_e5m2e4m3", "u8", "u8", "f32", "decode_e5m2", "decode_e4m3"),
      fragment("mma_e5m2e5m2", "u8", "u8", "f32", "decode_e5m2"),
      matrix("matrix_u8s8", "u8"),
      matrix("matrix_s8s8", "i8"),
      {"matrix_zero_i32", "func f() -> (C: i32[9]) { for i in 0..2 { for j in 0..2 { C[i * 2 + j + 5] = 0i32 } } }"},
      product("tile_dot_bf16", "bf16", "bf16", "f32", "2"),
      product("tile_dot_u8s8", "u8", "i8", "i32", "4"),
      product("tile_dot_s8s8", "i8", "i8", "i32", "4"),
      {"tile_zero_f32", "func f() -> (C: f32[35]) { for i in 0..5 { for j in 0..7 { C[i * 7 + j] = 0.0f } } }"},
      {"tile_copy_bf16",
       "func f(C: bf16[60]) -> (D: bf16[100]) { for i in 0..5 { for j in 0..7 { D[i * 20 + j] = C[i * 11 + j + 2] } } "
       "}"},
      {"tile_copy_f16",
       "func f(C: f16[60]) -> (D: f16[100]) { for i in 0..5 { for j in 0..7 {"
       "  D[i * 20 + j] = C[i * 11 + j + 2 where i < 3 && j + 4 < 9] } } }"},
      {"tile_copy_i8",
       "func f(C: i8[60]) -> (D: i8[100]) { for i in 0..5 { for j in 0..7 { D[i * 20 + j] = C[i * 11 + j + 2] } } }"},
      {"tile_copy_u8",
       "func f(C: u8[60]) -> (D: u8[100]) { for i in 0..5 { for j in 0..7 {"
       "  D[i * 20 + j] = C[i * 11 + j + 2 where i < 3] } } }"},
      {"tile_store_i32",
       "func f(C: i32[35]) -> (D: i32[100]) { for i in 0..5 { for j in 0..7 { D[i * 20 + j] = C[i * 7 + j] } } }"},
  };
  std::mt19937_64 random(2);
  for (const auto& [name, text] : cases) {
    const auto [nest, tile] = nest_and_tile(name, text);
    verify(tile);
    EXPECT_TRUE(structural_equal(parse_func(to_text(tile)), tile)) << to_text(tile);
    std::vector<NDArray> loops, call;
    for (const Buffer& buffer : nest.buffers) {
      loops.emplace_back(buffer->dtype, *const_shape(buffer));
      fill(loops.back(), random);
      constexpr int64_t below_one = 0xb7;  // codes of floats
      for (int64_t i = 0; buffer->dtype == u8 && nest.buffers.back()->dtype == f32 && i < loops.back().size(); ++i)
        loops.back().set_int(i, loops.back().get_int(i) & below_one);
      call.push_back(loops.back().clone());
    }
    InterpretOptions options;
    options.poison_outputs = false;
    interpret(nest, loops, options);
    interpret(tile, call, options);
    for (int64_t i = 0; i < loops.back().size(); ++i) {
      EXPECT_NEAR(loops.back().get_float(i), call.back().get_float(i), loops.back().dtype().is_float() ? 4e-6 : 0)
          << name << " " << i;
    }
  }
}

TEST(TensorInstruction, TilesSumEvenAndOddElementsApart) {
  // One row, one column, two words: 2²⁴ + 1 − 2²⁴ + 0 is 1 in f32 by even (2²⁴ − 2²⁴) and odd (1 + 0) elements only.
  const auto dot = [](float sum, std::vector<float> a, std::vector<float> b) {
    std::vector<uint32_t> x, y;
    for (size_t i = 0; i < a.size(); i += 2) {
      x.push_back(float_to_bf16(a[i]) | static_cast<uint32_t>(float_to_bf16(a[i + 1])) << 16);
      y.push_back(float_to_bf16(b[i]) | static_cast<uint32_t>(float_to_bf16(b[i + 1])) << 16);
    }
    return meaning::tile_dot(Intrinsic::tile_dot_bf16, double{sum}, static_cast<int>(x.size()), x.data(), y.data());
  };
  EXPECT_EQ(dot(0, {16777216.0f, 1, -16777216.0f, 0}, {1, 1, 1, 1}), 1.0);
  // The accumulator comes last.
  EXPECT_EQ(dot(-16777216.0f, {16777216.0f, 1, 0, 0}, {1, 1, 1, 1}), 0.0);
  EXPECT_EQ(dot(1, {16777216.0f, 0, -16777216.0f, 0}, {1, 1, 1, 1}), 1.0);
  EXPECT_EQ(dot(0, {0x1p-70f, 0}, {0x1p-70f, 0}), 0.0);
  EXPECT_EQ(dot(0x1p-127f, {0, 0}, {0, 0}), 0.0);
}

TEST(TensorInstruction, DotOfBf16RoundsAsTheMachineDoes) {
  const auto dot = [](float sum, float a0, float a1, float b0, float b1) {
    const auto word = [](float low, float high) {
      return int_imm(u32, float_to_bf16(low) | static_cast<int64_t>(float_to_bf16(high)) << 16);
    };
    return evaluate(call(Intrinsic::dot_bf16, {float_imm(f32, sum), word(a0, a1), word(b0, b1)})).get_float(0);
  };
  // The upper products come first: they cancel the accumulator before the lower ones are added.
  EXPECT_EQ(dot(-16777216.0f, 1, 16777216.0f, 1, 1), 1.0);
  EXPECT_EQ(dot(-16777216.0f, 16777216.0f, -1, 1, 1), 0.0);
  // One rounding a step: 1 + 2⁻²⁴ is lost, twice.
  EXPECT_EQ(dot(1.0f, 0x1p-12f, 0x1p-12f, 0x1p-12f, 0x1p-12f), 1.0);
  // Subnormal operands and results are zero.
  EXPECT_EQ(dot(0.0f, 0x1p-130f, 0, 0x1p100f, 0), 0.0);
  EXPECT_EQ(dot(0.0f, 0x1p-70f, 0, 0x1p-70f, 0), 0.0);
  EXPECT_EQ(dot(0x1p-127f, 0, 0, 0, 0), 0.0);
}

}  // namespace
}  // namespace tw
