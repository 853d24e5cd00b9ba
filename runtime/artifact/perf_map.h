// Names of loaded code for Linux's perf and other profilers that read /tmp/perf-PID.map
// (tools/perf/Documentation/jit-interface.txt): kernels have no file that a profiler could look into.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tw {

struct CodeRange {
  uintptr_t address;
  uint64_t bytes;
  std::string name;
};

// Where TW_PERF_MAP is set to 1: adds them to this process's map.  What cannot be written is left out.
void add_to_perf_map(const std::vector<CodeRange>& functions);

}  // namespace tw
