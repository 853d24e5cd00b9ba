// The GPUs that the emulator plays, and their contexts.
//
// CUDA_EMULATOR_CAPABILITY says which there are: 90 is one of compute capability 9.0, "90,120" are two.  Each has its
// memory, streams and code, and takes no other's.  CUDA_EMULATOR_CUDA is what the driver supports: 13000.
#pragma once

#include <mutex>
#include <vector>

namespace tw::cuda_emulator {

enum Result {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  no_binary = 209,
  unsupported_ptx = 222,
  not_found = 500,
  illegal_address = 700,
  launch_failed = 719,
};

extern std::recursive_mutex mutex;  // of all that the driver knows; a call holds it
using Lock = std::lock_guard<std::recursive_mutex>;

std::vector<int> capabilities();  // by ordinal
int cuda_version();
int own_gpu();  // whose context is current; -1: none

}  // namespace tw::cuda_emulator
