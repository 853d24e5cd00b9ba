// The C interface, as a program meets it: the shared library opened by name, and the C example.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "runtime/device/cuda.h"
#include "runtime/tilewright.h"
#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

using namespace test;

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    library = dlopen(TW_BUILD "/runtime/libtilewright_runtime.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    small_executable().save(folder / "small.twa");
  }
  void TearDown() override { dlclose(library); }

  template <class Function>
  auto* function(const char* name, Function*) {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }

  void* library = nullptr;
  Folder folder;
};

#define TW_FUNCTION(name) function(#name, static_cast<decltype(name)*>(nullptr))

TEST_F(CApi, LoadsDescribesAndRuns) {
  auto* last_error = TW_FUNCTION(tw_last_error);
  tw_executable* executable = nullptr;
  ASSERT_EQ(TW_FUNCTION(tw_load)((folder / "small.twa").c_str(), &executable), 0) << last_error();
  ASSERT_EQ(TW_FUNCTION(tw_verify)(executable), 0);
  EXPECT_EQ(TW_FUNCTION(tw_input_count)(executable), 2);
  EXPECT_EQ(TW_FUNCTION(tw_output_count)(executable), 2);
  tw_tensor tensor;
  ASSERT_EQ(TW_FUNCTION(tw_input)(executable, 1, &tensor), 0);
  EXPECT_STREQ(tensor.name, "y");
  EXPECT_STREQ(tensor.dtype, "f32");
  EXPECT_EQ(tensor.rank, 2);
  EXPECT_EQ(tensor.shape[0], rows);
  EXPECT_EQ(tensor.bytes, static_cast<size_t>(rows * columns * 4));
  ASSERT_EQ(TW_FUNCTION(tw_output)(executable, 0, &tensor), 0);
  EXPECT_STREQ(tensor.name, "sums");
  EXPECT_EQ(TW_FUNCTION(tw_output)(executable, 2, &tensor), 1101);
  ASSERT_EQ(TW_FUNCTION(tw_set_threads)(executable, 2), 0);

  std::vector<NDArray> inputs = small_inputs();
  std::vector<float> sums(rows), total(1);
  const void* in[] = {inputs[0].data(), inputs[1].data()};
  void* out[] = {sums.data(), total.data()};
  size_t in_bytes[] = {inputs[0].byte_size(), inputs[1].byte_size()}, out_bytes[] = {rows * 4, 4};
  ASSERT_EQ(TW_FUNCTION(tw_run)(executable, in, in_bytes, out, out_bytes), 0) << last_error();
  EXPECT_EQ(sums, small_answer()[0]);
  EXPECT_EQ(total, small_answer()[1]);

  out_bytes[0] = 5;
  EXPECT_EQ(TW_FUNCTION(tw_run)(executable, in, in_bytes, out, out_bytes), 1101);
  EXPECT_NE(std::string(last_error()).find("output 'sums' has 5 bytes, the model has 148"), std::string::npos)
      << last_error();
  EXPECT_EQ(TW_FUNCTION(tw_last_error_code)(), 1101);
  EXPECT_EQ(TW_FUNCTION(tw_run)(executable, nullptr, in_bytes, out, out_bytes), 1101);
  EXPECT_EQ(TW_FUNCTION(tw_set_threads)(executable, -3), 1005);
  TW_FUNCTION(tw_free)(executable);
  TW_FUNCTION(tw_free)(nullptr);
}

TEST_F(CApi, TimesKernels) {
  auto* time_kernels = TW_FUNCTION(tw_time_kernels);
  tw_executable* executable = nullptr;
  ASSERT_EQ(TW_FUNCTION(tw_load)((folder / "small.twa").c_str(), &executable), 0);
  std::vector<NDArray> inputs = small_inputs();
  const void* in[] = {inputs[0].data(), inputs[1].data()};
  const int64_t shape[] = {rows, columns};
  const int64_t* shapes[] = {shape, shape};
  const tw_kernel_time* times = nullptr;
  int32_t count = 0;
  ASSERT_EQ(time_kernels(executable, in, shapes, 3, &times, &count), 0) << TW_FUNCTION(tw_last_error)();
  ASSERT_EQ(count, 5);
  EXPECT_EQ(std::string(times[0].name) + " " + times[0].kernel, "biased add");
  EXPECT_EQ(std::string(times[4].name) + " " + times[4].kernel, "sums row_sums");
  EXPECT_EQ(times[4].operations, 2.0 * rows * columns);
  EXPECT_EQ(times[4].bytes, rows * columns * 4);
  for (int32_t i = 0; i < count; ++i) EXPECT_GT(times[i].seconds, 0);
  EXPECT_EQ(time_kernels(executable, in, shapes, 0, &times, &count), 1005);
  EXPECT_EQ(time_kernels(executable, in, shapes, 3, nullptr, &count), 1101);
  EXPECT_EQ(time_kernels(executable, in, nullptr, 3, &times, &count), 1101);
  TW_FUNCTION(tw_free)(executable);
}

