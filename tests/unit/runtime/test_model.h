// A small model made of the test kernels, for the tests of images, executables and artifacts.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/executable.h"
#include "runtime/machine/cpu_features.h"

namespace tw::test {

inline std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> chars((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::byte> bytes(chars.size());
  std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

inline void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline std::vector<std::byte> kernel_image(const std::string& architecture = host_cpu().architecture) {
  return read_bytes(std::string(TW_TEST_IMAGES) + "/kernels_" + architecture + ".so");
}

inline constexpr int64_t rows = 37, columns = 24;

// x[37,24], y[37,24] → sums[37] of the rows of 3·(x + bias) + y, and total[1] of x + bias.
inline Plan small_plan() {
  const int64_t bytes = rows * columns * 4;
  Plan plan;
  plan.inputs = {{"x", f32, {rows, columns}}, {"y", f32, {rows, columns}}};
  plan.outputs = {{"sums", f32, {rows}}, {"total", f32, {1}}};
  plan.constants = {{"unused", u8, {3}}, {"bias", f32, {rows, columns}}};
  plan.arena_bytes = 2 * 3584;
  plan.workspace_bytes = columns * 4;
  const BufferUse x{Storage::input, 0, 0, bytes}, y{Storage::input, 1, 0, bytes}, bias{Storage::constant, 1, 0, bytes},
      a{Storage::arena, 0, 0, bytes}, b{Storage::arena, 0, 3584, bytes}, sums{Storage::output, 0, 0, rows * 4},
      total{Storage::output, 1, 0, 4};
  plan.steps = {
      {"add", "biased", {x, bias, a}, {columns}, rows, true, 0, rows * columns, 3.0 * bytes},
      {"sum", "total", {a, total}, {rows * columns}, 1, true, 0, rows * columns, bytes},
      {"scale", "tripled", {a, b}, {columns, 3}, rows, false, 0, rows * columns, 2.0 * bytes},
      {"add", "added", {b, y, a}, {columns}, rows, true, 0, rows * columns, 3.0 * bytes},
      {"row_sums", "sums", {a, sums}, {columns}, rows, true, columns * 4, 2.0 * rows * columns, bytes},
  };
  plan.metadata = {{"model", "small"}, {"compiler", "test"}};
  return plan;
}

inline std::vector<NDArray> small_constants() {
  NDArray bias(f32, {rows, columns}), unused(u8, {3});
  for (int64_t i = 0; i < bias.size(); ++i) bias.set_float(i, static_cast<double>(i % 5));
  for (int i = 0; i < 3; ++i) unused.set_int(i, 100 + i);
  return {unused, bias};
}

inline std::vector<NDArray> small_inputs() {
  NDArray x(f32, {rows, columns}), y(f32, {rows, columns});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_float(i, static_cast<double>(i % 7));
    y.set_float(i, static_cast<double>(i % 3));
  }
  return {x, y};
}

// All values are small integers, so sums are exact in any order.
inline std::vector<std::vector<float>> small_answer() {
  std::vector<float> sums(rows, 0);
  float total = 0;
  for (int64_t i = 0; i < rows * columns; ++i) {
    float biased = static_cast<float>(i % 7 + i % 5);
    total += biased;
    sums[i / columns] += 3 * biased + static_cast<float>(i % 3);
  }
  return {sums, {total}};
}

inline MachineRequirements small_requirements(const std::string& architecture = host_cpu().architecture) {
  return {architecture, "test:" + architecture, {}};
}

inline Executable small_executable() {
  return {kernel_image(), small_plan(), small_constants(), small_requirements()};
}

// x[37,24], which becomes x + bias where it lies.
inline Executable in_place_executable() {
  const int64_t bytes = rows * columns * 4;
  Plan plan;
  plan.inputs = {{"x", f32, {rows, columns}}};
  plan.outputs = {{"biased", f32, {rows, columns}, {}, 0}};
  plan.constants = {{"bias", f32, {rows, columns}}};
  plan.steps = {{"add",
                 "biased",
                 {{Storage::input, 0, 0, bytes}, {Storage::constant, 0, 0, bytes}, {Storage::output, 0, 0, bytes}},
                 {columns},
                 rows,
                 true,
                 0,
                 rows * columns,
                 3.0 * bytes}};
  return {kernel_image(), plan, {small_constants()[1]}, small_requirements()};
}

inline std::vector<float> values(const NDArray& array) {
  return {array.as<float>(), array.as<float>() + array.size()};
}

// A folder that ends with the test, in memory where there is such a file system: some tests write a thousand files.
class Folder {
 public:
  Folder() {
    for (std::filesystem::path base : {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
      std::string pattern = (base / "tilewright-XXXXXX").string();
      if (mkdtemp(pattern.data())) {
        path_ = pattern;
        return;
      }
    }
    throw std::runtime_error("no folder for temporary files");
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The code of the Error that `action` throws (0: none), and its text.
struct Caught {
  ErrorCode code{0};
  std::string text;
};
inline Caught caught(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

// A shell command that has ended: its exit status (-1: a signal) and what it printed to either stream.
struct Finished {
  int status;
  std::string output;
};
inline Finished finish(const std::string& command) {
  Finished result;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (size_t count = fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, count);
  int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace tw::test
