// What the targets of one family have in common: which passes their graphs and Funcs go through, how kernels become an
// image, and what these kernels can do.  A Target points to its backend.  Outside of targets/ nobody asks which family
// a target is of: what depends on it is a fact here or a pass that the backend lists.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"
#include "targets/compile_image.h"
#include "targets/lower.h"

namespace tw {

// A TensorMap (runtime/plan/plan.h) of one of a kernel's buffers.
struct TensorMapOfBuffer {
  Buffer buffer;
  std::vector<Expr> extents, strides;  // of the kernel's parameters; strides in bytes
  std::vector<int64_t> box;
  int64_t swizzle_bytes = 0;
};

// A GPU's launch; extents are constants or expressions of the kernel's parameters.
struct Launch {
  std::array<Expr, 3> grid, block;
  int64_t shared_bytes = 0;                  // of a block, that the launch asks for
  std::vector<TensorMapOfBuffer> maps = {};  // arguments behind the parameters
};

// `size_of`: an extent as the plan has it.
template <class F>
std::vector<TensorMap> tensor_maps_of(const Launch& launch, const Func& kernel, F&& size_of) {
  std::vector<TensorMap> maps;
  for (const TensorMapOfBuffer& own : launch.maps) {
    TensorMap& map = maps.emplace_back();
    const auto at = std::find(kernel.buffers.begin(), kernel.buffers.end(), own.buffer);
    check(at != kernel.buffers.end(), "tensor_maps_of: a map is of one of the kernel's buffers");
    map.buffer = static_cast<uint32_t>(at - kernel.buffers.begin());
    map.element_bytes = static_cast<uint32_t>(own.buffer->dtype.bytes());
    for (const Expr& extent : own.extents) map.extents.push_back(size_of(extent));
    for (const Expr& stride : own.strides) map.strides.push_back(size_of(stride));
    for (const int64_t elements : own.box) map.box.push_back(static_cast<uint32_t>(elements));
    map.swizzle_bytes = static_cast<uint32_t>(own.swizzle_bytes);
  }
  return maps;
}

// What a device of a target holds and does at most, by the figures of its data sheet, for those who have none at hand.
struct KernelFit {
  std::string device;
  int multiprocessors = 0;
  double flops = 0, tensor_flops = 0, bytes = 0;  // a second: of f32, of 16-bit floats by tensor cores, of memory
  double byte_operations = 0;                     // of bytes by tensor cores
  double float8_operations = 0;                   // of floats of 8 bits
  // Of a kernel, what one multiprocessor holds at a time: blocks, the share of its warps that are so, and what it is
  // that limits them.
  int blocks = 0;
  double occupancy = 0;
  std::string limited_by;
};

// What warps ask of memory, as far as loops tell: a request's bytes lie in so many sectors of 32 bytes, and would fill
// so many at least.
struct MemoryRequests {
  int64_t requests = 0, sectors = 0, least_sectors = 0;
  int64_t unknown = 0;  // beside them: requests whose places depend on data
};

struct Backend {
  // Those of the passes BACKEND_PASS in relay_ir/passes.def that graphs go through.
  std::vector<std::string_view> graph_passes = {};
  // Passes of tensor_ir from a scheduled Func to kernels, in order.
  std::vector<std::string_view> lowering = {};
  std::vector<std::byte> (*compile_image)(const std::vector<Kernel>&, const Target&, const CodegenOptions&,
                                          CodegenReport*);
  // Not set: the runtime shares out a kernel's tasks over workers.
  Launch (*launch_of)(const Kernel&) = nullptr;
  // Of blocks of so many threads, of so many registers each, that have so many bytes of shared memory.
  KernelFit (*fit_of)(const Target&, int threads, int registers, int64_t shared_bytes) = nullptr;
  MemoryRequests (*requests_of)(const Kernel&) = nullptr;

  // Kernels read and write the caller's arrays where they lie; otherwise copies of them.
  bool uses_arrays_of_caller = true;
  // Instructions for vectors of a certain width; otherwise a vector is as long as the loop that it is made of.
  bool has_vectors = true;
};

}  // namespace tw