TEST_F(CApi, RunsOnArraysOfAGpu) {
  ASSERT_EQ(cuda_problem(), "");  // which opens the emulator's driver
  Plan plan = small_plan();
  for (Step& step : plan.steps) step.grid[0] = step.tasks;
  Executable(read_bytes(TW_CUDA_EMULATOR "/small_cuda_kernels.so"), plan, small_constants(), {"cuda", "cuda:sm_90", {}})
      .save(folder / "gpu.twa");
  auto* last_error = TW_FUNCTION(tw_last_error);
  auto* run_on_gpu = TW_FUNCTION(tw_run_on_gpu);
  tw_executable *executable = nullptr, *on_cpu = nullptr;
  ASSERT_EQ(TW_FUNCTION(tw_load)((folder / "gpu.twa").c_str(), &executable), 0) << last_error();
  ASSERT_EQ(TW_FUNCTION(tw_load)((folder / "small.twa").c_str(), &on_cpu), 0) << last_error();
  std::vector<NDArray> arrays;
  for (const NDArray& input : small_inputs()) {
    arrays.push_back(new_gpu_array(input.dtype(), input.shape()));
    copy_gpu_array(input, arrays.back(), 0);
  }
  for (const int64_t extent : {rows, int64_t{1}}) arrays.push_back(new_gpu_array(f32, {extent}));
  const void* in[] = {arrays[0].data(), arrays[1].data()};
  void* out[] = {arrays[2].data(), arrays[3].data()};
  const size_t out_bytes[] = {rows * 4, 4};
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(run_on_gpu(executable, in, nullptr, out, out_bytes, nullptr), 0) << last_error();
  NDArray sums(f32, {rows}), total(f32, {1});
  copy_gpu_array(arrays[2], sums, 0);
  copy_gpu_array(arrays[3], total, 0);
  EXPECT_EQ(values(sums), small_answer()[0]);
  EXPECT_EQ(values(total), small_answer()[1]);
  EXPECT_EQ(run_on_gpu(on_cpu, in, nullptr, out, out_bytes, nullptr), 1101);
  EXPECT_NE(std::string(last_error()).find("input 'x' lies in the memory of a GPU"), std::string::npos) << last_error();
  in[1] = sums.data();
  EXPECT_EQ(run_on_gpu(executable, in, nullptr, out, out_bytes, nullptr), 1101);
  EXPECT_NE(std::string(last_error()).find("input 'y' takes 3552 bytes that are no memory of the GPU"),
            std::string::npos)
      << last_error();
  TW_FUNCTION(tw_free)(executable);
  TW_FUNCTION(tw_free)(on_cpu);

  // On the second one.
  auto* load_on_gpu = TW_FUNCTION(tw_load_on_gpu);
  EXPECT_EQ(load_on_gpu((folder / "gpu.twa").c_str(), 1, &executable), 1501);
  EXPECT_NE(std::string(last_error()).find("there is no GPU 1: the driver has 1"), std::string::npos) << last_error();
  EXPECT_EQ(load_on_gpu((folder / "small.twa").c_str(), 1, &executable), 1101) << last_error();
  setenv("CUDA_EMULATOR_CAPABILITY", "90,90", 1);
  ASSERT_EQ(load_on_gpu((folder / "gpu.twa").c_str(), 1, &executable), 0) << last_error();
  in[1] = arrays[1].data();
  EXPECT_EQ(run_on_gpu(executable, in, nullptr, out, out_bytes, nullptr), 1101);
  EXPECT_NE(std::string(last_error()).find("GPU 0, and runs are on GPU 1"), std::string::npos) << last_error();
  std::vector<NDArray> there;
  for (const NDArray& input : small_inputs()) {
    there.push_back(new_gpu_array(input.dtype(), input.shape(), 1));
    copy_gpu_array(input, there.back(), 0);
  }
  for (const int64_t extent : {rows, int64_t{1}}) there.push_back(new_gpu_array(f32, {extent}, 1));
  in[0] = there[0].data(), in[1] = there[1].data(), out[0] = there[2].data(), out[1] = there[3].data();
  ASSERT_EQ(run_on_gpu(executable, in, nullptr, out, out_bytes, nullptr), 0) << last_error();
  copy_gpu_array(there[2], sums, 0);
  EXPECT_EQ(values(sums), small_answer()[0]);
  TW_FUNCTION(tw_free)(executable);
  unsetenv("CUDA_EMULATOR_CAPABILITY");
}

