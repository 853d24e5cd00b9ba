// NVIDIA's GPUs: kernels as CUDA C++ text, which NVRTC compiles.
#pragma once

#include "targets/backend.h"

namespace tw::cuda {

const Backend& backend();

}  // namespace tw::cuda
