// One kernel to an object file or to text.  No LLVM type appears here.
#pragma once

#include <string>
#include <vector>

#include "targets/lower.h"

namespace tw {

enum class EmitForm { llvm_ir, assembly, object };

struct EmittedKernel {
  std::string object;    // or the text that was asked for
  std::string assembly;  // when wanted besides
};

// Thread-safe.
EmittedKernel emit_kernel(const Kernel& kernel, const Target& target, EmitForm form,
                          bool wants_assembly_besides = false);

// An object of functions written as LLVM IR.
std::string emit_ir_text(const char* text, const Target& target);

}  // namespace tw
