// The kernels of small_plan() (tests/unit/runtime/test_model.h) as the emulator's NVRTC would leave them: block i does
// row i.
#include <cstdint>

#define TW_CUDA_MODULE
#define TW_CUDA_CAPABILITY 90
#include "tests/cuda_emulator/device.h"

namespace {

template <int i>
float* pointer(void** arguments) {
  return *static_cast<float**>(arguments[i]);
}
int64_t number(void** arguments, int i) {
  return *static_cast<int64_t*>(arguments[i]);
}

}  // namespace

extern "C" {
tw::cuda_emulator::KernelEntry tw_kernel_add = {[](void** a) {
                                                  const int64_t n = number(a, 3), row = blockIdx.x * n;
                                                  for (int64_t i = row; i < row + n; ++i)
                                                    pointer<2>(a)[i] = pointer<0>(a)[i] + pointer<1>(a)[i];
                                                },
                                                false, 4};
tw::cuda_emulator::KernelEntry tw_kernel_scale = {[](void** a) {
                                                    const int64_t n = number(a, 2), row = blockIdx.x * n;
                                                    for (int64_t i = row; i < row + n; ++i)
                                                      pointer<1>(a)[i] =
                                                          pointer<0>(a)[i] * static_cast<float>(number(a, 3));
                                                  },
                                                  false, 4};
tw::cuda_emulator::KernelEntry tw_kernel_sum = {[](void** a) {
                                                  pointer<1>(a)[0] = 0;
                                                  for (int64_t i = 0; i < number(a, 2); ++i)
                                                    pointer<1>(a)[0] += pointer<0>(a)[i];
                                                },
                                                false, 3};
tw::cuda_emulator::KernelEntry tw_kernel_row_sums = {[](void** a) {  // a[2]: the workspace
                                                       const int64_t n = number(a, 3), row = blockIdx.x;
                                                       float& sum = pointer<2>(a)[n - 1];
                                                       sum = 0;
                                                       for (int64_t i = 0; i < n; ++i)
                                                         sum += pointer<0>(a)[row * n + i];
                                                       pointer<1>(a)[row] = sum;
                                                     },
                                                     false, 4};
}
