// What a machine is, as far as code for it and schedules depend on it: of this machine, or of one that said so.
#pragma once

#include <string>
#include <string_view>

#include "runtime/machine/cpu_features.h"
#include "runtime/machine/machine.h"

namespace tw {

struct GpuFacts {
  std::string name;            // "NVIDIA H200"
  int compute_capability = 0;  // 90; 0: there is none
  bool is_emulated = false;
};

struct MachineFacts {
  HostCpu cpu;
  CacheSizes caches;
  bool has_half_width_fma = false;  // a multiply-add of the widest vectors is issued in two halves
  int cores = 1;                    // logical CPUs
  int threads = 1;                  // that a run uses: default_team_size()
  bool is_emulated = false;         // times mean nothing
  GpuFacts gpu;                     // where somebody has asked for it: its driver takes a while
};

MachineFacts this_machine();
GpuFacts this_gpu(int ordinal = 0);

// One line of JSON, and back: Error(device) for what is none.
std::string to_text(const MachineFacts& facts);
MachineFacts parse_machine_facts(std::string_view text);

}  // namespace tw
