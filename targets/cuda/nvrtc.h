// NVRTC, NVIDIA's run-time compiler, opened when it is first needed: from a CUDA toolkit, or from the PyPI packages
// nvidia-cuda-nvrtc (CUDA 13) and nvidia-cuda-nvrtc-cu12.  Nothing of CUDA is needed to build Tilewright.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "targets/compile_image.h"

namespace tw::cuda {

// A library file, or a folder that holds one (directly or in lib/, lib64/): tried after CUDA_HOME and before the usual
// places.  Python passes where the PyPI package lies.
void add_nvrtc_hint(const std::string& path);

// Empty when NVRTC can be used; otherwise why not, and what to do.
std::string nvrtc_problem();
// "13.0 from /usr/local/cuda/lib64/libnvrtc.so.13"; Error(target) when there is none.
std::string nvrtc_description();

// CUDA C++ text to a cubin for compute capability 90 (sm_90).  Error(target) when NVRTC is absent or does not know the
// architecture; text that does not compile is a bug of ours.  `spilled`: the kernels whose registers do not suffice;
// `ptx`: what the cubin was assembled from.
std::vector<std::byte> compile_cubin(const std::string& text, int compute_capability, const std::string& name,
                                     std::vector<std::string>* spilled = nullptr, std::string* ptx = nullptr);

// Kernels to the image that the runtime loads: emit_cuda, then compile_cubin, unless the cache has it.  The compiler
// gives a kernel few registers, so that more threads fit; one that spills them is compiled again for fewer threads.
// A target with the feature "ptx" gets that, too (runtime/device/cuda_image.h).
std::vector<std::byte> compile_cuda_image(const std::vector<Kernel>& kernels, const Target& target,
                                          const CodegenOptions& options, CodegenReport* report);

}  // namespace tw::cuda
