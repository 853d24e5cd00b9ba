// Random legal traces through the whole of lowering: what the kernels compute is what the unscheduled Func computes,
// on CPUs of every vector width and on GPUs by the oracle, and on this machine as machine code, also of the CUDA text.
// Lowering may refuse a schedule with an Error that is the user's (a tile in registers that has no constant size, say),
// but computes nothing wrongly.
#include "tests/unit/random_trace.h"

#include <gtest/gtest.h>

#include "targets/llvm/compile_image.h"
#include "tensor_ir/verify.h"
#include "tests/unit/cuda_device.h"
#include "tests/unit/targets/run.h"

namespace tw::test {
namespace {

// Polynomials for the functions of mathematics, and fused multiplications and additions.
constexpr double tolerance = 1e-4;

struct Grown {
  SampleFunc sample;
  uint64_t seed;
  RandomSchedule random;
  std::vector<NDArray> inputs, expected;  // of sample.func, every buffer

  Grown(const SampleFunc& of, uint64_t seed_, int steps, TraceKind kind)
      : sample(of), seed(seed_), random(RandomTrace(of.func, seed, kind).grow(steps)) {
    inputs = trace_buffers(sample.func, seed);
    expected = trace_buffers(sample.func, seed);
    interpret(sample.func, expected, options());
  }
  const Func& func() const { return random.schedule.func(); }
  InterpretOptions options() const { return {.parameters = trace_parameters(sample.func), .seed = seed}; }
  double difference(const std::vector<NDArray>& got) const {
    return output_difference(sample.func, random, inputs, expected, got);
  }
  std::string text() const {
    return sample.name + ", TW_SEED=" + std::to_string(seed) + "\n" + to_text(random.schedule.trace()) +
           to_text(func());
  }
};

struct Tally {
  int run = 0;
  std::map<std::string, int> refused;  // by the first words of the message
  void refuse(const Error& error) {
    std::string words = error.message();
    for (char& c : words)
      if (isdigit(static_cast<unsigned char>(c))) c = '0';
    ++refused[words.substr(words.find("` ") == std::string::npos ? 0 : words.find("` ") + 2, 60)];
  }
  void print(const char* what) const {
    if (!std::getenv("TW_VERBOSE")) return;
    printf("%s: %d run\n", what, run);
    for (const auto& [message, count] : refused) printf("%8d refused: %s\n", count, message.c_str());
  }
};

// Lowers and compares by the oracle; nothing where lowering refuses.
std::optional<LoweredFunc> expect_lowered_right(const Grown& grown, const Target& target, Tally& tally) {
  LoweredFunc lowered;
  std::string text;
  try {
    try {
      lowered = lower(grown.func(), target, "k" + std::to_string(grown.seed));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::lower) throw;
      tally.refuse(error);
      return std::nullopt;
    }
    for (const Kernel& kernel : lowered.kernels) verify(kernel.func), text += to_text(kernel.func);
    std::vector<NDArray> got = in_layouts(grown.random, grown.inputs);
    interpret_kernels(lowered, grown.func(), got, grown.options());
    EXPECT_LE(grown.difference(got), tolerance) << target.name << ", " << grown.text() << text;
    ++tally.run;
  } catch (const Error& error) {
    ADD_FAILURE() << error.what() << "\n" << target.name << ", " << grown.text() << text;
    return std::nullopt;
  }
  return lowered;
}

const SampleFunc& sample_of(int n) {
  static const std::vector<SampleFunc> funcs = trace_funcs();
  return funcs[static_cast<size_t>(n) % funcs.size()];
}

TEST(RandomTracesLowered, ComputeTheSameOnCpus) {
  static const char* const names[] = {"x86:sse4", "x86:avx2", "x86:avx512", "armv7", "rpi4"};
  std::vector<Target> targets;
  for (const char* name : names) targets.push_back(parse_target(name));
  const int count = traces_to_run(3000);
  Tally tally;
  for (int n = 0; n < count && !testing::Test::HasFailure(); ++n) {
    const Grown grown(sample_of(n), first_seed() + static_cast<uint64_t>(n), 4 + n % 19, TraceKind::workers);
    expect_lowered_right(grown, targets[static_cast<size_t>(n / 7) % targets.size()], tally);
  }
  tally.print("CPUs");
  EXPECT_GE(tally.run, count / 2);
}

TEST(RandomTracesLowered, ComputeTheSameOnGpus) {
  const Target target = parse_target("cuda:sm_90");
  const int count = traces_to_run(3000);
  Tally tally;
  for (int n = 0; n < count && !testing::Test::HasFailure(); ++n) {
    const Grown grown(sample_of(n), first_seed() + static_cast<uint64_t>(n), 4 + n % 19, TraceKind::threads);
    expect_lowered_right(grown, target, tally);
  }
  tally.print("GPUs");
  EXPECT_GE(tally.run, count / 2);
}

// The kernels of a few traces in one image.
TEST(RandomTracesLowered, ComputeTheSameAsMachineCode) {
  const Target host = parse_target("cpu");
  const int count = traces_to_run(320), batch = 40;
  Tally tally;
  for (int begin = 0; begin < count && !testing::Test::HasFailure(); begin += batch) {
    std::vector<Grown> traces;
    std::vector<KernelCase> cases;
    for (int n = begin; n < std::min(begin + batch, count); ++n) {
      Grown grown(sample_of(n), first_seed() + static_cast<uint64_t>(n), 4 + n % 19, TraceKind::workers);
      try {
        emit_text(lower(grown.func(), host, "k").kernels, host, EmitForm::llvm_ir);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::lower) ADD_FAILURE() << error.what() << "\n" << grown.text();
        tally.refuse(error);
        continue;
      }
      KernelCase one{"k" + std::to_string(n), grown.func(), {}, {}, 0, trace_parameters(grown.sample.func)};
      const auto arrays = in_layouts(grown.random, grown.inputs);
      const auto outputs = static_cast<std::ptrdiff_t>(one.func.buffers.size()) - one.func.output_count;
      one.inputs.assign(arrays.begin(), arrays.begin() + outputs);
      one.expected.assign(arrays.begin() + outputs, arrays.end());
      cases.push_back(std::move(one));
      traces.push_back(std::move(grown));
    }
    if (cases.empty()) continue;
    std::vector<NDArray> outputs = make_executable(cases, host).run({});
    size_t at = 0;
    for (size_t i = 0; i < traces.size(); ++i) {
      std::vector<NDArray> got = cases[i].inputs;
      for (size_t k = 0; k < cases[i].expected.size(); ++k) got.push_back(outputs[at++]);
      EXPECT_LE(traces[i].difference(got), tolerance) << traces[i].text();
      ++tally.run;
    }
  }
  tally.print("machine code");
  EXPECT_GE(tally.run, count / 4);
}

