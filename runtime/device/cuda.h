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

// The one that runs everything, by its ordinal: CUDA_VISIBLE_DEVICES says which that is.
inline constexpr int used_gpu = 0;

// Uninitialised memory of the GPU.  Whoever queues work on it keeps it until that is done, or lets the driver, which
// waits for all work before memory goes.  Error(device | limit).
NDArray new_gpu_array(DType dtype, Shape shape);
// All of an array, from or to the GPU or within it, behind what is in the stream; it is complete when this returns.
void copy_gpu_array(const NDArray& from, NDArray& to, StreamHandle stream);
// What comes into `stream` from now on begins after what is in `other` now.
void wait_for_stream(StreamHandle stream, StreamHandle other);
// Until all that is in it is done.
void finish_stream(StreamHandle stream);

// `source.image` is a cubin; steps say their grid and block.  Error(device): no GPU, or a failing one.
std::unique_ptr<Program> make_cuda_program(const ProgramSource& source);

}  // namespace tw
