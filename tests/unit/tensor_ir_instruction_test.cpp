// Each instruction means what its description says: the loops and the intrinsic compute the same.
#include <gtest/gtest.h>

#include <random>

#include "tensor_ir/instruction.h"
#include "tensor_ir/interp.h"
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

TEST(TensorInstruction, DotOfBf16RoundsAsTheMachineDoes) {
  const auto dot = [](float sum, float a0, float a1, float b0, float b1) {
    const auto word = [](float low, float high) {
      return int_imm(u32, float_to_bf16(low) | static_cast<int64_t>(float_to_bf16(high)) << 16);
    };
    return evaluate_float(call(Intrinsic::dot_bf16, {float_imm(f32, sum), word(a0, a1), word(b0, b1)}), {});
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
