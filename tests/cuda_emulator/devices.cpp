#include "tests/cuda_emulator/devices.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace tw::cuda_emulator {

std::recursive_mutex mutex;

std::vector<int> capabilities() {
  const char* text = std::getenv("CUDA_EMULATOR_CAPABILITY");
  std::vector<int> result;
  for (const char* at = text ? text : "90"; at; at = std::strchr(at, ',') ? std::strchr(at, ',') + 1 : nullptr)
    result.push_back(std::atoi(at));
  return result;
}
int cuda_version() {
  const char* text = std::getenv("CUDA_EMULATOR_CUDA");
  return text ? std::atoi(text) : 13000;
}

namespace {
struct Context {
  int retained = 0;
};
Context contexts[8];  // the primary one of each GPU
thread_local std::vector<Context*> current;
}  // namespace

int own_gpu() {
  return current.empty() ? -1 : static_cast<int>(current.back() - contexts);
}

}  // namespace tw::cuda_emulator

using namespace tw::cuda_emulator;

extern "C" {

// For tests of the runtime.
int cuda_emulator_contexts() {
  const Lock lock(mutex);
  int held = static_cast<int>(current.size());
  for (const Context& context : contexts) held += context.retained;
  return held;
}

// NVIDIA's compiler asks the driver that it finds, which a program under AddressSanitizer looks for as the program
// would.
int cuGetExportTable(const void** table, const void*) {
  const Lock lock(mutex);
  *table = nullptr;
  return 801;  // not supported
}

int cuInit(unsigned flags) {
  const Lock lock(mutex);
  return flags == 0 ? success : invalid_value;
}
int cuGetErrorString(int error, const char** text) {
  const Lock lock(mutex);
  *text = error == launch_failed     ? "unspecified launch failure"
          : error == illegal_address ? "an illegal memory access was encountered"
                                     : "some error";
  return success;
}
int cuDeviceGetCount(int* count) {
  const Lock lock(mutex);
  return *count = static_cast<int>(capabilities().size()), success;
}
int cuDeviceGet(int* device, int ordinal) {
  const Lock lock(mutex);
  const bool is_there = ordinal >= 0 && ordinal < static_cast<int>(capabilities().size());
  return *device = ordinal, is_there ? success : invalid_device;
}
int cuDriverGetVersion(int* version) {
  const Lock lock(mutex);
  return *version = cuda_version(), success;
}
// Under another name it passes for a GPU: for tests of what is done with one's times.
int cuDeviceGetName(char* name, int length, int) {
  const Lock lock(mutex);
  const char* other = std::getenv("CUDA_EMULATOR_NAME");
  return std::snprintf(name, static_cast<size_t>(length), "%s", other ? other : "Emulated GPU"), success;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Lock lock(mutex);
  const int capability = capabilities().at(static_cast<size_t>(device));
  constexpr int major = 75, minor = 76, l2_cache_size = 38;
  *value = attribute == major           ? capability / 10
           : attribute == minor         ? capability % 10
           : attribute == l2_cache_size ? 64 << 10
                                        : 0;
  return success;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  const Lock lock(mutex);
  return *bytes = size_t{1} << 30, success;
}
int cuDevicePrimaryCtxRetain(Context** context, int device) {
  const Lock lock(mutex);
  *context = &contexts[device];
  return ++contexts[device].retained, success;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  const Lock lock(mutex);
  return --contexts[device].retained, success;
}
int cuCtxPushCurrent_v2(Context* context) {
  const Lock lock(mutex);
  const bool is_one = context >= contexts && context < std::end(contexts) && context->retained > 0;
  return is_one ? (current.push_back(context), success) : invalid_context;
}
int cuCtxPopCurrent_v2(Context** context) {
  const Lock lock(mutex);
  if (current.empty()) return invalid_context;
  *context = current.back();
  return current.pop_back(), success;
}
}
