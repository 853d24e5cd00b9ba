// CUDA without a GPU: the oracle runs what is scheduled and lowered, with blocks and threads in random order; NVRTC
// compiles the text where it is installed, and the emulator (tests/cuda_emulator) runs it.
#include "runtime/device/cuda.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "targets/cuda/default_schedule.h"
#include "targets/cuda/emit.h"
#include "targets/cuda/nvrtc.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/verify.h"
#include "tests/unit/cuda_device.h"
#include "tests/unit/cuda_intrinsics.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/targets/run.h"
#include "tests/unit/targets/same_meaning.h"

namespace tw {
namespace {

std::string symbols_of(const std::vector<Kernel>& kernels) {
  std::string text;
  for (const Kernel& kernel : kernels) text += to_text(kernel.func);
  return text;
}

const Target& sm_90() {
  static const Target target = parse_target("cuda:sm_90");
  return target;
}

// Scheduled by default and lowered; the oracle's answer must be that of the Func as it was written.
LoweredFunc expect_right(const Func& func, double tolerance = 1e-4) {
  const Schedule schedule = sm_90().default_schedule(func, sm_90());
  LoweredFunc lowered;
  try {
    lowered = lower(schedule.func(), sm_90(), "kernel");
    for (const Kernel& kernel : lowered.kernels) verify(kernel.func);
    const std::vector<NDArray> inputs = test::random_buffers(func, 7);
    std::vector<NDArray> expected, actual;
    for (size_t i = 0; i < inputs.size(); ++i) {
      expected.push_back(inputs[i].clone());
      actual.push_back(test::as_scheduled(inputs[i].clone(), schedule.trace(), func.buffers[i]->name));
    }
    interpret(func, expected);
    test::interpret_kernels(lowered, schedule.func(), actual, {.parameters = {}, .seed = 11});
    for (size_t i = inputs.size() - static_cast<size_t>(func.output_count); i < inputs.size(); ++i) {
      EXPECT_LT(test::largest_difference(actual[i], expected[i]), tolerance) << symbols_of(lowered.kernels);
    }
  } catch (const Error& e) {
    ADD_FAILURE() << e.what() << "\n" << to_text(schedule.func()) << symbols_of(lowered.kernels);
  }
  return lowered;
}

class CudaSample : public ::testing::TestWithParam<size_t> {};

TEST_P(CudaSample, DefaultScheduleGivesTheOraclesAnswerAndCompiles) {
  const test::SampleFunc sample = test::sample_funcs()[GetParam()];
  const LoweredFunc lowered = expect_right(sample.func);
  const std::string text = cuda::emit_cuda(lowered.kernels, sm_90().shared_bytes);
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << cuda::nvrtc_problem();
  EXPECT_GT(cuda::compile_cubin(text, 90, sample.name).size(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(All, CudaSample, ::testing::Range<size_t>(0, test::sample_funcs().size()),
                         [](const auto& info) { return test::sample_funcs()[info.param].name; });

TEST(Cuda, WholeTilesAndTailsOfMatmulMeetInSharedMemory) {
  const LoweredFunc lowered = expect_right(test::matmul(70, 130, 37));
  ASSERT_EQ(lowered.kernels.size(), 1u);
  const std::string text = cuda::emit_cuda(lowered.kernels);
  EXPECT_EQ(test::count_of(text, "__shared__ __align__(16)"), 2) << text;
  // Once a piece: what is filled meanwhile is the other version of the tiles.
  EXPECT_EQ(test::count_of(text, "__syncthreads();"), 1) << text;
  EXPECT_EQ(test::count_of(text, " C_local_0[16];"), 1) << text;  // 4 × 4 a thread
  const Launch launch = cuda::launch_of(lowered.kernels[0]);
  EXPECT_EQ(as_int(launch.grid[0]), 2 * 3);
  EXPECT_EQ(as_int(launch.block[0]), 16);
  EXPECT_EQ(as_int(launch.block[1]), 16);
}

// The oracle runs threads in random order and reports what one reads before another has written it.
TEST(Cuda, ThreadsWaitOnceAnIterationOfAPipelinedLoop) {
  const std::string loops = R"(
    func rows(A: f32[2, 9, 32]) -> (C: f32[2, 9, 32]) {
      for b in 0..2 BLOCK {
        for k in 0..9 STAGES {
          alloc S: f32[32] in shared
          for t in 0..32 THREAD { S[t] = A[b, k, t] }
          for t in 0..32 THREAD { C[b, k, t] = S[31 - t] }
        }
      }
    })";
  const auto with = [&](const std::string& block, const std::string& thread, const std::string& stages) {
    return parse_func(std::regex_replace(
        std::regex_replace(std::regex_replace(loops, std::regex("BLOCK"), block), std::regex("THREAD"), thread),
        std::regex("STAGES"), stages));
  };
  const Func serial = with("", "", "");
  for (int stages = 2; stages <= 5; ++stages) {
    const Func func = with("block.x", "thread.x", "attrs {pipeline = " + std::to_string(stages) + "}");
    const LoweredFunc lowered = lower(func, sm_90(), "kernel");
    EXPECT_EQ(test::count_of(cuda::emit_cuda(lowered.kernels), "__syncthreads();"), 1);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      std::vector<NDArray> expected = test::random_buffers(func, seed), actual;
      for (const NDArray& array : expected) actual.push_back(array.clone());
      interpret(serial, expected);
      test::interpret_kernels(lowered, func, actual, {.parameters = {}, .seed = seed});
      EXPECT_EQ(test::largest_difference(actual[1], expected[1]), 0);
    }
  }
}

TEST(Cuda, ConvolutionsOfSeveralTiles) {
  expect_right(test::conv2d(20, 70, 8, 3, 1, 1));
  expect_right(test::conv2d(3, 33, 17, 5, 2, 2));
  expect_right(test::depthwise(40, 10, 3, 1, 1));
}

TEST(Cuda, WhatSurroundsASumIsNoKernelOfItsOwn) {
  const Func padded[] = {test::conv2d(20, 70, 8, 3, 1, 1), test::depthwise(40, 10, 3, 1, 1),
                         test::max_pool(8, 16, 3, 2, 1)};
  for (const Func& func : padded) EXPECT_EQ(expect_right(func).kernels.size(), 1u) << to_text(func);
  const Func finished[] = {test::matmul_epilogue(70, 65, 33), test::global_average(6, 20)};
  for (const Func& func : finished) EXPECT_EQ(expect_right(func).kernels.size(), 1u) << to_text(func);
}

TEST(Cuda, StagesOverTheSameRowsAreOneKernel) {
  for (const Func& func : {test::softmax(6, 45), test::softmax(3, 1100), test::layer_norm(3, 300)}) {
    const LoweredFunc lowered = expect_right(func);
    ASSERT_EQ(lowered.kernels.size(), 1u) << to_text(func);
    EXPECT_EQ(as_int(cuda::launch_of(lowered.kernels[0]).grid[0]), as_int(func.buffers[0]->shape[0]));
  }
}

// A thread's part of a row is in registers: nothing indexes it by a loop that is still one.  Threads wait once for what
// they add up, twice where many do; once more where several stages use the sum.
TEST(Cuda, RowsStayInRegisters) {
  const struct {
    Func func;
    int64_t blocks, rows, lanes;
    int barriers;
  } cases[] = {
      {test::softmax(300, 45), 150, 2, 9, 2},    {test::softmax(268, 256), 134, 2, 8, 2},
      {test::softmax(133, 1021), 133, 1, 32, 2}, {test::softmax(3, 4096), 3, 1, 128, 4},
      {test::softmax(1, 1000), 1, 1, 250, 4},    {test::layer_norm(401, 128), 134, 3, 8, 3},
      {test::layer_norm(3, 2056), 3, 1, 96, 5},  {test::row_sum(531, 100), 177, 3, 25, 1},
      {test::row_sum(3, 8192), 3, 1, 256, 2},
  };
  const std::regex rolled(R"(for \w+ in \S+ \{)");
  for (const auto& [func, blocks, rows, lanes, barriers] : cases) {
    const LoweredFunc lowered = expect_right(func, 1e-2);
    ASSERT_EQ(lowered.kernels.size(), 1u) << to_text(func);
    const auto launch = cuda::launch_of(lowered.kernels[0]);
    const std::string text = to_text(lowered.kernels[0].func);
    EXPECT_EQ(as_int(launch.grid[0]), blocks) << text;
    EXPECT_EQ(as_int(launch.block[0]), lanes) << text;
    EXPECT_EQ(as_int(launch.block[1]), rows) << text;
    EXPECT_EQ(test::count_of(text, "barrier()"), barriers) << text;
    EXPECT_FALSE(std::regex_search(text, rolled)) << text;
  }
  // A sum of squares is one of a row, too, and sixteen bits move eight at once.
  const LoweredFunc squares = expect_right(parse_func(R"(
func squares(A: f16[70, 512]) -> (C: f16[70, 512]) {
  alloc S: f32[70]
  for i in 0..70 { for j in 0..512 { block S(spatial vi: 70 = i, reduce vj: 512 = j) {
    init { S[vi] = 0.0f }
    S[vi] = S[vi] + f32(A[vi, vj]) * f32(A[vi, vj])
  } } }
  for i in 0..70 { for j in 0..512 { block C(spatial vi: 70 = i, spatial vj: 512 = j) {
    C[vi, vj] = f16(f32(A[vi, vj]) / sqrt(S[vi]))
  } } }
})"),
                                           1e-2);
  ASSERT_EQ(squares.kernels.size(), 1u);
  const std::string text = cuda::emit_cuda(squares.kernels);
  EXPECT_EQ(test::count_of(text, "__syncthreads();"), 1) << text;
  EXPECT_GE(test::count_of(text, "uint4*)"), 6) << text;
}

// Few outputs along memory: threads of a block share their terms out, neighbours read neighbours.
TEST(Cuda, FewColumnsAreAddedUpInSlices) {
  for (const Func& func : {test::column_sum(2, 300, 70), test::matmul(1, 70, 333)}) {
    const LoweredFunc lowered = expect_right(func);
    ASSERT_EQ(lowered.kernels.size(), 1u) << to_text(func);
    const Launch launch = cuda::launch_of(lowered.kernels[0]);
    EXPECT_EQ(as_int(launch.block[0]), 32) << to_text(lowered.kernels[0].func);
    EXPECT_EQ(as_int(launch.block[1]), 16);
  }
}

TEST(Cuda, TransposesTurnInSharedMemory) {
  const LoweredFunc lowered = expect_right(test::transpose(70, 45));
  ASSERT_EQ(lowered.kernels.size(), 1u);
  const std::string text = cuda::emit_cuda(lowered.kernels);
  EXPECT_EQ(test::count_of(text, "__shared__ __align__(16)"), 1);
  EXPECT_EQ(test::count_of(text, "[tw_swizzle<5, 31, 0>("), 2) << text;  // written and read without conflicts
}

// Places stay within a row of 32: what has no whole rows keeps its order.
TEST(Cuda, OnlyWholeRowsAreSwizzled) {
  const auto text_of = [](const std::string& columns) {
    const Func func = parse_func(
        "func f() -> (C: f32[32]) { for b in 0..1 block.x { alloc S: f32[1024] in shared "
        "for x in 0..32 thread.x { for y in 0.." +
        columns + " { S[x * 32 + y] = 1.0f } C[x] = S[x * 32] } } }");
    return cuda::emit_cuda(lower(func, sm_90(), "kernel").kernels);
  };
  EXPECT_EQ(test::count_of(text_of("32"), "[tw_swizzle<5, 31, 0>("), 2);
  EXPECT_EQ(test::count_of(text_of("31"), "[tw_swizzle<"), 0);
}

// A single term of each of many sums: what runs along memory is not what is added up.
TEST(Cuda, SumsOfOneTermAreNoRows) {
  expect_right(parse_func(R"(
func rows(A: f32[3, 1, 47]) -> (C: f32[3, 1, 47]) {
  alloc S: f32[3, 1, 47]
  for i in 0..3 { for j in 0..1 { for k in 0..47 { for r in 0..1 {
    block S(spatial vi: 3 = i, spatial vj: 1 = j, spatial vk: 47 = k, reduce vr: 1 = r) {
      init { S[vi, vj, vk] = 0.0f }
      S[vi, vj, vk] = S[vi, vj, vk] + A[vi, vr, vk]
    }
  } } } }
  for i in 0..3 { for j in 0..1 { for k in 0..47 {
    block C(spatial vi: 3 = i, spatial vj: 1 = j, spatial vk: 47 = k) {
      C[vi, vj, vk] = A[vi, vj, vk] / S[vi, 0, vk]
    }
  } } }
})"));
}

// Sums of windows within what a block has in shared memory: many threads make them, each one at a time.
TEST(Cuda, WindowsAreDealtOut) {
  const LoweredFunc lowered = expect_right(parse_func(R"(
func pool(A: f32[3, 8, 70]) -> (P: f32[3, 4, 35]) {
  alloc E: f32[3, 8, 70]
  alloc S: f32[3, 4, 35]
  for c in 0..3 { for y in 0..8 { for x in 0..70 {
    block E(spatial vc: 3 = c, spatial vy: 8 = y, spatial vx: 70 = x) { E[vc, vy, vx] = exp(A[vc, vy, vx]) }
  } } }
  for c in 0..3 { for y in 0..4 { for x in 0..35 { for r in 0..2 { for s in 0..2 {
    block S(spatial vc: 3 = c, spatial vy: 4 = y, spatial vx: 35 = x, reduce vr: 2 = r, reduce vs: 2 = s) {
      init { S[vc, vy, vx] = 0.0f }
      S[vc, vy, vx] = S[vc, vy, vx] + E[vc, vy * 2 + vr, vx * 2 + vs]
    }
  } } } } }
  for c in 0..3 { for y in 0..4 { for x in 0..35 {
    block P(spatial vc: 3 = c, spatial vy: 4 = y, spatial vx: 35 = x) { P[vc, vy, vx] = S[vc, vy, vx] / 4.0f }
  } } }
})"));
  ASSERT_EQ(lowered.kernels.size(), 1u);
  EXPECT_EQ(test::count_of(to_text(lowered.kernels[0].func), "f32[1] in local"), 1);
  EXPECT_EQ(test::count_of(to_text(lowered.kernels[0].func), "in 0..32 thread.x"), 3);
}

// Of which there may be any number: one kernel, whose last block has fewer.
TEST(Cuda, OpenRowsStayInRegisters) {
  const Func func = parse_func(R"(
func rows[n](A: f32[n, 64]) -> (C: f32[n, 64]) {
  alloc S: f32[n]
  for i in 0..n { for j in 0..64 {
    block S(spatial vi: n = i, reduce vj: 64 = j) {
      init { S[vi] = 0.0f }
      S[vi] = S[vi] + A[vi, vj]
    }
  } }
  for i in 0..n { for j in 0..64 {
    block C(spatial vi: n = i, spatial vj: 64 = j) { C[vi, vj] = A[vi, vj] / S[vi] }
  } }
})");
  const LoweredFunc lowered = lower(sm_90().default_schedule(func, sm_90()).func(), sm_90(), "kernel");
  ASSERT_EQ(lowered.kernels.size(), 1u) << symbols_of(lowered.kernels);
  EXPECT_EQ(as_int(cuda::launch_of(lowered.kernels[0]).block[0]), 8);
  EXPECT_EQ(as_int(cuda::launch_of(lowered.kernels[0]).block[1]), 7);
}

TEST(Cuda, LongRowsAreAddedUpByManyThreads) {
  const LoweredFunc lowered = expect_right(test::row_sum(3, 2100));
  const std::string text = cuda::emit_cuda(lowered.kernels);
  ASSERT_EQ(lowered.kernels.size(), 1u);
  EXPECT_EQ(test::count_of(text, "__shared__ __align__(16)"), 2) << text;  // of 96 threads, then of 16
  EXPECT_EQ(test::count_of(text, "__syncthreads();"), 2) << text;
  EXPECT_EQ(as_int(cuda::launch_of(lowered.kernels[0]).block[0]), 96);
  expect_right(test::row_sum(1, 700));
  // Rows of several axes: a block holds the lanes of its own row only.
  const LoweredFunc rows = expect_right(parse_func(R"(
func rows(A: f32[2, 5, 3, 300]) -> (S: f32[2, 5, 3]) {
  for a in 0..2 { for b in 0..5 { for c in 0..3 { for j in 0..300 {
    block S(spatial va: 2 = a, spatial vb: 5 = b, spatial vc: 3 = c, reduce vj: 300 = j) {
      init { S[va, vb, vc] = 0.0f }
      S[va, vb, vc] = S[va, vb, vc] + A[va, vb, vc, vj]
    }
  } } } }
})"));
  EXPECT_EQ(test::count_of(to_text(rows.kernels[0].func), "f32[15] in shared"), 1) << to_text(rows.kernels[0].func);
  expect_right(parse_func(R"(
func total(A: f32[4000]) -> (S: f32[1]) {
  for j in 0..4000 { block S(reduce vj: 4000 = j) {
    init { S[0] = 0.0f }
    S[0] = S[0] + A[vj]
  } }
})"),
               1e-2);
  expect_right(test::layer_norm(3, 300));
}

TEST(Cuda, SixteenBitTypes) {
  for (const DType dtype : {f16, bf16}) {
    const LoweredFunc lowered = expect_right(test::matmul(17, 33, 20, false, false, dtype), 0.1);
    const std::string text = cuda::emit_cuda(lowered.kernels);
    if (cuda::nvrtc_problem().empty()) EXPECT_GT(cuda::compile_cubin(text, 90, "half").size(), 1000u);
  }
}

// Of a tile's images one pixel is staged, and not the row that it is in.
TEST(Cuda, WhatATileOfImagesStagesFitsSharedMemory) {
  const LoweredFunc lowered = expect_right(parse_func(R"(
func conv(X: f32[64, 8, 7, 7], W: f32[64, 8]) -> (C: f32[64, 64, 7, 7]) {
  for n in 0..64 { for m in 0..64 { for h in 0..7 { for w in 0..7 { for k in 0..8 {
    block C(spatial vn: 64 = n, spatial vm: 64 = m, spatial vh: 7 = h, spatial vw: 7 = w, reduce vk: 8 = k) {
      init { C[vn, vm, vh, vw] = 0.0f }
      C[vn, vm, vh, vw] = C[vn, vm, vh, vw] + X[vn, vk, vh, vw] * W[vm, vk]
    }
  } } } } }
})"));
  const std::string text = cuda::emit_cuda(lowered.kernels);
  EXPECT_EQ(test::count_of(text, " X_shared_0[512];"), 1) << text;
}

TEST(Cuda, SymbolicExtentsBecomeArgumentsOfKernelAndGrid) {
  const Func func = parse_func(R"(
func scaled[n](A: f32[n, 70]) -> (C: f32[n, 70], S: f32[n]) {
  for i in 0..n { for j in 0..70 { block C(spatial vi: n = i, spatial vj: 70 = j) { C[vi, vj] = A[vi, vj] * 2.0f } } }
  for i in 0..n { for j in 0..70 { block S(spatial vi: n = i, reduce vj: 70 = j) {
    init { S[vi] = 0.0f }
    S[vi] = S[vi] + A[vi, vj]
  } } }
})");
  const Schedule schedule = sm_90().default_schedule(func, sm_90());
  const LoweredFunc lowered = lower(schedule.func(), sm_90(), "scaled");
  ASSERT_EQ(lowered.kernels.size(), 2u);
  EXPECT_EQ(to_text(cuda::launch_of(lowered.kernels[1]).grid[0]), "n");
  Func all = schedule.func();
  InterpretOptions options;
  options.parameters["n"] = 5;
  std::vector<NDArray> expected = {NDArray(f32, {5, 70}), NDArray(f32, {5, 70}), NDArray(f32, {5})};
  for (int64_t i = 0; i < 350; ++i) expected[0].set_float(i, static_cast<double>(i % 13));
  std::vector<NDArray> actual;
  for (const NDArray& array : expected) actual.push_back(array.clone());
  interpret(func, expected, options);
  options.seed = 3;
  test::interpret_kernels(lowered, schedule.func(), actual, options);
  EXPECT_EQ(test::largest_difference(actual[1], expected[1]), 0);
  EXPECT_EQ(test::largest_difference(actual[2], expected[2]), 0);
  if (cuda::nvrtc_problem().empty())
    EXPECT_GT(cuda::compile_cubin(cuda::emit_cuda(lowered.kernels), 90, "symbolic").size(), 1000u);
}

TEST(Cuda, EveryIntrinsicAndTypeCompiles) {
  Kernel kernel;
  kernel.func = test::every_intrinsic();
  kernel.symbol = "all";
  verify(kernel.func);
  const std::string text = cuda::emit_cuda({kernel});
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << cuda::nvrtc_problem();
  EXPECT_GT(cuda::compile_cubin(text, 90, "all").size(), 1000u);
}

TEST(Cuda, VectorsMoveAsOneAccessWhereTheyAreAligned) {
  const std::string text = cuda::emit_cuda({test::flat_kernel(R"(
func copy(A: f32[64, 64], H: f16[64]) -> (C: f32[64, 64], D: f32[64], G: f16[64]) {
  for b in 0..64 block.x {
    for t in 0..16 thread.x {
      C[broadcast(b, 4), ramp(t * 4, 1, 4)] = A[broadcast(b, 4), ramp(t * 4, 1, 4)]
      D[ramp(t * 3, 1, 4)] = A[broadcast(b, 4), ramp(t * 4 + 1, 1, 4) where ramp(t * 4, 1, 4) < broadcast(60, 4)]
      G[ramp(t * 4, 1, 4)] = H[ramp(t * 4, 1, 4)]
    }
  }
})")});
  EXPECT_EQ(test::count_of(text, "uint4"), 4) << text;  // C = A
  EXPECT_EQ(test::count_of(text, "uint2"), 4) << text;  // G = H
  if (cuda::nvrtc_problem().empty()) EXPECT_GT(cuda::compile_cubin(text, 90, "vectors").size(), 1000u);
}

std::string emit_error(const std::string& text) {
  try {
    cuda::emit_cuda({test::flat_kernel(text)});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::lower) << e.what();
    return e.what();
  }
  return "";
}

// What a kernel of one thread allocates is its own where it is small, and else in the workspace, which grows with
// sizes.
TEST(Cuda, LargeScratchOfOneThreadIsInTheWorkspace) {
  const Func func = parse_func(R"(
func sums[n: 1..](X: f32[2, n]) -> (C: f32[2]) {
  for j in 0..2 {
    alloc S: f32[n]
    for i in 0..n { S[i] = X[j, i] + 1.0f }
    C[j] = 0.0f
    for i in 0..n { C[j] = C[j] + S[n - 1 - i] }
  }
})");
  const LoweredFunc lowered = lower(func, sm_90(), "sums");
  ASSERT_EQ(lowered.kernels.size(), 1u);
  EXPECT_TRUE(lowered.kernels[0].has_workspace());
  const std::string text = cuda::emit_cuda(lowered.kernels);
  EXPECT_EQ(test::count_of(text, "(workspace_0 + blockIdx.x * "), 1) << text;
}

TEST(Cuda, WhatAGpuCannotHoldIsRefused) {
  EXPECT_NE(emit_error("func f[n]() -> (C: f32[4]) { for t in 0..4 thread.x { alloc B: f32[n] in local C[t] = B[0] } }")
                .find("extent that is not constant"),
            std::string::npos);
  EXPECT_NE(
      emit_error("func f() -> (C: f32[4]) { alloc S: f32[20000] in shared for t in 0..4 thread.x { C[t] = S[t] } }")
          .find("80000 bytes of shared memory"),
      std::string::npos);
  EXPECT_NE(emit_error("func f() -> (C: f32[4]) { for t in 0..2048 thread.x { C[t] = 0.0f } }").find("2048 threads"),
            std::string::npos);
  EXPECT_NE(
      emit_error(
          "func f() -> (C: f32[4]) { for t in 0..64 thread.x { C[t] = 0.0f } for t in 0..32 thread.x { barrier() } }")
          .find("only some threads"),
      std::string::npos);
  EXPECT_NE(emit_error("func f() -> (C: f32[4]) { alloc S: f32[4] in fragment C[0] = S[0] }").find("fragment"),
            std::string::npos);
  EXPECT_NE(emit_error("func f() -> (C: f32[4]) { for t in 0..4 thread.x { alloc S: f32[4] C[t] = S[0] } }")
                .find("global memory"),
            std::string::npos);
  EXPECT_NE(emit_error("func f[n, m]() -> (C: f32[4]) { for t in 0..n thread.x { C[t] = 0.0f } for t in 0..m thread.x "
                       "{ C[t] = 0.0f } }")
                .find("different symbolic extents"),
            std::string::npos);
}

TEST(Cuda, TargetsByName) {
  if (const auto devices = cuda_devices(); !devices.empty())
    EXPECT_EQ(parse_target("cuda").compute_capability / 10, devices[0].compute_capability / 10);
  else
    EXPECT_THROW(parse_target("cuda"), Error);
  EXPECT_EQ(parse_target("cuda:sm_120").compute_capability, 120);
  try {
    parse_target("cuda:sm_91");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::target);
    EXPECT_NE(std::string(e.what()).find("cuda:sm_90"), std::string::npos);
  }
}

TEST(EmulatedCuda, SamplesGiveTheOraclesAnswer) {
  std::vector<test::SampleFunc> samples = test::sample_funcs();
  samples.push_back({"matmul_tiles", test::matmul(70, 130, 37)});
  samples.push_back({"transpose_tiles", test::transpose(70, 45)});
  samples.push_back({"long_rows", test::row_sum(3, 2100)});
  samples.push_back({"matmul_f16", test::matmul(17, 33, 20, false, false, f16)});
  samples.push_back({"matmul_bf16", test::matmul(17, 33, 20, false, false, bf16)});
  std::vector<LoweredFunc> lowered;
  std::vector<Trace> traces;
  std::vector<Kernel> kernels;
  for (const test::SampleFunc& sample : samples) {
    const Schedule schedule = sm_90().default_schedule(sample.func, sm_90());
    traces.push_back(schedule.trace());
    lowered.push_back(lower(schedule.func(), sm_90(), "sample_" + std::to_string(lowered.size()) + "_" + sample.name));
    kernels.insert(kernels.end(), lowered.back().kernels.begin(), lowered.back().kernels.end());
  }
  const std::vector<std::byte> image = test::emulated_image(cuda::emit_cuda(kernels, sm_90().shared_bytes));
  for (size_t s = 0; s < samples.size(); ++s) {
    SCOPED_TRACE(samples[s].name);
    const Func& func = samples[s].func;
    std::vector<NDArray> arrays = test::random_buffers(func, 5), expected;
    for (size_t i = 0; i < arrays.size(); ++i) {
      expected.push_back(arrays[i].clone());
      arrays[i] = test::as_scheduled(arrays[i], traces[s], func.buffers[i]->name);
    }
    interpret(func, expected);
    test::run_on_device(lowered[s], func, image, arrays);
    const double tolerance = arrays.back().dtype().bits == 16 ? 0.1 : 1e-4;
    for (size_t i = func.buffers.size() - static_cast<size_t>(func.output_count); i < arrays.size(); ++i)
      EXPECT_LT(test::largest_difference(arrays[i], expected[i]), tolerance);
  }
}

TEST(EmulatedCuda, IntrinsicsComputeWhatTheOracleDoes) {
  const Func func = test::every_intrinsic();
  const LoweredFunc lowered = lower(func, sm_90(), "all");
  const std::vector<std::byte> image = test::emulated_image(cuda::emit_cuda(lowered.kernels));
  std::vector<NDArray> arrays = test::random_buffers(func, 3), expected;
  std::mt19937_64 random(4);
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (func.is_output(func.buffers[i])) continue;
    for (int64_t k = 0; k < arrays[i].size(); ++k) {
      const bool divides = func.buffers[i]->name[0] == 'Y';  // and shifts
      const int64_t value = static_cast<int64_t>(random() % 7) + 1;
      if (arrays[i].dtype().is_float())
        arrays[i].set_float(k, static_cast<double>(random() % 1000) / 500 - (divides ? -0.1 : 1));
      else if (arrays[i].dtype().is_bool())
        arrays[i].set_int(k, value % 2);
      else
        arrays[i].set_int(k, divides || arrays[i].dtype().is_unsigned_integer() ? value : value * 5 - 20);
    }
  }
  for (const NDArray& array : arrays) expected.push_back(array.clone());
  interpret(func, expected);
  test::run_on_device(lowered, func, image, arrays);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const double tolerance = arrays[i].dtype().is_float() ? arrays[i].dtype().bits == 16 ? 0.05 : 1e-4 : 0;
    EXPECT_LE(test::largest_difference(arrays[i], expected[i]), tolerance) << func.buffers[i]->name << "\n"
                                                                           << to_text(func);
  }
}

TEST(EmulatedCuda, ABarrierThatSomeThreadsMissIsAFailure) {
  const std::string text = cuda::emit_cuda({}) + R"(
extern "C" __global__ void f(float* y_0) {
  if (threadIdx.x == 0) __syncthreads();
  y_0[threadIdx.x] = 1;
}
)";
  Plan plan;
  plan.outputs = {{"y", f32, {4}}};
  Step step;
  step.kernel = step.name = "f";
  step.buffers = {{Storage::output, 0, 0, 16}};
  step.block[0] = 4;
  plan.steps = {step};
  const MachineRequirements requirements = {"cuda", "cuda:sm_90", {}};
  const std::vector<std::byte> image = test::emulated_image(text);
  NDArray out[] = {NDArray(f32, {4})};
  EXPECT_EXIT(
      {
        try {
          make_program({image, plan, {}, requirements})->run({}, out, {1});
        } catch (const Error& error) {
          std::fprintf(stderr, "%s\n", error.what());
        }
        std::_Exit(1);
      },
      ::testing::ExitedWithCode(1), "unspecified launch failure");
}

TEST(CudaCompiler, ImagesAreKept) {
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << cuda::nvrtc_problem();
  const Target target = parse_target("cuda:sm_90");
  const auto kernels_of = [&](const std::string& factor) {
    const Func func = parse_func("func f(x: f32[64]) -> (y: f32[64]) {\n  for i in 0..64 {\n    y[i] = x[i] * " +
                                 factor + "f\n  }\n}");
    return lower(target.default_schedule(func, target).func(), target, "scale").kernels;
  };
  const auto directory = std::filesystem::temp_directory_path() / ("tilewright-cubins-" + std::to_string(getpid()));
  KernelCache cache(directory);
  CodegenOptions options;
  options.cache = &cache;
  CodegenReport of_first, of_second, of_other;
  const auto first = cuda::compile_cuda_image(kernels_of("2.0"), target, options, &of_first);
  const auto second = cuda::compile_cuda_image(kernels_of("2.0"), target, options, &of_second);
  const auto other = cuda::compile_cuda_image(kernels_of("3.0"), target, options, &of_other);
  std::filesystem::remove_all(directory);
  EXPECT_EQ(of_first.cached_kernels, 0);
  EXPECT_EQ(of_second.cached_kernels, 1);
  EXPECT_EQ(of_other.cached_kernels, 0);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
}

}  // namespace
}  // namespace tw
