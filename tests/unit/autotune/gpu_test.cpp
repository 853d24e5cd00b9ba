// Candidates on a GPU, which is the emulator's: each ends as a row, and the next one is measured.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/autotune/hostile.h"
#include "tests/unit/autotune/program.h"
#include "tests/unit/cuda_device.h"

namespace tw::autotune {
namespace {

constexpr char kernels[] = R"(
extern "C" __global__ void right(const float* x, float* out) {
  out[0] = 2 * x[0];
}

extern "C" __global__ void wrong(const float* x, float* out) {
  out[0] = 3 * x[0];
}

extern "C" __global__ void silent(const float* x, float* out) {
}

extern "C" __global__ void crash(const float* x, float* out) {
  out[1 << 28] = x[0];
}

extern "C" __global__ void beyond(const float* x, float* out) {
  out[0] = 2 * x[0];
  out[1] = 0;
}

extern "C" __global__ void trap(const float* x, float* out) {
  __builtin_trap();
}

extern "C" __global__ void endless(const float* x, float* out) {
  volatile float value = x[0];
  while (value != 0) out[0] = value;
}
)";

class MeasuringOnGpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("LD_LIBRARY_PATH", TW_CUDA_EMULATOR, 1);  // of the children
    image_ = test::emulated_image(kernels);
  }
  static Executable program(const std::string& kernel, const std::vector<std::byte>& image = image_) {
    Plan plan;
    plan.inputs = {{"x", f32, {1}}};
    plan.outputs = {{"out", f32, {1}}};
    plan.steps = {{kernel, kernel, {{Storage::input, 0, 0, 4}, {Storage::output, 0, 0, 4}}, {}, 1}};
    return {image, plan, {}, {"cuda", "cuda:sm_90", {}}};
  }
  Measurement measure_beside(const Executable& candidate, const Executable& incumbent, double limit_seconds = 60) {
    return measure(request_for(candidate, incumbent, limit_seconds));
  }
  MeasureRequest request_for(const Executable& candidate, const Executable& incumbent, double limit_seconds = 60) {
    MeasureRequest request;
    request.program = TW_MEASURE;
    request.candidate = folder_ / "candidate.twa", request.incumbent = folder_ / "incumbent.twa";
    candidate.save(request.candidate);
    incumbent.save(request.incumbent);
    request.plan = &candidate.plan();
    request.seconds = 0.01;
    request.limit_seconds = limit_seconds;
    for (int set = 0; set < input_sets; ++set) {
      NDArray x(f32, {1});
      x.set_float(0, set + 1);
      request.inputs.push_back({x});
    }
    return request;
  }
  Measurement measure_kernel(const std::string& kernel, double limit_seconds = 60) {
    return measure_beside(program(kernel), program("right"), limit_seconds);
  }

  static inline std::vector<std::byte> image_;
  test::Folder folder_;
};

TEST_F(MeasuringOnGpu, is_by_the_clock_of_the_gpu) {
  const Measurement measured = measure_kernel("right");
  ASSERT_EQ(measured.status, Status::ok) << measured.detail;
  EXPECT_EQ(measured.outputs.at(2).at(0).get_float(0), 6);
  EXPECT_GE(measured.samples.size(), size_t{least_rounds});
  for (const Sample& sample : measured.samples) {
    EXPECT_NEAR(sample.candidate, 2e-6, 1e-9);  // one block, as the emulator has it
    EXPECT_NEAR(sample.incumbent, 2e-6, 1e-9);
  }
  EXPECT_FALSE(measured.filters_calls);
}

TEST_F(MeasuringOnGpu, whatever_a_candidate_does_is_a_row) {
  const std::pair<const char*, Status> ends[] = {{"wrong", Status::wrong}, {"silent", Status::wrong},
                                                 {"crash", Status::crash}, {"beyond", Status::crash},
                                                 {"trap", Status::crash},  {"no_such_kernel", Status::crash}};
  for (const auto& [kernel, status] : ends) {
    const Measurement measured = measure_kernel(kernel);
    EXPECT_EQ(measured.status, status) << kernel << ": " << word_of(measured.status) << ", " << measured.detail;
    EXPECT_TRUE(measured.samples.empty()) << kernel;
    EXPECT_EQ(measure_kernel("right").status, Status::ok) << "after " << kernel;
  }
  EXPECT_EQ(measure_kernel("endless", 4).status, Status::timeout);
}

TEST_F(MeasuringOnGpu, what_the_gpu_does_not_take_is_a_row) {
  const std::vector<std::byte> of_the_host = test::read_bytes(TW_HOSTILE_IMAGE);
  const Measurement measured = measure_beside(program("right", of_the_host), program("right"));
  EXPECT_EQ(measured.status, Status::crash);
  EXPECT_NE(measured.detail.find("Emulated GPU, sm_90, does not run"), std::string::npos) << measured.detail;
}

// As a device server has it done.
TEST_F(MeasuringOnGpu, is_a_job_through_pipes) {
  test::Program device(TW_MEASURE);
  EXPECT_EQ(device.reach().gpu.compute_capability, 90);
  EXPECT_TRUE(device.reach().gpu.is_emulated);
  for (const auto& [kernel, status] : {std::pair{"crash", Status::crash},
                                       {"wrong", Status::wrong},
                                       {"no_such_kernel", Status::crash},
                                       {"right", Status::ok}}) {
    const Executable candidate = program(kernel), incumbent = program("right");
    const MeasureRequest request = request_for(candidate, incumbent);
    const Measurement measured = read_measurement(request, device.call(parts_of(request), 0, 0));
    EXPECT_EQ(measured.status, status) << kernel << ": " << measured.detail;
  }
}

// Nothing is said of the candidate then.
TEST_F(MeasuringOnGpu, an_incumbent_that_does_not_run_ends_the_job) {
  EXPECT_EQ(test::caught([&] { measure_beside(program("right"), program("no_such_kernel")); }).code, ErrorCode::file);
}

// Code of the host beside a GPU's is confined all the same.
TEST_F(MeasuringOnGpu, is_for_both_or_for_neither) {
  EXPECT_EQ(test::caught([&] { measure_beside(test::hostile_program("write_file"), program("right")); }).code,
            ErrorCode::file);
}

}  // namespace
}  // namespace tw::autotune
