#include "runtime/device/cuda_tensor_maps.h"

#include <array>

#include "runtime/device/cuda_context.h"

namespace tw::gpu {
namespace {

// Of the driver API's enumerations.
constexpr int unsigned_integers[] = {0, 0, 1, 0, 2};  // by bytes: bits are copied, whatever they mean
constexpr int no_interleave = 0, lines_of_256_bytes = 3, zeros_beyond = 0;

int swizzle_of(uint32_t bytes) {
  return bytes == 32 ? 1 : bytes == 64 ? 2 : 3;
}

}  // namespace

EncodedTensorMap encode(const TensorMap& map, CudaDriver::Address begin, std::span<const int64_t> counters) {
  if (!driver().tensor_map)
    throw Error(ErrorCode::device, driver().name() +
                                       " cannot copy boxes of tensors, as kernels for cuda:sm_90 do\n  help: install a "
                                       "driver for CUDA 12 or later, or compile the model for \"cuda:sm_80+ptx\"");
  std::array<uint64_t, most_map_dimensions> extents = {}, strides = {};
  std::array<unsigned, most_map_dimensions> steps;
  steps.fill(1);
  for (size_t d = 0; d < map.extents.size(); ++d) {
    extents[d] = static_cast<uint64_t>(map.extents[d].at({}, counters));
    if (d > 0) strides[d - 1] = static_cast<uint64_t>(map.strides[d - 1].at({}, counters));
  }
  EncodedTensorMap encoded;
  require(driver().tensor_map(&encoded, unsigned_integers[map.element_bytes], static_cast<unsigned>(map.extents.size()),
                              begin, extents.data(), strides.data(), map.box.data(), steps.data(), no_interleave,
                              swizzle_of(map.swizzle_bytes), lines_of_256_bytes, zeros_beyond),
          "describe a tensor");
  return encoded;
}

}  // namespace tw::gpu