TEST_F(CApi, LoadsBytesWhichItCopies) {
  std::string bytes;
  {
    std::ifstream file(folder / "small.twa", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  tw_executable* executable = nullptr;
  ASSERT_EQ(TW_FUNCTION(tw_load_memory)(bytes.data(), bytes.size(), &executable), 0) << TW_FUNCTION(tw_last_error)();
  bytes.assign(bytes.size(), 'x');
  ASSERT_EQ(TW_FUNCTION(tw_verify)(executable), 0);
  std::vector<NDArray> inputs = small_inputs();
  std::vector<float> sums(rows), total(1);
  const void* in[] = {inputs[0].data(), inputs[1].data()};
  void* out[] = {sums.data(), total.data()};
  size_t in_bytes[] = {inputs[0].byte_size(), inputs[1].byte_size()}, out_bytes[] = {rows * 4, 4};
  ASSERT_EQ(TW_FUNCTION(tw_run)(executable, in, in_bytes, out, out_bytes), 0);
  EXPECT_EQ(sums, small_answer()[0]);
  TW_FUNCTION(tw_free)(executable);
  EXPECT_EQ(TW_FUNCTION(tw_load_memory)(bytes.data(), bytes.size(), &executable), 1201);
  EXPECT_EQ(executable, nullptr);
  EXPECT_EQ(TW_FUNCTION(tw_load_memory)(nullptr, 3, &executable), 1101);
}

TEST_F(CApi, OutputsInPlaceAreTheInputsArrays) {
  in_place_executable().save(folder / "in_place.twa");
  auto* run = TW_FUNCTION(tw_run);
  tw_executable* executable = nullptr;
  ASSERT_EQ(TW_FUNCTION(tw_load)((folder / "in_place.twa").c_str(), &executable), 0);
  EXPECT_EQ(TW_FUNCTION(tw_in_place)(executable, 0), 0);
  EXPECT_EQ(TW_FUNCTION(tw_in_place)(executable, 1), -1);
  std::vector<float> x(rows * columns, 1), other(rows * columns);
  const std::vector<float> bias = values(small_constants()[1]);
  const void* in[] = {x.data()};
  void* out[] = {x.data()};
  const size_t bytes[] = {x.size() * 4};
  for (int round = 1; round <= 2; ++round) {
    ASSERT_EQ(run(executable, in, bytes, out, bytes), 0) << TW_FUNCTION(tw_last_error)();
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], 1 + static_cast<float>(round) * bias[i]);
    out[0] = nullptr;  // stands for the same
  }
  out[0] = other.data();
  EXPECT_EQ(run(executable, in, bytes, out, bytes), 1101);
  TW_FUNCTION(tw_free)(executable);
  const Finished example = finish(TW_BUILD "/examples/c/run_artifact " + (folder / "in_place.twa").string());
  EXPECT_EQ(example.status, 0) << example.output;
}

