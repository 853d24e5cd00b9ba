// Tensors as the unit of a GPU that copies boxes of them takes them: an argument of kernels, made for each launch.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/device/cuda_driver.h"
#include "runtime/plan/plan.h"

namespace tw::gpu {

struct alignas(64) EncodedTensorMap {
  std::byte bytes[128];
};

// Of a tensor that begins there, in the context that is current; sizes may depend on counters.  Error(device): the
// driver is older than CUDA 12, or does not take it.
EncodedTensorMap encode(const TensorMap& map, CudaDriver::Address begin, std::span<const int64_t> counters);

}  // namespace tw::gpu
