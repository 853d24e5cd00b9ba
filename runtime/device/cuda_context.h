// What all that uses a GPU begins with: the driver, its context for a scope, its words for addresses and streams.
#pragma once

#include <memory>
#include <string>

#include "runtime/device/cuda.h"
#include "runtime/device/cuda_driver.h"

namespace tw::gpu {

const CudaDriver& driver();  // Error(device): there is none, or no GPU
// Error(device) where it is not 0.
void require(CudaDriver::Result result, const std::string& what);

// The primary context, held for as long as something lives in it.
class HeldContext {
 public:
  explicit HeldContext(int gpu);  // Error(device): there is no such GPU
  ~HeldContext() { driver().context_release(device_); }
  HeldContext(const HeldContext&) = delete;
  HeldContext& operator=(const HeldContext&) = delete;
  CudaDriver::Context get() const { return context_; }
  CudaDriver::Device device() const { return device_; }

 private:
  CudaDriver::Device device_ = 0;
  CudaDriver::Context context_ = nullptr;
};

// Current for this thread until the end of the scope.
class CurrentContext {
 public:
  explicit CurrentContext(CudaDriver::Context context) { require(driver().context_push(context), "use its context"); }
  ~CurrentContext() {
    CudaDriver::Context popped;
    driver().context_pop(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

inline CudaDriver::Address address_of(const void* pointer) {
  return reinterpret_cast<CudaDriver::Address>(pointer);
}
inline CudaDriver::Address address_of(const std::shared_ptr<void>& memory) {
  return address_of(memory.get());
}

// The legacy default stream goes by 1: null is what somebody forgot.
inline CudaDriver::Stream stream_of(StreamHandle handle) {
  return reinterpret_cast<CudaDriver::Stream>(handle == 0 ? 1 : handle);
}

inline constexpr unsigned no_timing = 2;
CudaDriver::Event new_event(unsigned flags = 0);

// The source's code on its GPU, whose context is current.  Error(wrong_machine): it is for others, or its driver too
// old.
CudaDriver::Module load_module(const ProgramSource& source);

// Error(input): it is not in memory of this GPU.
void require_reachable(const NDArray& array, const std::string& name, int gpu);

}  // namespace tw::gpu
