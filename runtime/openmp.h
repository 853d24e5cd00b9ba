// The OpenMP runtime of this process, whoever brought it, called as compilers call it: so a process that has one, with
// PyTorch or parallel regions of its own, need not have two teams of threads that keep each other from the cores.
#pragma once

#include <string>

namespace tw {

struct OpenMp {
  // function(data) on each thread of a team of so many, or fewer where the runtime's settings say so; number 0 is the
  // caller's.  GCC's entry point, which LLVM's and Intel's runtimes have, too.
  void (*parallel)(void (*function)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  // In a region: of the calling thread, and of the team.
  int (*thread_number)() = nullptr;
  int (*thread_count)() = nullptr;
  std::string path;  // of the library
};

// One that another library has loaded; else the one that we depend on; else libgomp.so.1 as the loader finds it.  Chosen
// when it is first asked for.  Error(limit) where there is none.
const OpenMp& openmp();

}  // namespace tw
