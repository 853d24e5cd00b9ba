// CUDA without a GPU: the oracle runs what is scheduled and lowered, with blocks and threads in random order; NVRTC
// compiles the text where it is installed.
#include <gtest/gtest.h>

#include <set>

#include "targets/cuda/default_schedule.h"
#include "targets/cuda/emit.h"
#include "targets/cuda/nvrtc.h"
#include "targets/lower.h"
#include "tensor_ir/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/parser.h"
#include "tensor_ir/printer.h"
#include "tensor_ir/verify.h"
#include "tests/unit/sample_funcs.h"

namespace tw {
namespace {

// Kernels one after the other in the oracle, as one Func that allocates what lives between them.
void run_kernels(const LoweredFunc& lowered, const Func& func, const std::vector<NDArray>& arrays, uint64_t seed) {
  Func all = func;
  std::vector<Stmt> bodies;
  for (const Kernel& kernel : lowered.kernels) {
    bodies.push_back(kernel.func.body);
    for (const Buffer& flat : kernel.func.buffers)
      for (Buffer& buffer : all.buffers)
        if (buffer->name == flat->name) buffer = flat;
  }
  all.body = seq(std::move(bodies));
  for (const Buffer& buffer : lowered.temporaries) all.body = make_stmt<Allocate>(buffer, all.body);
  std::vector<NDArray> flat;
  for (size_t i = 0; i < arrays.size(); ++i) flat.push_back(arrays[i].reshape(*const_shape(all.buffers[i])));
  InterpretOptions options;
  options.seed = seed;
  interpret(all, flat, options);
}

std::string symbols_of(const std::vector<Kernel>& kernels) {
  std::string text;
  for (const Kernel& kernel : kernels) text += to_text(kernel.func);
  return text;
}

class CudaSample : public ::testing::TestWithParam<size_t> {};

TEST_P(CudaSample, DefaultScheduleGivesTheOraclesAnswerAndCompiles) {
  const test::SampleFunc sample = test::sample_funcs()[GetParam()];
  SCOPED_TRACE(sample.name);
  const Target target = parse_target("cuda:sm_90");
  const Schedule schedule = target.default_schedule(sample.func, target);
  LoweredFunc lowered;
  try {
    lowered = lower(schedule.func(), target, "kernel");
  } catch (const Error& e) {
    FAIL() << e.what() << "\n" << to_text(schedule.func());
  }
  for (const Kernel& kernel : lowered.kernels) verify(kernel.func);

  const std::vector<NDArray> inputs = test::random_buffers(sample.func, 7);
  std::vector<NDArray> expected, actual;
  for (const NDArray& array : inputs) expected.push_back(array.clone()), actual.push_back(array.clone());
  interpret(sample.func, expected);
  try {
    run_kernels(lowered, schedule.func(), actual, 11);
  } catch (const Error& e) {
    FAIL() << e.what() << "\n" << symbols_of(lowered.kernels);
  }
  for (size_t i = inputs.size() - sample.func.output_count; i < inputs.size(); ++i) {
    EXPECT_LT(test::largest_difference(actual[i], expected[i]), 1e-4) << symbols_of(lowered.kernels);
  }
  const std::string text = cuda::emit_cuda(lowered.kernels);
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << cuda::nvrtc_problem();
  EXPECT_GT(cuda::compile_cubin(text, 90, sample.name).size(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(All, CudaSample, ::testing::Range<size_t>(0, test::sample_funcs().size()),
                         [](const auto& info) { return test::sample_funcs()[info.param].name; });

}  // namespace
}  // namespace tw
