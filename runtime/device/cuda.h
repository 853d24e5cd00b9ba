// NVIDIA GPUs through libcuda, the driver's library, opened at run time: one build serves machines with and without a
// GPU, and nothing of CUDA but the driver is needed to run an artifact.
//
// Contexts: the device's primary context, which other libraries of the process share; it is current during a call only.
#pragma once

#include <string>
#include <vector>

#include "runtime/device/device.h"

namespace tw {

struct CudaDeviceInfo {
  std::string name;            // "NVIDIA H200"
  int compute_capability = 0;  // 90
  int64_t memory_bytes = 0;
};

// Empty when a GPU can be used; otherwise why not, in words for people.
std::string cuda_problem();
// Empty when there is none.
std::vector<CudaDeviceInfo> cuda_devices();

// `source.image` is a cubin; steps say their grid and block.  Error(device): no GPU, or a failing one.
std::unique_ptr<Program> make_cuda_program(const ProgramSource& source);

}  // namespace tw
