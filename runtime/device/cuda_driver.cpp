#include "runtime/device/cuda_driver.h"

#include <fstream>

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
      problem = driver.name() + " is too old: libcuda.so.1 has no " + driver.library.missing() +
                "; it takes 470 or a later one, which has CUDA 11.4";
      return;
    }
    int count = 0;
    if (int result = driver.init(0))
      problem = driver.name() + " does not start: " + driver.describe(result);
    else if (int counted = driver.device_count(&count))
      problem = "the GPUs cannot be counted: " + driver.describe(counted);
    else if (count == 0)
      problem = driver.name() + " finds no GPU";
  }
};

}  // namespace

const CudaDriver* CudaDriver::find(std::string& problem) {
  static const Opened opened;  // the library stays: its threads may be running
  problem = opened.problem;
  return problem.empty() ? &opened.driver : nullptr;
}

std::string CudaDriver::name() const {
  std::string version;  // of the kernel's module, whose files libcuda's are
  std::getline(std::ifstream("/sys/module/nvidia/version"), version);
  int supported = 0;
  const bool is_told = cuda_version && cuda_version(&supported) == 0;
  return "the NVIDIA driver" + (version.empty() ? "" : " " + version) +
         (is_told
              ? " (CUDA up to " + std::to_string(supported / 1000) + "." + std::to_string(supported % 1000 / 10) + ")"
              : "");
}

std::string CudaDriver::describe(Result result) const {
  const char* text = nullptr;
  if (error_string(result, &text) != 0 || !text) return "CUDA error " + std::to_string(result);
  return std::string(text) + " (CUDA error " + std::to_string(result) + ")";
}

}  // namespace tw
