#include "runtime/device/cuda_context.h"

namespace tw::gpu {

const CudaDriver& driver() {
  static const CudaDriver* const found = [] {
    std::string problem;
    const CudaDriver* usable = CudaDriver::find(problem);
    if (!usable)
      throw Error(ErrorCode::device,
                  problem + "\n  help: run on a machine with an NVIDIA GPU, or compile the model for \"cpu\"");
    return usable;
  }();
  return *found;
}

void require(CudaDriver::Result result, const std::string& what) {
  if (result != 0) throw Error(ErrorCode::device, "the GPU cannot " + what + ": " + driver().describe(result));
}

HeldContext::HeldContext(int gpu) {
  int count = 0;
  require(driver().device_count(&count), "be counted");
  if (gpu < 0 || gpu >= count)
    throw Error(ErrorCode::device, "there is no GPU " + std::to_string(gpu) + ": the driver has " +
                                       std::to_string(count) +
                                       ", the first of which is 0\n  help: CUDA_VISIBLE_DEVICES "
                                       "says which it shows to a process");
  require(driver().device_get(&device_, gpu), "be opened");
  require(driver().context_retain(&context_, device_), "give a context");
}

CudaDriver::Event new_event(unsigned flags) {
  CudaDriver::Event event = nullptr;
  require(driver().event_create(&event, flags), "make an event");
  return event;
}

}  // namespace tw::gpu
