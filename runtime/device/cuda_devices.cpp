// What the driver says of itself and its GPUs.
#include "runtime/device/cuda.h"
#include "runtime/device/cuda_driver.h"

namespace tw {

std::string cuda_problem() {
  std::string problem;
  CudaDriver::find(problem);
  return problem;
}

std::string cuda_driver_name() {
  std::string problem;
  const CudaDriver* usable = CudaDriver::find(problem);
  return usable ? usable->name() : "";
}

std::vector<CudaDeviceInfo> cuda_devices() {
  std::string problem;
  const CudaDriver* found = CudaDriver::find(problem);
  std::vector<CudaDeviceInfo> devices;
  constexpr int attribute_major = 75, attribute_minor = 76;
  int count = 0;
  if (!found || found->device_count(&count) != 0) return devices;
  for (int i = 0; i < count; ++i) {
    CudaDriver::Device device = 0;
    char name[128] = "";
    int major = 0, minor = 0;
    size_t bytes = 0;
    if (found->device_get(&device, i) == 0) {  // what one does not tell stays empty
      found->device_name(name, sizeof name, device);
      found->device_attribute(&major, attribute_major, device);
      found->device_attribute(&minor, attribute_minor, device);
      found->device_memory(&bytes, device);
    }
    devices.push_back({name, major * 10 + minor, static_cast<int64_t>(bytes)});
  }
  return devices;
}

}  // namespace tw
