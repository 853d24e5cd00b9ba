// The CUDA device over the emulator's libcuda (tests/cuda_emulator), which this program finds instead of a driver's.
#include "runtime/device/cuda.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "runtime/device/cuda_context.h"
#include "runtime/device/cuda_driver.h"
#include "runtime/device/cuda_image.h"
#include "runtime/executable.h"
#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

template <class F>
F emulator(const char* name) {
  (void)cuda_problem();  // which opens it
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* symbol = library ? dlsym(library, name) : nullptr;
  check(symbol != nullptr, "the emulator's libcuda is loaded");
  return reinterpret_cast<F>(symbol);
}

struct Model {
  Plan plan = test::small_plan();
  std::vector<NDArray> constants = test::small_constants();
  MachineRequirements requirements = {"cuda", "cuda:sm_90", {}};
  std::vector<std::byte> image = test::read_bytes(TW_CUDA_EMULATOR "/small_cuda_kernels.so");

  Model() {
    for (Step& step : plan.steps) step.grid[0] = step.tasks;
  }
  std::unique_ptr<Program> make(int gpu = 0) const {
    return make_program({image, plan, constants, requirements, first_random_state, no_host_functions, gpu});
  }
};

void expect_answer(Program& program) {
  const std::vector<NDArray> in = test::small_inputs();
  NDArray sums(f32, {test::rows}), total(f32, {1});
  NDArray out[] = {sums, total};
  program.run(in, out, {1});
  EXPECT_EQ(test::values(sums), test::small_answer()[0]);
  EXPECT_EQ(test::values(total), test::small_answer()[1]);
}

