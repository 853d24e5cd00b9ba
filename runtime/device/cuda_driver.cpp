#include "runtime/device/cuda_driver.h"

namespace tw {
namespace {

struct Opened {
  CudaDriver driver;
  std::string problem;

  Opened() {
    if (!driver.library.is_open()) {
      problem = "there is no NVIDIA driver: libcuda.so.1 cannot be opened";
      return;
    }
    if (driver.library.missing()) {
      problem = std::string("the NVIDIA driver is too old: libcuda.so.1 has no ") + driver.library.missing();
      return;
    }
    int count = 0;
    if (int result = driver.init(0))
      problem = "the NVIDIA driver does not start: " + driver.describe(result);
    else if (int counted = driver.device_count(&count))
      problem = "the GPUs cannot be counted: " + driver.describe(counted);
    else if (count == 0)
      problem = "the NVIDIA driver finds no GPU";
  }
};

}  // namespace

const CudaDriver* CudaDriver::find(std::string& problem) {
  static const Opened opened;  // the library stays: its threads may be running
  problem = opened.problem;
  return problem.empty() ? &opened.driver : nullptr;
}

std::string CudaDriver::describe(Result result) const {
  const char* text = nullptr;
  if (error_string(result, &text) != 0 || !text) return "CUDA error " + std::to_string(result);
  return std::string(text) + " (CUDA error " + std::to_string(result) + ")";
}

}  // namespace tw
