#include "targets/cuda/backend.h"

#include "targets/cuda/device_facts.h"
#include "targets/cuda/emit.h"
#include "targets/cuda/nvrtc.h"
#include "targets/cuda/requests.h"

namespace tw::cuda {

namespace {

KernelFit fit_of(const Target& target, int threads, int registers, int64_t shared_bytes) {
  const DeviceFacts& device = *device_facts(target.compute_capability);
  const Occupancy held = occupancy_of(device, threads, registers, shared_bytes);
  constexpr double giga = 1e9, operations_of_fma = 2;
  return {std::string(device.product),
          device.multiprocessors,
          device.multiprocessors * device.fp32_lanes * operations_of_fma * device.clock_ghz * giga,
          device.multiprocessors * device.tensor_core_products * operations_of_fma * device.clock_ghz * giga,
          device.memory_gbs * giga,
          device.multiprocessors * device.byte_products * operations_of_fma * device.clock_ghz * giga,
          device.multiprocessors * device.float8_products * operations_of_fma * device.clock_ghz * giga,
          held.blocks,
          held.share,
          std::string(held.limited_by)};
}

}  // namespace

const Backend& backend() {
  // As on CPUs (targets/cpu/backend.cpp) but for what CUDA's compiler does itself: it unrolls, its text has functions
  // of its own for mathematics, and threads of one warp take both sides of a branch anyway.
  static const Backend gpus = {
      .graph_passes = {"move_codes", "multiply_quantised", "split_phases", "tile_attention", "widen_at_loads",
                       "fuse_pads", "transpose_images", "assign_layout"},
      .lowering =
          {
              "lower_blocks",
              "compact_buffers",
              // The barriers of threads are not placed yet.
              "pipeline_loops",
              // While indices have dimensions, a thread's own part of a tile is told from the others'.
              "lower_threads",
              // Each statement of threads is one for all of them now.
              "hoist_choices",
              "flatten_buffers",
              "simplify_all",
              "tensorize_loops",
              "vectorize_loops",
              "simplify_all",
              "drop_register_masks",
              "legalize_types",
              "contract_fma",
          },
      .compile_image = compile_cuda_image,
      .launch_of = launch_of,
      .fit_of = fit_of,
      .requests_of = requests_of,
      .uses_arrays_of_caller = false,
      .has_vectors = false,
  };
  return gpus;
}

}  // namespace tw::cuda
