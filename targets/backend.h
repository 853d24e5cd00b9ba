// What the targets of one family have in common: which passes their graphs and Funcs go through, how kernels become an
// image, and what these kernels can do.  A Target points to its backend.  Outside of targets/ nobody asks which family
// a target is of: what depends on it is a fact here or a pass that the backend lists.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "targets/compile_image.h"
#include "targets/lower.h"

namespace tw {

// The shape of a GPU's launch; extents are constants or expressions of the kernel's parameters.
struct Launch {
  std::array<Expr, 3> grid, block;
  int64_t shared_bytes = 0;  // of a block, that the launch asks for
};

// What a device of a target holds and does at most, by the figures of its data sheet, for those who have none at hand.
struct KernelFit {
  std::string device;
  int multiprocessors = 0;
  double flops = 0, tensor_flops = 0, bytes = 0;  // a second: of f32, of 16-bit floats by tensor cores, of memory
  double byte_operations = 0;                     // of bytes by tensor cores
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
