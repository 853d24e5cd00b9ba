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

CudaDriver::Event new_event(unsigned flags) {
  CudaDriver::Event event = nullptr;
  require(driver().event_create(&event, flags), "make an event");
  return event;
}

}  // namespace tw::gpu
