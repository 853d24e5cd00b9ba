// Kernels as machine code of this machine, against the oracle.
#include <gtest/gtest.h>

#include <chrono>

#include "runtime/machine.h"
#include "sample_funcs.h"
#include "targets_run.h"
#include "tensor_ir/parser.h"
#include "tensor_ir/printer.h"

namespace tw {
namespace {

using test::NativeFunc;

// 512³, packed B, a register tile of 14 × 32.
const char* const tiled_matmul = R"(
func matmul(A: f32[504, 512], B: f32[16, 512, 32]) -> (C: f32[504, 512]) {
  for t in 0..576 parallel {
    alloc Cr: f32[14, 32] in register
    for i in 0..14 unrolled {
      for j in 0..32 vectorized {
        block zero(spatial vi: 14 = i, spatial vj: 32 = j) { Cr[vi, vj] = 0.0f }
      }
    }
    for k in 0..512 {
      for i in 0..14 unrolled {
        for j in 0..32 vectorized {
          block update(spatial vi: 504 = (t % 36) * 14 + i, spatial vp: 16 = t // 36, spatial vj: 32 = j, reduce vk: 512 = k) {
            Cr[vi - (t % 36) * 14, vj] = Cr[vi - (t % 36) * 14, vj] + A[vi, vk] * B[vp, vk, vj]
          }
        }
      }
    }
    for i in 0..14 unrolled {
      for j in 0..32 vectorized {
        block out(spatial vi: 504 = (t % 36) * 14 + i, spatial vj: 512 = (t // 36) * 32 + j) {
          C[vi, vj] = Cr[vi - (t % 36) * 14, vj - (t // 36) * 32]
        }
      }
    }
  }
}
)";

TEST(TargetsCodegen, RegisterTileMatmul) {
  const Target target = parse_target("cpu");
  Func f = parse_func(tiled_matmul);
  const auto buffers = test::random_buffers(f, 1);
  const NativeFunc native(f, target);
  if (getenv("TW_SHOW")) {
    for (const auto& k : native.lowered().kernels) puts(to_text(k.func).c_str());
    puts(emit_llvm_ir(native.lowered().kernels, target).c_str());
    puts(emit_assembly(native.lowered().kernels, target).c_str());
  }
  native(buffers);
  const float *a = buffers[0].as<float>(), *b = buffers[1].as<float>(), *c = buffers[2].as<float>();
  double worst = 0;
  for (int i = 0; i < 504; ++i)
    for (int j = 0; j < 512; ++j) {
      double sum = 0;
      for (int k = 0; k < 512; ++k) sum += double(a[i * 512 + k]) * b[(j / 32 * 512 + k) * 32 + j % 32];
      worst = std::max(worst, std::abs(sum - c[i * 512 + j]));
    }
  EXPECT_LT(worst, 1e-3);
  if (getenv("TW_TIME")) {
    for (int r = 0; r < 5; ++r) {
      const double peak = measure_peak_flops(1);
      double best = 1e9;
      for (int n = 0; n < 20; ++n) {
        const auto start = std::chrono::steady_clock::now();
        native(buffers);
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      printf("%.1f GFLOP/s of %.1f: %.3f\n", 2e-9 * 504 * 512 * 512 / best, peak * 1e-9,
             2.0 * 504 * 512 * 512 / best / peak);
    }
  }
}

void expect_same(const test::SampleFunc& sample, const Func& scheduled, const Target& target,
                 const std::vector<NDArray>& inputs, const std::vector<NDArray>& expected) {
  std::vector<NDArray> actual;
  for (const NDArray& array : inputs) actual.push_back(array.clone());
  const NativeFunc native(scheduled, target);
  if (const char* show = getenv("TW_SHOW"); show && sample.name == show) {
    puts(to_text(scheduled).c_str());
    for (const auto& k : native.lowered().kernels) puts(to_text(k.func).c_str());
  }
  native(actual, {}, 2);
  for (size_t i = inputs.size() - static_cast<size_t>(scheduled.output_count); i < inputs.size(); ++i)
    EXPECT_LT(test::largest_difference(actual[i], expected[i]), 1e-4) << sample.name << " on " << target.name;
}

TEST(TargetsCodegen, SampleFuncs) {
  for (const test::SampleFunc& sample : test::sample_funcs()) {
    const auto inputs = test::random_buffers(sample.func, 7);
    std::vector<NDArray> expected;
    for (const NDArray& array : inputs) expected.push_back(array.clone());
    NativeFunc(sample.func, parse_target("x86:sse4"))(expected);
    for (const char* name : {"x86:sse4", "x86:avx2", "cpu"}) {
      const Target target = parse_target(name);
      try {
        expect_same(sample, sample.func, target, inputs, expected);
        const Schedule schedule = target.default_schedule(sample.func, target);
        if (schedule.func().buffers[0]->shape.size() != sample.func.buffers[0]->shape.size()) continue;
        bool is_same_shape = true;
        for (size_t i = 0; i < schedule.func().buffers.size(); ++i)
          is_same_shape &= const_shape(schedule.func().buffers[i]) == const_shape(sample.func.buffers[i]);
        if (!is_same_shape) continue;
        expect_same(sample, schedule.func(), target, inputs, expected);
      } catch (const Error& e) {
        ADD_FAILURE() << sample.name << " on " << name << ": " << e.what();
      }
    }
  }
}

}  // namespace
}  // namespace tw
