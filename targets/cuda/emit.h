// Lowered tensor_ir to CUDA C++: text without includes, for NVRTC.
//
// A kernel becomes `extern "C" __global__ void symbol(T* buffer…, long long parameter…)`.  Loops bound to block axes
// and thread axes become the grid; `shared` buffers shared memory; `local`, `stack` and `register` buffers
// arrays of the thread (registers, once the compiler has unrolled); `barrier()` __syncthreads().  A kernel without
// bound loops runs its outermost parallel loop as one block an iteration, or everything in one thread.
//
// f16 and bf16 are 16-bit integers in memory and floats in registers, rounded where tensor_ir says so.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "targets/backend.h"

namespace tw::cuda {

inline constexpr int64_t static_shared_bytes = 48 << 10;  // that a block has without asking for more

Launch launch_of(const Kernel& kernel);

// Of kernels by their symbols: the threads of a multiprocessor that its registers have to be enough for.  Of others the
// compiler chooses.
using HeldThreads = std::map<std::string, int64_t>;

// Error(lower): what a GPU kernel cannot hold, such as an allocation of unknown size or more than `shared_bytes` of
// shared memory.  What has more than 48 KiB gets it by its launch.
std::string emit_cuda(const std::vector<Kernel>& kernels, int64_t shared_bytes = static_shared_bytes,
                      const HeldThreads& held = {});

}  // namespace tw::cuda
