#include "targets/arm/target.h"

#include <algorithm>

#include "targets/arm/instructions.h"
#include "targets/cpu/backend.h"
#include "targets/cpu/default_schedule.h"
#include "targets/machine_target.h"

namespace tw::arm {
namespace {

enum class Isa { armv7, armv8, armv8_2, armv8_6 };

// LLVM 22 schedules Cortex-A76 and its relatives by the model of the A57; that of Neoverse N1 is theirs.
struct Core {
  const char* name;
  const char* cpu;
  Isa isa;
  int fma_ports, fma_latency, load_ports, threads;
  int l1_kib, l1_ways, l2_kib, l3_kib;
};

const Core cores[] = {
    // name           LLVM's CPU       ISA          FMA ports, latency, load ports, threads, L1 in KiB, its ways, L2, L3
    {"aarch64", "generic", Isa::armv8, 2, 4, 2, 4, 32, 4, 512, 0},
    {"armv7", "cortex-a7", Isa::armv7, 1, 8, 1, 4, 32, 4, 512, 0},
    {"cortex-a7", "cortex-a7", Isa::armv7, 1, 8, 1, 4, 32, 4, 512, 0},
    {"cortex-a53", "cortex-a53", Isa::armv8, 1, 4, 1, 4, 32, 4, 512, 0},
    {"cortex-a72", "cortex-a72", Isa::armv8, 2, 7, 1, 4, 32, 2, 1024, 0},
    {"cortex-a76", "neoverse-n1", Isa::armv8_2, 2, 4, 2, 4, 64, 4, 512, 2048},
    {"neoverse-n1", "neoverse-n1", Isa::armv8_2, 2, 4, 2, 4, 64, 4, 1024, 32768},
    {"neoverse-v1", "neoverse-v1", Isa::armv8_6, 4, 4, 3, 4, 64, 4, 1024, 32768},
    {"neoverse-v2", "neoverse-v2", Isa::armv8_6, 4, 4, 3, 4, 64, 4, 2048, 32768},
    {"graviton2", "neoverse-n1", Isa::armv8_2, 2, 4, 2, 4, 64, 4, 1024, 32768},
    {"graviton3", "neoverse-v1", Isa::armv8_6, 4, 4, 3, 4, 64, 4, 1024, 32768},
    {"graviton4", "neoverse-v2", Isa::armv8_6, 4, 4, 3, 4, 64, 4, 2048, 36864},
    {"rpi3", "cortex-a53", Isa::armv8, 1, 4, 1, 4, 32, 4, 512, 0},
    {"rpi4", "cortex-a72", Isa::armv8, 2, 7, 1, 4, 32, 2, 1024, 0},
    {"rpi5", "neoverse-n1", Isa::armv8_2, 2, 4, 2, 4, 64, 4, 512, 2048},
};

std::vector<std::string> features_of(Isa isa) {
  switch (isa) {
    case Isa::armv7:
      return {"neon", "vfp4", "hwdiv", "hwdiv-arm"};
    case Isa::armv8:
      return {"fp-armv8", "neon"};
    case Isa::armv8_2:
      return {"fp-armv8", "neon", "dotprod", "fullfp16"};
    case Isa::armv8_6:
      return {"fp-armv8", "neon", "dotprod", "fullfp16", "i8mm", "bf16"};
  }
  internal_error("arm: an instruction set without features");
}

Target make(const Core& core) {
  Target target;
  target.name = core.name;
  target.backend = &cpu::backend();
  const bool is_32_bit = core.isa == Isa::armv7;
  target.architecture = is_32_bit ? "arm" : "aarch64";
  target.triple = is_32_bit ? "armv7a-unknown-linux-gnueabihf" : "aarch64-unknown-linux-gnu";
  target.cpu = core.cpu;
  target.features = features_of(core.isa);
  target.vector_bits = 128;
  target.vector_registers = is_32_bit ? 16 : 32;
  target.has_fma = true;
  target.has_f16_conversion = true;
  target.has_f16 = target.has("fullfp16");
  target.instructions = instructions_of(target);
  if (!is_32_bit) target.byte_lookup = byte_lookup();
  target.fma_ports = core.fma_ports, target.fma_latency = core.fma_latency, target.load_ports = core.load_ports;
  target.threads = core.threads;
  target.l1.bytes = int64_t{core.l1_kib} << 10, target.l1.ways = core.l1_ways;
  target.l2.bytes = int64_t{core.l2_kib} << 10;
  target.l3.bytes = int64_t{core.l3_kib} << 10;
  // Boards, which have no large third cache, have one narrow channel.
  if (target.l3.bytes < 4 << 20) target.memory_rate = 3, target.core_memory_rate = 2;
  target.default_schedule = cpu::default_schedule;
  target.decided_schedule = cpu::decided_schedule;
  return target;
}

const Core* find(std::string_view name) {
  const auto* core = std::find_if(std::begin(cores), std::end(cores), [&](const Core& c) { return name == c.name; });
  return core == std::end(cores) ? nullptr : core;
}

}  // namespace

bool owns_target(std::string_view name) {
  return find(name) != nullptr;
}

Target make_target(std::string_view name) {
  const Core* core = find(name);
  check(core != nullptr, "arm::make_target: a target of this family");
  return make(*core);
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Core& core : cores) names.emplace_back(core.name);
  return names;
}

Target machine_target(const MachineFacts& machine) {
  const HostCpu& host = machine.cpu;
  const auto runs = [&](const char* name) {
    const std::vector<std::string> needed = features_of(find(name)->isa);
    return std::all_of(needed.begin(), needed.end(), [&](const std::string& f) { return host.has(f); });
  };
  Target target;
  if (host.architecture == "arm") {
    target = make(*find("armv7"));
  } else if (runs("neoverse-v1")) {
    target = make(*find("neoverse-v1"));
    target.cpu = "neoverse-n1";  // without SVE, which this host may lack
  } else {
    target = make(*find(runs("neoverse-n1") ? "neoverse-n1" : "aarch64"));
  }
  take_facts(target, machine);
  return target;
}

}  // namespace tw::arm
