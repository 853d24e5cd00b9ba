// What a measuring child may do: compute, in memory of limited size, for a limited time.
#pragma once

#include <cstdint>

namespace tw::autotune {

// Before anything is loaded: memory, time and files; no core dump; the child dies with the job.  Where a GPU's driver
// is loaded, time alone: it has terabytes of addresses, and files of its own.
void limit_resources(int64_t memory_bytes, double cpu_seconds, bool has_driver);

// Before a candidate runs, when all files are open and all threads have started: no new process or thread, no file, no
// output, no other process's threads moved; a system call that kernels have no use for ends the process.  False where
// the kernel has no such filter: then only the limits hold.
bool confine();

}  // namespace tw::autotune
