// What devices of a compute capability have, and how many blocks of a kernel fit on one of their multiprocessors.
//
// Limits: "Technical Specifications per Compute Capability" of NVIDIA's CUDA C++ Programming Guide.  Rates are those
// that the data sheet of the named product states, of its boost clock.
#pragma once

#include <cstdint>
#include <string_view>

namespace tw::cuda {

struct DeviceFacts {
  int compute_capability;
  std::string_view product;  // the largest of the architecture, whose rates these are
  int multiprocessors;
  int64_t l2_bytes;
  double clock_ghz, memory_gbs;
  // Of one multiprocessor.
  int fp32_lanes, warps, blocks;
  int tensor_core_products;  // multiply-adds of 16-bit floats into f32, a cycle; 0: none of 16 × 8 × 16
  int byte_products;         // of bytes into i32, by tensor cores
  int float8_products;       // of floats of 8 bits into f32
  bool converts_float8;      // what a warp multiplies of these is converted to f16: for groups of warps alone it is not
  int64_t shared_bytes;      // of all its blocks together
  int64_t block_shared_bytes;  // of one block, that asks for it
  int64_t block_reserve;       // bytes of it that each block takes beside its own
};

constexpr int registers_of_multiprocessor = 64 << 10, threads_of_warp = 32;

// Null: unknown.
const DeviceFacts* device_facts(int compute_capability);

// What one multiprocessor holds at a time of a kernel.
struct Occupancy {
  int blocks = 0;
  double share = 0;             // of the warps that it could hold
  std::string_view limited_by;  // "warps", "blocks", "registers", "shared memory"
};
// `registers` of a thread, `shared_bytes` of a block.
Occupancy occupancy_of(const DeviceFacts& device, int threads, int registers, int64_t shared_bytes);

}  // namespace tw::cuda
