// Kernels by LLVM to objects, in parallel, and those by lld in this process to one ELF shared object with no undefined
// symbols.
#pragma once

#include "targets/compile_image.h"

namespace tw {

std::vector<std::byte> compile_llvm_image(const std::vector<Kernel>& kernels, const Target& target,
                                          const CodegenOptions& options, CodegenReport* report);
// For people and tests.
std::string emit_llvm_ir(const std::vector<Kernel>& kernels, const Target& target);
std::string emit_assembly(const std::vector<Kernel>& kernels, const Target& target);

}  // namespace tw
