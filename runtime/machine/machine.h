// What this machine can do at most, measured: the figures that `tw doctor` prints and that `tw bench` relates to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tw {

// Bytes; 0: there is none, or the system does not say.
struct CacheSizes {
  int64_t l1_data = 0, l2 = 0, l3 = 0;
  int l1_ways = 0;  // of the first one: lines that a set holds
  int l3_cpus = 0;  // logical CPUs that share one L3
};

// Of CPU 0, from sysfs, or from cpuid where sysfs is missing.
CacheSizes cache_sizes();

struct MachineReport {
  std::string architecture, cpu_name;
  std::vector<std::string> features;
  CacheSizes caches;
  int threads = 1;               // that "all" below means
  std::string fma_instructions;  // what the peak was measured with: "avx512f", "avx2+fma", "neon", "sse2"
  double peak_gflops_one = 0;    // f32, a fused multiply-add counts as two
  double peak_gflops_all = 0;
  double read_gbs_one = 0, read_gbs_all = 0;  // 1e9 bytes a second from arrays that no cache holds
  double copy_gbs_all = 0;                    // bytes read plus bytes written
};

// f32 operations a second of that many workers at once, a fused multiply-add as two, on the widest vectors that the CPU
// has, all operands in registers.  Takes about `seconds`, as do the others.  The best of many short rounds counts,
// because a neighbour can only slow a round down.
double measure_peak_flops(int threads, double seconds = 0.15);

// Bytes a second that the workers read from arrays that no cache holds; and that they read and write in a copy.
double measure_read_bandwidth(int threads, double seconds = 0.15);
double measure_copy_bandwidth(int threads, double seconds = 0.15);

// All of it.  Takes less than two seconds.  `threads` 0: default_team_size().
MachineReport measure_machine(int threads = 0);

}  // namespace tw
