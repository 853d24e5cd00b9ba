// Kernels by LLVM to objects, in parallel, and those by lld in this process to one ELF shared object with no undefined
// symbols.
#pragma once

#include "targets/compile_image.h"
#include "targets/llvm/emit.h"

namespace tw {

std::vector<std::byte> compile_llvm_image(const std::vector<Kernel>& kernels, const Target& target,
                                          const CodegenOptions& options, CodegenReport* report);
// LLVM's text or assembly, for people and tests.
std::string emit_text(const std::vector<Kernel>& kernels, const Target& target, EmitForm form);

}  // namespace tw
