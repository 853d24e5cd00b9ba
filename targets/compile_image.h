// Kernels to one image of machine code, which the runtime maps.  The same path serves running at once and artifacts for
// other machines.
#pragma once

#include <string>
#include <vector>

#include "targets/kernel_cache.h"
#include "targets/lower.h"

namespace tw {

struct InnerLoopReport {
  std::string kernel;
  int line = 0;           // of the assembly
  int vector_spills = 0;  // stores of vector registers to the stack within the loop
  int vector_reloads = 0;
};

struct CodegenReport {
  std::vector<InnerLoopReport> inner_loops;
  int spilled_buffers = 0;  // LoweredFunc::spilled, for whoever lowers
  int cached_kernels = 0;   // that were not compiled, for they were in the cache
};

struct CodegenOptions {
  int jobs = 0;               // threads; 0: one per core
  bool wants_report = false;  // fills inner_loops (costs an assembly printing of every kernel)
  KernelCache* cache = nullptr;
};

std::vector<std::byte> compile_image(const std::vector<Kernel>& kernels, const Target& target,
                                     const CodegenOptions& options = {}, CodegenReport* report = nullptr);
}  // namespace tw
