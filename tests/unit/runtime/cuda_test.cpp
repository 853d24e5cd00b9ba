// The CUDA device over the emulator's libcuda (tests/cuda_emulator), which this program finds instead of a driver's.
#include "runtime/device/cuda.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

template <class F>
F emulator(const char* name) {
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
  std::unique_ptr<Program> make() const { return make_program({image, plan, constants, requirements}); }
};

void expect_answer(Program& program) {
  const std::vector<NDArray> inputs = test::small_inputs();
  NDArray sums(f32, {test::rows}), total(f32, {1});
  const void* in[] = {inputs[0].data(), inputs[1].data()};
  void* out[] = {sums.data(), total.data()};
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
  const auto launches = emulator<int (*)()>("cuda_emulator_graph_launches");
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

TEST(RuntimeCuda, TimesEachStep) {
  const Model model;
  const auto program = model.make();
  const std::vector<NDArray> inputs = test::small_inputs();
  NDArray sums(f32, {test::rows}), total(f32, {1});
  const void* in[] = {inputs[0].data(), inputs[1].data()};
  void* out[] = {sums.data(), total.data()};
  const std::vector<StepTime> seconds = program->time_steps(in, out, {1}, 3);
  ASSERT_EQ(seconds.size(), model.plan.steps.size());
  // The emulator's clock goes on with each block.
  const auto seconds_of = [&](size_t step) { return 1e-6 * (1.0 + static_cast<double>(model.plan.steps[step].tasks)); };
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
  // A run as one, which leaves what the caller has alone.
  sums.set_float(0, 17);
  EXPECT_NEAR(program->time_run(in, 3), start - 1e-6 * static_cast<double>(seconds.size() - 1), 1e-9);
  EXPECT_EQ(sums.get_float(0), 17);
}

TEST(RuntimeCuda, WhatKernelsDoNotWriteIsToldByAFilling) {
  Model model;
  std::erase_if(model.plan.steps, [](const Step& step) { return step.name == "sums"; });
  const auto program = model.make();
  const std::vector<NDArray> inputs = test::small_inputs();
  NDArray sums(f32, {test::rows}), total(f32, {1});
  const void* in[] = {inputs[0].data(), inputs[1].data()};
  void* out[] = {sums.data(), total.data()};
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
  const std::vector<NDArray> inputs = test::small_inputs();
  NDArray sums(f32, {test::rows}), total(f32, {1});
  const void* in[] = {inputs[0].data(), inputs[1].data()};
  void* out[] = {sums.data(), total.data()};
  program->run(in, out, {1});
  EXPECT_EQ(test::values(total), test::small_answer()[1]);
}

TEST(RuntimeCuda, FailuresAreErrorsThatLeaveNothingBehind) {
  const auto fail = emulator<void (*)(const char*)>("cuda_emulator_fail");
  {
    Model model;
    model.plan.steps[2].kernel = "absent";
    EXPECT_NE(message_of([&] { model.make(); }, ErrorCode::artifact).find("'absent'"), std::string::npos);
    std::memcpy(model.image.data(), "old", 3);
    const std::string other = message_of([&] { model.make(); }, ErrorCode::wrong_machine);
    EXPECT_NE(other.find("built for cuda:sm_90, which Emulated GPU does not run"), std::string::npos) << other;
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