std::string message_of(const std::function<void()>& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(RuntimeCuda, FindsTheDevice) {
  EXPECT_EQ(cuda_problem(), "");
  ASSERT_EQ(cuda_devices().size(), 1u);
  EXPECT_EQ(cuda_devices()[0].name, "Emulated GPU");
  EXPECT_EQ(cuda_devices()[0].compute_capability, 90);
}

TEST(RuntimeCuda, RunsAPlanAgainAndAgainAndFreesEverything) {
  {
    const Model model;
    const auto program = model.make();
    for (int i = 0; i < 3; ++i) expect_answer(*program);
    const auto second = model.make();
    expect_answer(*second);
    expect_answer(*program);
    EXPECT_GT(emulator<int (*)()>("cuda_emulator_live_objects")(), 10);
  }
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_live_objects")(), 0);
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_contexts")(), 0);
}

// From the third run on the same memory on kernels are one launch, as they were recorded in the second.
TEST(RuntimeCuda, KernelsOfRunsThatAreAlikeAreStartedAsOne) {
  const auto launches = [] { return emulator<int (*)(const char*)>("cuda_emulator_calls")("cuGraphLaunch"); };
  {
    const Model model;
    const auto program = model.make();
    const int before = launches();
    expect_answer(*program);
    EXPECT_EQ(launches(), before);
    for (int i = 0; i < 4; ++i) expect_answer(*program);
    EXPECT_EQ(launches(), before + 4);
  }
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_live_objects")(), 0);
  {
    const Model model;
    const auto program = model.make();
    expect_answer(*program);
    emulator<void (*)(const char*)>("cuda_emulator_fail")("launch");
    EXPECT_NE(message_of([&] { expect_answer(*program); }, ErrorCode::device).find("start"), std::string::npos);
    emulator<void (*)(const char*)>("cuda_emulator_fail")("");
    expect_answer(*program);
  }
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_live_objects")(), 0);
}

std::vector<NDArray> on_gpu(const std::vector<NDArray>& arrays, int gpu = 0) {
  std::vector<NDArray> result;
  for (const NDArray& array : arrays) {
    result.push_back(new_gpu_array(array.dtype(), array.shape(), gpu));
    copy_gpu_array(array, result.back(), 0);
  }
  return result;
}

std::vector<float> values_on_gpu(const NDArray& array, StreamHandle stream = 0) {
  NDArray host(array.dtype(), array.shape());
  copy_gpu_array(array, host, stream);
  return test::values(host);
}

int calls(const char* begin) {
  return emulator<int (*)(const char*)>("cuda_emulator_calls")(begin);
}

StreamHandle new_stream() {
  const gpu::HeldContext held(0);
  const gpu::CurrentContext current(held.get());
  StreamHandle stream = 0;
  emulator<int (*)(StreamHandle*, unsigned)>("cuStreamCreate")(&stream, 1);
  return stream;
}

void destroy(StreamHandle stream) {
  emulator<int (*)(StreamHandle)>("cuStreamDestroy_v2")(stream);
}

TEST(RuntimeCuda, ArraysOfTheGpuAreNotCopied) {
  {
    const Model model;
    const auto program = model.make();
    const std::vector<NDArray> in = on_gpu(test::small_inputs());
    std::vector<NDArray> out = on_gpu({NDArray(f32, {test::rows}), NDArray(f32, {1})});
    const int copies = calls("cuMemcpy"), launches = calls("cuGraphLaunch");
    for (int i = 0; i < 4; ++i) program->run(in, out, {1});
    EXPECT_EQ(calls("cuMemcpy"), copies);
    EXPECT_EQ(calls("cuGraphLaunch"), launches + 3);
    EXPECT_EQ(values_on_gpu(out[0]), test::small_answer()[0]);
    EXPECT_EQ(values_on_gpu(out[1]), test::small_answer()[1]);
    // Each array for itself.
    const std::vector<NDArray> host = test::small_inputs();
    const NDArray mixed[] = {in[0], host[1]};
    NDArray sums(f32, {test::rows}), results[] = {sums, out[1]};
    program->run(mixed, results, {1});
    EXPECT_EQ(test::values(sums), test::small_answer()[0]);
  }
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_live_objects")(), 0);
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_contexts")(), 0);
}

TEST(RuntimeCuda, RunsAreQueuedInStreamsOfCallers) {
  const StreamHandle streams[] = {new_stream(), new_stream()};
  {
    const Model model;
    const auto program = model.make();
    const std::vector<NDArray> in = on_gpu(test::small_inputs());
    std::vector<std::vector<NDArray>> results;
    for (int i = 0; i < 6; ++i) {
      results.push_back(on_gpu({NDArray(f32, {test::rows}), NDArray(f32, {1})}));
      const int waits = calls("cuStreamSynchronize");
      program->run(in, results.back(), {1}, {.stream = streams[i % 2]});
      EXPECT_EQ(calls("cuStreamSynchronize"), waits);
    }
    // One in our own stream comes after them, and is complete.
    expect_answer(*program);
    for (int i = 5; i >= 0; --i) EXPECT_EQ(values_on_gpu(results[i][0], streams[i % 2]), test::small_answer()[0]) << i;
    // A run that waits for what is queued elsewhere.
    CudaDriver::Context context = nullptr;
    emulator<int (*)(CudaDriver::Context*, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
    emulator<int (*)(CudaDriver::Context)>("cuCtxPushCurrent_v2")(context);
    for (int i = 0; i < 8; ++i) {
      const std::vector<NDArray> late = on_gpu({NDArray(f32, {test::rows, test::columns})});
      const auto address = [](const NDArray& array) { return reinterpret_cast<uint64_t>(array.data()); };
      emulator<int (*)(uint64_t, uint64_t, size_t, StreamHandle)>("cuMemcpyDtoDAsync_v2")(
          address(late[0]), address(in[1]), in[1].byte_size(), streams[0]);
      const NDArray inputs[] = {in[0], late[0]};
      program->run(inputs, results[0], {1}, {.stream = streams[1], .after = {streams[0]}});
      EXPECT_EQ(values_on_gpu(results[0][0], streams[1]), test::small_answer()[0]);
    }
    emulator<int (*)(CudaDriver::Context*)>("cuCtxPopCurrent_v2")(&context);
    emulator<int (*)(int)>("cuDevicePrimaryCtxRelease_v2")(0);
    program->run(in, results[1], {1}, {.stream = streams[0]});  // is there when the program goes
  }
  for (const StreamHandle stream : streams) destroy(stream);
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_live_objects")(), 0);
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_contexts")(), 0);
}

TEST(RuntimeCuda, MemoryThatIsNoneOfTheGpuIsRefused) {
  const Model model;
  const auto program = model.make();
  const std::vector<NDArray> host = test::small_inputs();
  std::vector<NDArray> in = on_gpu(host), out = on_gpu({NDArray(f32, {test::rows}), NDArray(f32, {1})});
  const auto refusal = [&](const NDArray& given) {
    const NDArray inputs[] = {in[0], given};
    return message_of([&] { program->run(inputs, out, {1}); }, ErrorCode::input);
  };
  const auto view = [](const NDArray& array, size_t offset, int gpu) {
    char* data = const_cast<char*>(array.as<char>()) + offset;
    return NDArray(f32, {test::rows, test::columns}, data, nullptr, gpu);
  };
  EXPECT_NE(refusal(view(host[0], 0, 0)).find("input 'y' takes 3552 bytes that are no memory"), std::string::npos);
  EXPECT_NE(refusal(view(in[0], 64, 0)).find("no memory of the GPU"), std::string::npos);
  EXPECT_NE(refusal(view(in[0], 0, 1)).find("lies in the memory of GPU 1, and runs are on GPU 0"), std::string::npos);
  emulator<void (*)(uint64_t, int)>("cuda_emulator_move")(reinterpret_cast<uint64_t>(in[1].data()), 2);
  EXPECT_NE(refusal(in[1]).find("lies in the memory of GPU 2"), std::string::npos);
  expect_answer(*program);
}

TEST(RuntimeCuda, TimesEachStep) {
  const Model model;
  const auto program = model.make();
  const std::vector<NDArray> in = test::small_inputs();
  NDArray sums(f32, {test::rows}), total(f32, {1});
  NDArray out[] = {sums, total};
  const std::vector<StepTime> seconds = program->time_steps(in, out, {1}, 3);
  ASSERT_EQ(seconds.size(), model.plan.steps.size());
  // The emulator's clock goes on with each block.
  const auto blocks_of = [&](size_t step) { return static_cast<double>(model.plan.steps[step].tasks); };
  const auto seconds_of = [&](size_t step) {  // of so many launches that they take 200 µs
    const double launches = std::ceil(200 / (1 + blocks_of(step)));
    return 1e-6 * (1 + launches * blocks_of(step)) / launches;
  };
  for (size_t i = 0; i < seconds.size(); ++i) EXPECT_NEAR(seconds[i].seconds, seconds_of(i), 1e-9);
  // Traced as timed: one after the other.
  const std::vector<StepSpan> spans = program->trace(in, out, {1}, 3);
  ASSERT_EQ(spans.size(), seconds.size());
  double start = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].step, i);
    EXPECT_NEAR(spans[i].start, start, 1e-9);
    EXPECT_NEAR(spans[i].end, start += seconds_of(i), 1e-9);
  }
  EXPECT_EQ(test::values(sums), test::small_answer()[0]);
  // A run as one.
  sums.set_float(0, 17);
  double blocks = 0;
  for (size_t i = 0; i < seconds.size(); ++i) blocks += blocks_of(i);
  EXPECT_NEAR(program->time_run(in, out, 3), 1e-6 * (1 + blocks), 1e-9);
  EXPECT_EQ(test::values(sums), test::small_answer()[0]);
}

