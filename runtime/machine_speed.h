// What this machine's cores and memory can do, measured: the roofline that `tw doctor` and `tw bench` compare with.
#pragma once

namespace tw {

// f32 operations a second of `threads` cores at once, by fused multiply-adds (two operations each) on the widest
// vectors that the CPU has, all operands in registers.  Takes about `seconds`.
double measure_peak_flops(int threads, double seconds = 0.2);

// Bytes a second that `threads` threads read from memory, in streams that no cache holds.
double measure_read_bandwidth(int threads, double seconds = 0.2);

}  // namespace tw
