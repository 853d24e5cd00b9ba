#include "runtime/device/cuda_driver.h"

#include <dlfcn.h>

namespace tw {
namespace {

struct Symbol {
  const char* name;
  void** function;
};

struct Opened {
  CudaDriver driver{};
  std::string problem;

  Opened() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      problem = "there is no NVIDIA driver: libcuda.so.1 cannot be opened";
      return;
    }
    auto address = [](auto& function) { return reinterpret_cast<void**>(&function); };
    const Symbol symbols[] = {
        {"cuInit", address(driver.init)},
        {"cuGetErrorString", address(driver.error_string)},
        {"cuDeviceGetCount", address(driver.device_count)},
        {"cuDeviceGet", address(driver.device_get)},
        {"cuDeviceGetName", address(driver.device_name)},
        {"cuDeviceGetAttribute", address(driver.device_attribute)},
        {"cuDeviceTotalMem_v2", address(driver.device_memory)},
        {"cuDevicePrimaryCtxRetain", address(driver.context_retain)},
        {"cuDevicePrimaryCtxRelease_v2", address(driver.context_release)},
        {"cuCtxPushCurrent_v2", address(driver.context_push)},
        {"cuCtxPopCurrent_v2", address(driver.context_pop)},
        {"cuMemAlloc_v2", address(driver.allocate)},
        {"cuMemFree_v2", address(driver.free)},
        {"cuMemcpyHtoDAsync_v2", address(driver.copy_in)},
        {"cuMemcpyDtoHAsync_v2", address(driver.copy_out)},
        {"cuModuleLoadData", address(driver.module_load)},
        {"cuModuleUnload", address(driver.module_unload)},
        {"cuModuleGetFunction", address(driver.module_function)},
        {"cuLaunchKernel", address(driver.launch)},
        {"cuStreamCreate", address(driver.stream_create)},
        {"cuStreamDestroy_v2", address(driver.stream_destroy)},
        {"cuStreamSynchronize", address(driver.stream_synchronize)},
        {"cuEventCreate", address(driver.event_create)},
        {"cuEventDestroy_v2", address(driver.event_destroy)},
        {"cuEventRecord", address(driver.event_record)},
        {"cuEventSynchronize", address(driver.event_synchronize)},
        {"cuEventElapsedTime", address(driver.event_elapsed)},
    };
    for (const Symbol& symbol : symbols) {
      *symbol.function = dlsym(library, symbol.name);
      if (*symbol.function) continue;
      problem = std::string("the NVIDIA driver is too old: libcuda.so.1 has no ") + symbol.name;
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
