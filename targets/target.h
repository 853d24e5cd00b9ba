// A target: facts and hooks.  Code generation and schedules ask facts; the names of instruction sets live in x86/,
// arm/, cuda/ only.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/source.h"
#include "targets/machine_instruction.h"

namespace tw {

struct Backend;

// A level of memory, as one core sees it.
struct CacheLevel {
  int64_t bytes = 0;  // 0: there is none
  int ways = 0;       // lines that a set of it holds
  double rate = 0;    // bytes a cycle that a core gets from it, of those that a sweep asks for ahead
};

struct Target {
  std::string name;                  // as parse_target takes it: "x86:avx512", "rpi4", "cuda:sm_90"
  std::string architecture;          // of the artifact: "x86_64", "aarch64", "arm", "cuda"
  const Backend* backend = nullptr;  // what makes programs for it (backend.h)

  // For LLVM.
  std::string triple, cpu;
  std::vector<std::string> features;                                     // without "+"
  std::vector<std::pair<std::string, std::string>> function_attributes;  // of every function, beside these

  // Facts of the core.
  int vector_bits = 128;  // of the widest vectors that are worth using
  int vector_registers = 16;
  bool has_masks = false;  // masked loads and stores at no cost
  bool has_fma = false;
  bool has_power_scaling = false;  // x·2^n as one instruction
  bool has_f16 = false;            // f16 arithmetic in vectors
  bool has_f16_conversion = false;
  int fma_ports = 2, fma_latency = 4, load_ports = 2;
  // What the first cache gives a cycle, load_ports say.  The second one's is what Intel's optimization manual calls
  // sustained for its cores, of 64 at most; the third is of all cores together, and as measured on Zen 4 and Granite
  // Rapids.
  CacheLevel l1{.bytes = 32 << 10, .ways = 8}, l2{.bytes = 512 << 10, .ways = 16, .rate = 48},
      l3{.bytes = 4 << 20, .rate = 12};
  bool keeps_first_cache = true;  // what a kernel leaves there, the next one finds
  double core_to_core_rate = 7;   // bytes a cycle of what another core has written
  // Bytes a cycle that all cores together, and one alone, read from memory: cautious, what most machines of the kind
  // exceed.
  double memory_rate = 32, core_memory_rate = 4;
  double core_stream_rate = 6;  // …and one alone, of weights that it asks for while it computes
  int threads = 1;

  // cuda
  int compute_capability = 0;  // 90
  int64_t shared_bytes = 0;
  // Multiply-adds of 16-bit floats by tensor cores, or half of those of bytes, in the time of one of f32 without them;
  // 0: warps have no fragments.
  double tensor_core_rate = 0;
  double float8_rate = 0;  // …of floats of 8 bits; 0: none

  // The analytic default schedule; always good enough to be usable, always correct.
  ScheduleSource default_schedule;

  // What the core has beyond arithmetic, lane by lane: what tensorize may put in.
  std::vector<MachineInstruction> instructions;
  const MachineInstruction* find_instruction(Intrinsic intrinsic) const {  // null: it has none
    for (const MachineInstruction& i : instructions)
      if (i.intrinsic == intrinsic) return &i;
    return nullptr;
  }

  ByteLookup byte_lookup;

  TileUnit tiles;

  bool has(std::string_view feature) const { return std::ranges::find(features, feature) != features.end(); }
  int lanes(DType dtype) const { return std::max(1, vector_bits / dtype.bits); }

  // The templates that the default comes from, for who decides what they leave open; not set: they leave nothing open.
  ScheduleTemplate decided_schedule;
  // Of a user's own template in front of the target's; "": none.  What is tuned with one is for it alone.
  std::string own_template;
};

// "cpu" (this machine, features detected), "x86", "x86:sse4", "x86:avx2", "x86:avx512", "aarch64", "armv7", named
// boards
// ("rpi3", "rpi4", "rpi5", "cortex-a53", "neoverse-n1", …), "cuda" (this machine's GPU), "cuda:sm_90", "cuda:sm_80+ptx"
// (with PTX for later GPUs).  Error(target) lists what is known.
Target parse_target(std::string_view name);
std::vector<std::string> target_names();

}  // namespace tw
