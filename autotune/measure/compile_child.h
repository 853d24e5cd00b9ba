// Compiling in a copy of this process: whatever becomes of the compiler over a strange schedule, an abort in LLVM or
// hours of it, ends there.
#pragma once

#include <functional>
#include <string>

namespace tw::autotune {

struct CompiledInChild {
  std::string problem;  // not empty: it was refused, or the compiler did not survive it
  int value = 0;        // that `compile` gave
};

// `compile` runs in the copy and leaves its result in files; an Error of it is the problem.  Error(input) when
// `is_cancelled` says so, Error(file) when there can be no process.
CompiledInChild compile_in_child(const std::function<int()>& compile, double limit_seconds,
                                 const std::function<bool()>& is_cancelled = {});

}  // namespace tw::autotune
