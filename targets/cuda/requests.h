// How a kernel's warps reach memory, told by its loops.
#pragma once

#include "targets/backend.h"

namespace tw::cuda {

// Of two warps, each once through the kernel: in its first block and first iterations, and in the next ones, where what
// is not aligned shows.  A request is what one instruction asks for: 16 bytes of each thread, or fewer.
MemoryRequests requests_of(const Kernel& kernel);

}  // namespace tw::cuda
