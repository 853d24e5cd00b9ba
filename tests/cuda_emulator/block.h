// The threads of a block, which take turns from barrier to barrier, in another order each time.  Copies and products
// that go on beside them land as late as they may, or at any time earlier.
#pragma once

#include <cstddef>

#include "tests/cuda_emulator/device.h"
#undef threadIdx
#undef blockIdx

namespace tw::cuda_emulator {

inline constexpr unsigned char poison = 0xff;  // what memory holds before anybody has written it
inline constexpr size_t max_threads = 1024;    // of a block

extern const Services services_of_block;

// False: the block would hang, or do something else on each GPU.
bool run_block(Module& module, const Index& shape, const KernelEntry& entry, void** arguments);

}  // namespace tw::cuda_emulator