TEST(RuntimeCuda, WhatKernelsDoNotWriteIsToldByAFilling) {
  Model model;
  std::erase_if(model.plan.steps, [](const Step& step) { return step.name == "sums"; });
  const auto program = model.make();
  const std::vector<NDArray> in = test::small_inputs();
  NDArray sums(f32, {test::rows}), total(f32, {1});
  NDArray out[] = {sums, total};
  program->fill_scratch(std::byte{0x5a}, {1});
  program->run(in, out, {1});
  const auto* bytes = static_cast<const std::byte*>(sums.data());
  EXPECT_TRUE(std::all_of(bytes, bytes + sums.byte_size(), [](std::byte byte) { return byte == std::byte{0x5a}; }));
  EXPECT_EQ(test::values(total), test::small_answer()[1]);
}

TEST(RuntimeCuda, AnEmptyGridRunsNothing) {
  Model model;
  model.plan.steps[3].grid[1] = 0;
  const auto program = model.make();
  const std::vector<NDArray> in = test::small_inputs();
  NDArray sums(f32, {test::rows}), total(f32, {1});
  NDArray out[] = {sums, total};
  program->run(in, out, {1});
  EXPECT_EQ(test::values(total), test::small_answer()[1]);
}

// A variable of the environment, until the end of the scope.
class Played {
 public:
  Played(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  Played(const char* name, int value) : Played(name, std::to_string(value)) {}
  ~Played() { unsetenv(name_); }
  Played(const Played&) = delete;
  Played& operator=(const Played&) = delete;

 private:
  const char* name_;
};

// As the emulator's NVRTC leaves it.
std::string emulated_ptx(const std::vector<std::byte>& image, const std::string& architecture) {
  std::string ptx =
      "// Cuda compilation tools, release 12.4, V12.4.1\n.version 8.4\n.target sm_" + architecture + "\n// image ";
  for (const std::byte byte : image)
    for (const int shift : {4, 0}) ptx += "0123456789abcdef"[std::to_integer<int>(byte) >> shift & 0xf];
  return ptx + "\n";
}

TEST(RuntimeCuda, NewerGpusRunPtx) {
  Model model;
  const auto refusal = [&](int capability, int cuda = 13000) {
    const Played gpu("CUDA_EMULATOR_CAPABILITY", capability), driver("CUDA_EMULATOR_CUDA", cuda);
    return message_of([&] { model.make(); }, ErrorCode::wrong_machine);
  };
  const auto runs_on = [&](int capability) {
    const Played gpu("CUDA_EMULATOR_CAPABILITY", capability);
    expect_answer(*model.make());
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  runs_on(90);
  contains(refusal(89), "built for cuda:sm_90, which Emulated GPU, sm_89, does not run");
  contains(refusal(120), "built for cuda:sm_90, which Emulated GPU, sm_120, does not run");
  const std::vector<std::byte> cubin = model.image;
  model.requirements = {"cuda", "cuda:sm_90+ptx", {ptx_feature}};
  model.image = join_ptx(cubin, emulated_ptx(cubin, "90"));
  for (const int capability : {90, 100, 121}) runs_on(capability);
  contains(refusal(89), "built for cuda:sm_90+ptx, which Emulated GPU, sm_89, does not run");
  const std::string old = refusal(120, 12020);
  contains(old, "the NVIDIA driver (CUDA up to 12.2) does not take the code for cuda:sm_90+ptx, made by CUDA 12.4");
  contains(old, "install a driver for CUDA 12.4");
  // What one architecture alone has.
  model.image = join_ptx(cubin, emulated_ptx(cubin, "90a"));
  runs_on(90);
  contains(refusal(100), "does not run");
  // Damaged.
  model.image = cubin;
  const Played gpu("CUDA_EMULATOR_CAPABILITY", 120);
  contains(message_of([&] { model.make(); }, ErrorCode::artifact), "the code has no PTX");
  EXPECT_EQ(cuda_devices()[0].compute_capability, 120);
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_live_objects")(), 0);
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_contexts")(), 0);
}

TEST(RuntimeCuda, GpusRunBesideEachOther) {
  const Played gpus("CUDA_EMULATOR_CAPABILITY", "90,90");
  ASSERT_EQ(cuda_devices().size(), 2u);
  {
    const Model model;
    const auto first = model.make(), second = model.make(1);
    std::thread other([&] {
      for (int i = 0; i < 8; ++i) expect_answer(*second);
    });
    for (int i = 0; i < 8; ++i) expect_answer(*first);
    other.join();
    const std::vector<NDArray> in = on_gpu(test::small_inputs(), 1);
    std::vector<NDArray> out = on_gpu({NDArray(f32, {test::rows}), NDArray(f32, {1})}, 1);
    EXPECT_EQ(gpu_with(in[0].data()), 1);
    for (int i = 0; i < 3; ++i) second->run(in, out, {1});
    EXPECT_EQ(values_on_gpu(out[0]), test::small_answer()[0]);
    const std::string other_gpu = message_of([&] { first->run(in, out, {1}); }, ErrorCode::input);
    EXPECT_NE(other_gpu.find("lies in the memory of GPU 1, and runs are on GPU 0"), std::string::npos) << other_gpu;
    std::vector<NDArray> near = on_gpu({NDArray(f32, {test::rows})});
    EXPECT_NE(message_of([&] { copy_gpu_array(out[0], near[0], 0); }, ErrorCode::input).find("GPU 1"),
              std::string::npos);
    EXPECT_NE(message_of([&] { model.make(2); }, ErrorCode::device).find("there is no GPU 2: the driver has 2"),
              std::string::npos);
    // An executable goes to another one.
    Executable executable(model.image, Plans{model.plan, {}}, model.constants, model.requirements);
    for (const int gpu : {0, 1, 0}) {
      executable.set_gpu(gpu);
      const std::vector<NDArray> results = executable.run(on_gpu(test::small_inputs(), gpu), {.leaves_outputs = true});
      EXPECT_EQ(results[0].gpu(), gpu);
      EXPECT_EQ(values_on_gpu(results[0]), test::small_answer()[0]);
    }
  }
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_live_objects")(), 0);
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_contexts")(), 0);
}

TEST(RuntimeCuda, FailuresAreErrorsThatLeaveNothingBehind) {
  const auto fail = emulator<void (*)(const char*)>("cuda_emulator_fail");
  {
    Model model;
    model.plan.steps[2].kernel = "absent";
    EXPECT_NE(message_of([&] { model.make(); }, ErrorCode::artifact).find("'absent'"), std::string::npos);
    std::memcpy(model.image.data(), "old", 3);
    const std::string other = message_of([&] { model.make(); }, ErrorCode::wrong_machine);
    EXPECT_NE(other.find("does not take the code for cuda:sm_90: "), std::string::npos) << other;
  }
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_live_objects")(), 0);
  {
    const Model model;
    const auto program = model.make();
    for (const char* what : {"launch", "synchronize"}) {
      fail(what);
      const std::string failed = message_of([&] { expect_answer(*program); }, ErrorCode::device);
      EXPECT_NE(failed.find("unspecified launch failure"), std::string::npos) << failed;
    }
    fail(nullptr);
    expect_answer(*program);
  }
  EXPECT_EQ(emulator<int (*)()>("cuda_emulator_contexts")(), 0);
}

}  // namespace
}  // namespace tw
