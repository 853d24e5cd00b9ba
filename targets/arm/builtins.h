// Functions that LLVM calls on 32-bit ARM for 64-bit integers, as LLVM IR: an image has no compiler library beside it.
#pragma once

namespace tw::arm {

extern const char* const builtins_ir;

}  // namespace tw::arm
