// CUDA without a GPU: the oracle runs what is scheduled and lowered, with blocks and threads in random order; NVRTC
// compiles the text where it is installed.
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "runtime/device_cuda.h"
#include "targets/cuda/default_schedule.h"
#include "targets/cuda/emit.h"
#include "targets/cuda/nvrtc.h"
#include "tensor_ir/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/parser.h"
#include "tensor_ir/printer.h"
#include "tensor_ir/verify.h"
#include "tests/unit/cuda_on_host.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/targets_run.h"

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
    for (const NDArray& array : inputs) expected.push_back(array.clone()), actual.push_back(array.clone());
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
  const std::string text = cuda::emit_cuda(lowered.kernels);
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << cuda::nvrtc_problem();
  EXPECT_GT(cuda::compile_cubin(text, 90, sample.name).size(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(All, CudaSample, ::testing::Range<size_t>(0, test::sample_funcs().size()),
                         [](const auto& info) { return test::sample_funcs()[info.param].name; });

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Cuda, WholeTilesAndTailsOfMatmulMeetInSharedMemory) {
  const LoweredFunc lowered = expect_right(test::matmul(70, 130, 37));
  ASSERT_EQ(lowered.kernels.size(), 1u);
  const std::string text = cuda::emit_cuda(lowered.kernels);
  EXPECT_EQ(count_of(text, "__shared__"), 2) << text;
  // Once a piece: what is filled meanwhile is the other version of the tiles.
  EXPECT_EQ(count_of(text, "__syncthreads();"), 1) << text;
  EXPECT_EQ(count_of(text, " C_local_0[16];"), 1) << text;  // 4 × 4 a thread
  const cuda::Launch launch = cuda::launch_of(lowered.kernels[0]);
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
    EXPECT_EQ(count_of(cuda::emit_cuda(lowered.kernels), "__syncthreads();"), 1);
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

TEST(Cuda, TransposesTurnInSharedMemory) {
  const LoweredFunc lowered = expect_right(test::transpose(70, 45));
  ASSERT_EQ(lowered.kernels.size(), 1u);
  EXPECT_EQ(count_of(cuda::emit_cuda(lowered.kernels), "__shared__"), 1);
}

TEST(Cuda, LongRowsAreAddedUpByManyThreads) {
  const LoweredFunc lowered = expect_right(test::row_sum(3, 2100));
  const std::string text = cuda::emit_cuda(lowered.kernels);
  EXPECT_EQ(count_of(text, "__shared__"), 1) << text;
  EXPECT_EQ(as_int(cuda::launch_of(lowered.kernels[0]).block[0]), 128);
  expect_right(test::row_sum(1, 700));
  expect_right(test::layer_norm(3, 300));
}

TEST(Cuda, SixteenBitTypes) {
  for (const DType dtype : {f16, bf16}) {
    const LoweredFunc lowered = expect_right(test::matmul(17, 33, 20, false, false, dtype), 0.1);
    const std::string text = cuda::emit_cuda(lowered.kernels);
    if (cuda::nvrtc_problem().empty()) EXPECT_GT(cuda::compile_cubin(text, 90, "half").size(), 1000u);
  }
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

Kernel kernel_of(const std::string& text) {
  Kernel kernel;
  kernel.func = parse_func(text);
  kernel.symbol = kernel.func.name;
  kernel.tasks = Expr(1);
  return kernel;
}

TEST(Cuda, EveryIntrinsicAndTypeCompiles) {
  std::string body;
  int outputs = 0;
  std::string signature;
  auto add = [&](DType dtype, const std::string& value) {
    std::string name = "O" + std::to_string(outputs++);
    signature += (signature.empty() ? "" : ", ") + name + ": " + to_string(dtype) + "[8]";
    body += "  " + name + "[i] = " + value + "\n";
  };
  for (const char* type : {"f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"}) {
    const DType dtype = *parse_dtype(type);
    const std::string x = std::string("X_") + type + "[i]", y = std::string("Y_") + type + "[i]";
    for (const char* other : {"f16", "f64", "i8", "i64", "u32", "bool"})
      add(*parse_dtype(other), std::string(other) + "(" + x + ")");
    for (const char* op : {"==", "<="}) add(boolean, x + " " + op + " " + y);
    add(dtype, "select(" + x + " < " + y + ", " + x + ", " + y + ")");
    if (dtype.is_bool()) {
      add(dtype, "!" + x + " && " + y + " || (" + x + " & " + y + ")");
      continue;
    }
    for (const char* op : {" + ", " - ", " * ", " // ", " % "}) add(dtype, x + op + y);
    for (const char* op : {"div", "mod", "min", "max", "abs", "sign", "minimum", "maximum"}) {
      const std::string name = op;
      if (name == "div" && dtype.is_float())
        add(dtype, x + " / " + y);
      else
        add(dtype, name + "(" + x + (name == "abs" || name == "sign" ? ")" : ", " + y + ")"));
    }
    add(dtype, "-" + x);
    if (!dtype.is_float()) {
      for (const char* op : {" & ", " | ", " ^ ", " << ", " >> "}) add(dtype, x + op + y);
      add(dtype, "~" + x);
      add(dtype, "popcount(" + x + ")");
      continue;
    }
    for (const char* name :
         {"exp",  "exp2", "log",  "log2", "sqrt", "rsqrt", "tanh",  "erf",   "sigmoid", "sin",  "cos",   "tan",
          "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor",   "ceil", "trunc", "round_even"})
      if (dtype.bits > 16 || std::string(name) == "exp")
        add(dtype, std::string(name) + "(" + x + ")");  // halves compute in f32
    for (const char* name : {"pow", "fmod", "copysign"}) add(dtype, std::string(name) + "(" + x + ", " + y + ")");
    add(dtype, "fma(" + x + ", " + y + ", " + x + ")");
    add(boolean, "is_nan(" + x + ") || is_inf(" + y + ")");
    const std::string bits = dtype.bits == 16 ? "i16" : dtype.bits == 32 ? "u32" : "i64";
    add(*parse_dtype(bits), "reinterpret:" + bits + "(" + x + ")");
    add(dtype, "reinterpret:" + std::string(type) + "(X_" + bits + "[i])");
    add(dtype, "reduce_mul(broadcast(" + x + ", 4) * broadcast(" + y + ", 4))");
  }
  std::string inputs;
  for (const char* type : {"f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"}) {
    for (const char* name : {"X_", "Y_"})
      inputs += (inputs.empty() ? "" : ", ") + std::string(name) + type + ": " + type + "[8]";
  }
  const Kernel kernel =
      kernel_of("func all(" + inputs + ") -> (" + signature + ") {\n for i in 0..8 thread.x {\n" + body + "}\n}");
  verify(kernel.func);
  const std::string text = cuda::emit_cuda({kernel});
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << cuda::nvrtc_problem();
  EXPECT_GT(cuda::compile_cubin(text, 90, "all").size(), 1000u);
}

TEST(Cuda, VectorsMoveAsOneAccessWhereTheyAreAligned) {
  const std::string text = cuda::emit_cuda({kernel_of(R"(
func copy(A: f32[64, 64], H: f16[64]) -> (C: f32[64, 64], D: f32[64], G: f16[64]) {
  for b in 0..64 block.x {
    for t in 0..16 thread.x {
      C[broadcast(b, 4), ramp(t * 4, 1, 4)] = A[broadcast(b, 4), ramp(t * 4, 1, 4)]
      D[ramp(t * 3, 1, 4)] = A[broadcast(b, 4), ramp(t * 4 + 1, 1, 4) where ramp(t * 4, 1, 4) < broadcast(60, 4)]
      G[ramp(t * 4, 1, 4)] = H[ramp(t * 4, 1, 4)]
    }
  }
})")});
  EXPECT_EQ(count_of(text, "uint4"), 4) << text;  // C = A
  EXPECT_EQ(count_of(text, "uint2"), 4) << text;  // G = H
  if (cuda::nvrtc_problem().empty()) EXPECT_GT(cuda::compile_cubin(text, 90, "vectors").size(), 1000u);
}

std::string emit_error(const std::string& text) {
  try {
    cuda::emit_cuda({kernel_of(text)});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::lower) << e.what();
    return e.what();
  }
  return "";
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
  EXPECT_NE(emit_error("func f() -> (C: f32[4]) { alloc S: f32[4] C[0] = S[0] }").find("global memory"),
            std::string::npos);
  EXPECT_NE(emit_error("func f[n, m]() -> (C: f32[4]) { for t in 0..n thread.x { C[t] = 0.0f } for t in 0..m thread.x "
                       "{ C[t] = 0.0f } }")
                .find("different symbolic extents"),
            std::string::npos);
}

TEST(Cuda, TargetsByName) {
  EXPECT_EQ(parse_target("cuda").compute_capability, 80);
  EXPECT_EQ(parse_target("cuda:sm_120").compute_capability, 120);
  try {
    parse_target("cuda:sm_91");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::target);
    EXPECT_NE(std::string(e.what()).find("cuda:sm_90"), std::string::npos);
  }
}

TEST(Cuda, TheTextRunOnTheHostComputesWhatTheOracleDoes) {
  struct Job {
    test::SampleFunc sample;
    LoweredFunc lowered;
  };
  std::vector<test::SampleFunc> samples = test::sample_funcs();
  samples.push_back({"matmul_tiles", test::matmul(70, 130, 37)});
  samples.push_back({"transpose_tiles", test::transpose(70, 45)});
  samples.push_back({"long_rows", test::row_sum(3, 2100)});
  samples.push_back({"matmul_f16", test::matmul(17, 33, 20, false, false, f16)});
  samples.push_back({"matmul_bf16", test::matmul(17, 33, 20, false, false, bf16)});
  std::vector<Job> jobs;
  std::vector<Kernel> kernels;
  for (const test::SampleFunc& sample : samples) {
    const Func scheduled = sm_90().default_schedule(sample.func, sm_90()).func();
    jobs.push_back({sample, lower(scheduled, sm_90(), "sample_" + sample.name)});
    kernels.insert(kernels.end(), jobs.back().lowered.kernels.begin(), jobs.back().lowered.kernels.end());
  }
  const test::TemporaryFolder folder;
  const test::CudaOnHost host(kernels, folder.path);
  for (Job& job : jobs) {
    SCOPED_TRACE(job.sample.name);
    const Func& func = job.sample.func;
    std::vector<NDArray> arrays = test::random_buffers(func, 5), expected;
    std::map<std::string, NDArray> memory;
    for (const NDArray& array : arrays) expected.push_back(array.clone());
    interpret(func, expected);
    for (size_t i = 0; i < arrays.size(); ++i) memory[func.buffers[i]->name] = arrays[i];
    for (const Buffer& buffer : job.lowered.temporaries)
      memory[buffer->name] = NDArray(buffer->dtype, *const_shape(buffer));
    for (const Kernel& kernel : job.lowered.kernels) {
      std::vector<void*> buffers;
      for (const Buffer& buffer : kernel.func.buffers) buffers.push_back(memory.at(buffer->name).data());
      host.run(kernel, buffers);
    }
    const double tolerance = arrays.back().dtype().bits == 16 ? 0.1 : 1e-4;
    for (size_t i = arrays.size() - static_cast<size_t>(func.output_count); i < arrays.size(); ++i) {
      EXPECT_LT(test::largest_difference(arrays[i], expected[i]), tolerance);
    }
  }
}

TEST(Cuda, TheGpuComputesWhatTheOracleDoes) {
  if (!cuda_problem().empty()) {
    EXPECT_NE(cuda_problem().find("NVIDIA"), std::string::npos) << cuda_problem();
    GTEST_SKIP() << cuda_problem();
  }
  const Target target = parse_target("cuda:sm_" + std::to_string(cuda_devices().at(0).compute_capability));
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << cuda::nvrtc_problem();
  for (const test::SampleFunc& sample : test::sample_funcs()) {
    SCOPED_TRACE(sample.name);
    const Schedule schedule = target.default_schedule(sample.func, target);
    const LoweredFunc lowered = lower(schedule.func(), target, "kernel");
    std::vector<NDArray> arrays = test::random_buffers(sample.func, 7), expected;
    for (const NDArray& array : arrays) expected.push_back(array.clone());
    interpret(sample.func, expected);
    const size_t inputs = arrays.size() - static_cast<size_t>(sample.func.output_count);

    Plan plan;
    std::map<std::string, BufferUse> places;
    for (size_t i = 0; i < arrays.size(); ++i) {
      const bool is_input = i < inputs;
      auto& list = is_input ? plan.inputs : plan.outputs;
      const std::string& name = sample.func.buffers[i]->name;
      places[name] = {is_input ? Storage::input : Storage::output, static_cast<uint32_t>(list.size()), 0,
                      static_cast<int64_t>(arrays[i].byte_size())};
      list.push_back({name, arrays[i].dtype(), arrays[i].shape()});
    }
    for (const Buffer& buffer : lowered.temporaries) {
      const int64_t bytes = element_count(*const_shape(buffer)) * buffer->dtype.bytes();
      places[buffer->name] = {Storage::arena, 0, plan.arena_bytes, bytes};
      plan.arena_bytes += (bytes + 255) / 256 * 256;
    }
    for (const Kernel& kernel : lowered.kernels) {
      Step step;
      step.kernel = step.name = kernel.symbol;
      for (const Buffer& buffer : kernel.func.buffers) step.buffers.push_back(places.at(buffer->name));
      const cuda::Launch launch = cuda::launch_of(kernel);
      for (size_t axis = 0; axis < 3; ++axis) {
        step.grid[axis] = static_cast<uint32_t>(*as_int(launch.grid[axis]));
        step.block[axis] = static_cast<uint32_t>(*as_int(launch.block[axis]));
      }
      plan.steps.push_back(step);
    }
    const std::vector<std::byte> image = cuda::compile_cuda_image(lowered.kernels, target).cubin;
    const MachineRequirements requirements = {"cuda", target.name, {}};
    const auto program = make_program({image, plan, {}, requirements});
    std::vector<const void*> in;
    std::vector<void*> out;
    for (size_t i = 0; i < arrays.size(); ++i)
      i < inputs ? in.push_back(arrays[i].data()) : out.push_back(arrays[i].data());
    program->run(in, out, 1);
    for (size_t i = inputs; i < arrays.size(); ++i) EXPECT_LT(test::largest_difference(arrays[i], expected[i]), 1e-4);
  }
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
  const auto first = cuda::compile_cuda_image(kernels_of("2.0"), target, &cache);
  const auto second = cuda::compile_cuda_image(kernels_of("2.0"), target, &cache);
  const auto other = cuda::compile_cuda_image(kernels_of("3.0"), target, &cache);
  std::filesystem::remove_all(directory);
  EXPECT_FALSE(first.was_cached);
  EXPECT_TRUE(second.was_cached);
  EXPECT_FALSE(other.was_cached);
  EXPECT_EQ(first.cubin, second.cubin);
  EXPECT_NE(first.cubin, other.cubin);
}

}  // namespace
}  // namespace tw