// The CUDA text of a few traces, in the emulator.
TEST(RandomTracesLowered, ComputeTheSameAsCudaText) {
  const Target target = parse_target("cuda:sm_90");
  const int count = traces_to_run(80), batch = 80;
  Tally tally;
  for (int begin = 0; begin < count && !testing::Test::HasFailure(); begin += batch) {
    std::vector<std::pair<Grown, LoweredFunc>> traces;
    std::vector<Kernel> kernels;
    for (int n = begin; n < std::min(begin + batch, count); ++n) {
      if (!sample_of(n).func.parameters.empty()) continue;
      Grown grown(sample_of(n), first_seed() + static_cast<uint64_t>(n), 4 + n % 19, TraceKind::threads);
      try {
        LoweredFunc lowered = lower(grown.func(), target, "k" + std::to_string(n));
        cuda::emit_cuda(lowered.kernels);
        kernels.insert(kernels.end(), lowered.kernels.begin(), lowered.kernels.end());
        traces.emplace_back(std::move(grown), std::move(lowered));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::lower) ADD_FAILURE() << error.what() << "\n" << grown.text();
        tally.refuse(error);
      }
    }
    const std::vector<std::byte> image = emulated_image(cuda::emit_cuda(kernels));
    for (const auto& [grown, lowered] : traces) {
      const std::vector<NDArray> got = in_layouts(grown.random, grown.inputs);
      run_on_device(lowered, grown.func(), image, got);
      EXPECT_LE(grown.difference(got), tolerance) << grown.text();
      ++tally.run;
    }
  }
  tally.print("CUDA text");
  EXPECT_GE(tally.run, count / 4);
}

}  // namespace
}  // namespace tw::test