TEST_F(CApi, SaysWhatOutputsMakeUp) {
  Plan plan = small_plan();
  std::vector<int64_t> numbers(columns, 5);
  plan.input_lists = {{"none", ListKind::optional, 0, 0},
                      {"words", ListKind::map, 0, 1, 0, std::vector<std::string>(columns, "a word")},
                      {"numbers", ListKind::map, 1, 1, 0, {}, numbers}};
  plan.output_lists = {{"pair", ListKind::sequence, 0, 2}, {"empty", ListKind::sequence, 2, 0}};
  Executable(kernel_image(), plan, small_constants(), small_requirements()).save(folder / "lists.twa");
  tw_executable* executable = nullptr;
  ASSERT_EQ(TW_FUNCTION(tw_load)((folder / "lists.twa").c_str(), &executable), 0);
  EXPECT_EQ(TW_FUNCTION(tw_input_list_count)(executable), 3);
  EXPECT_EQ(TW_FUNCTION(tw_output_list_count)(executable), 2);
  tw_list list;
  ASSERT_EQ(TW_FUNCTION(tw_output_list)(executable, 0, &list), 0);
  EXPECT_EQ(std::string(list.name) + " " + list.kind, "pair sequence");
  EXPECT_EQ(list.first, 0);
  EXPECT_EQ(list.count, 2);
  ASSERT_EQ(TW_FUNCTION(tw_input_list)(executable, 0, &list), 0);
  EXPECT_EQ(std::string(list.name) + " " + list.kind, "none optional");
  ASSERT_EQ(TW_FUNCTION(tw_input_list)(executable, 1, &list), 0);
  EXPECT_EQ(list.words, columns);
  EXPECT_EQ(list.numbers, nullptr);
  EXPECT_STREQ(TW_FUNCTION(tw_input_word)(executable, 1, columns - 1), "a word");
  EXPECT_EQ(TW_FUNCTION(tw_input_word)(executable, 1, columns), nullptr);
  EXPECT_EQ(TW_FUNCTION(tw_output_word)(executable, 7, 0), nullptr);
  ASSERT_EQ(TW_FUNCTION(tw_input_list)(executable, 2, &list), 0);
  EXPECT_EQ(list.words, 0);
  EXPECT_EQ(std::vector<int64_t>(list.numbers, list.numbers + columns), numbers);
  EXPECT_EQ(TW_FUNCTION(tw_output_list)(executable, 2, &list), 1101);
  TW_FUNCTION(tw_free)(executable);
}

TEST_F(CApi, ErrorsBelongToTheThread) {
  auto* load = TW_FUNCTION(tw_load);
  tw_executable* executable = nullptr;
  EXPECT_EQ(load((folder / "missing.twa").c_str(), &executable), 1001);
  EXPECT_EQ(executable, nullptr);
  EXPECT_EQ(load(nullptr, &executable), 1101);
  std::thread([&] { EXPECT_EQ(TW_FUNCTION(tw_last_error_code)(), 0); }).join();
  EXPECT_EQ(TW_FUNCTION(tw_last_error_code)(), 1101);
  write_bytes(folder / "bad.twa", kernel_image());
  EXPECT_EQ(load((folder / "bad.twa").c_str(), &executable), 1201);
  EXPECT_EQ(std::string(TW_FUNCTION(tw_last_error)()).rfind("TW1201 ", 0), 0u);
  EXPECT_STRNE(TW_FUNCTION(tw_version)(), "");
}

TEST_F(CApi, ExportsNothingElse) {
  Finished names = finish("nm -D --defined-only " TW_BUILD "/runtime/libtilewright_runtime.so");
  ASSERT_EQ(names.status, 0);
  std::istringstream lines(names.output);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_NE(line.find(" T tw_"), std::string::npos) << line;
  }
  EXPECT_GE(count, 13);
}

TEST_F(CApi, TheExampleRuns) {
  const std::string program = TW_BUILD "/examples/c/run_artifact ";
  Finished run = finish(program + (folder / "small.twa").string());
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_NE(run.output.find("input  x f32[37,24]"), std::string::npos) << run.output;
  // x = y = 1: each row sums 3·(1 + bias) + 1 with the biases 0 1 2 3 4 0 1 2 … of 24 columns: 24·4 + 3·46.
  EXPECT_NE(run.output.find("output sums f32[37] 234 "), std::string::npos) << run.output;
  run = finish(program + (folder / "missing.twa").string());
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.output.find("TW1001"), std::string::npos) << run.output;
}

}  // namespace
}  // namespace tw
