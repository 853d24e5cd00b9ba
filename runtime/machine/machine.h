// What this machine can do at most, measured: the figures that `tw doctor` prints and that `tw bench` relates to.
#pragma once

#include <cstdint>

namespace tw {

// Bytes; 0: there is none, or the system does not say.
struct CacheSizes {
  int64_t l1_data = 0, l2 = 0, l3 = 0;
  int l1_ways = 0;  // of the first one: lines that a set holds
};

// Of CPU 0, from sysfs, or from cpuid where sysfs is missing.
CacheSizes cache_sizes();

// f32 operations a second of that many workers at once, a fused multiply-add as two, on the widest vectors that the CPU
// has, all operands in registers.  Takes about `seconds`, as do the others.  The best of many short rounds counts,
// because a neighbour can only slow a round down.
double measure_peak_flops(int threads, double seconds = 0.15);

// Bytes a second that the workers read from arrays that no cache holds; and that they read and write in a copy.
double measure_read_bandwidth(int threads, double seconds = 0.15);
double measure_copy_bandwidth(int threads, double seconds = 0.15);

}  // namespace tw
