// NVIDIA GPUs through libcuda, the driver's library, opened at run time: one build serves machines with and without a
// GPU, and nothing of CUDA but the driver is needed to run an artifact.
//
// Contexts: each device's primary context, which other libraries of the process share; it is current during a call
// only. Devices go by the driver's ordinals, which CUDA_VISIBLE_DEVICES chooses.
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
// "the NVIDIA driver 580.65.06 (CUDA up to 13.0)"; empty when it cannot be used.
std::string cuda_driver_name();
// By ordinal.  Empty when there is none.
std::vector<CudaDeviceInfo> cuda_devices();

// Uninitialised memory of a GPU.  Whoever queues work on it keeps it until that is done, or lets the driver, which
// waits for all work before memory goes.  Error(device | limit).
NDArray new_gpu_array(DType dtype, Shape shape, int gpu = 0);
// The GPU that has memory at this address; the first one where nobody knows it.
int gpu_with(const void* address);
// All of an array, from or to a GPU or within it, behind what is in its stream; it is complete when this returns.
void copy_gpu_array(const NDArray& from, NDArray& to, StreamHandle stream);
// What comes into `stream` from now on begins after what is in `other` now; both are of one GPU.
void wait_for_stream(StreamHandle stream, StreamHandle other, int gpu = 0);
// Until all that is in it is done.
void finish_stream(StreamHandle stream, int gpu = 0);

// `source.image` is a cubin, or one with PTX (cuda_image.h); steps say their grid and block.  Error(device): no GPU, or
// a failing one.  Error(wrong_machine): neither is for this GPU, or its driver does not take them.
std::unique_ptr<Program> make_cuda_program(const ProgramSource& source);

}  // namespace tw
