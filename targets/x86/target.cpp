#include "targets/x86/target.h"

#include <algorithm>

#include "targets/cpu/backend.h"
#include "targets/cpu/default_schedule.h"
#include "targets/machine_target.h"
#include "targets/x86/instructions.h"

namespace tw::x86 {
namespace {

// A level is what every CPU of a generation has: LLVM's x86-64-v2, -v3 and -v4, and that with AMX.
struct Level {
  const char* name;
  const char* cpu;
  int vector_bits, vector_registers;
  bool has_masks, has_fma, has_f16_conversion;
  std::vector<std::string> features;
};

const std::vector<Level>& levels() {
  static const std::vector<std::string> sse4 = {"cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"};
  static const auto with = [](std::vector<std::string> base, const std::vector<std::string>& more) {
    base.insert(base.end(), more.begin(), more.end());
    return base;
  };
  static const std::vector<std::string> avx2 =
      with(sse4, {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"});
  static const std::vector<std::string> avx512 =
      with(avx2, {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"});
  // Sapphire Rapids and later.
  static const std::vector<std::string> amx =
      with(avx512, {"amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512vbmi", "avx512vnni"});
  static const std::vector<Level> list = {
      {"sse4", "x86-64-v2", 128, 16, false, false, false, sse4},
      {"avx2", "x86-64-v3", 256, 16, false, true, true, avx2},
      {"avx512", "x86-64-v4", 512, 32, true, true, true, avx512},
      {"amx", "x86-64-v4", 512, 32, true, true, true, amx},
  };
  return list;
}

// Beyond the levels: what code generation or an instruction intrinsic can use.
const std::vector<std::string>& further_features() {
  static const std::vector<std::string> list = {"avxvnni",    "avx512bf16", "avx512vnni", "avx512vbmi",
                                                "avx512fp16", "amx-tile",   "amx-int8",   "amx-bf16"};
  return list;
}

Target make(const Level& level, const std::vector<std::string>& further) {
  Target target;
  target.backend = &cpu::backend();
  target.architecture = "x86_64";
  target.triple = "x86_64-unknown-linux-gnu";
  target.cpu = level.cpu;
  target.features = level.features;
  target.name = std::string("x86:") + level.name;
  for (const std::string& feature : further) {
    target.features.push_back(feature);
    target.name += "+" + feature;
  }
  target.vector_bits = level.vector_bits;
  // LLVM prefers narrower vectors than the target's on some CPUs and splits ours.
  for (const char* attribute : {"prefer-vector-width", "min-legal-vector-width"})
    target.function_attributes.emplace_back(attribute, std::to_string(level.vector_bits));
  target.vector_registers = level.vector_registers;
  target.has_masks = level.has_masks;
  target.has_fma = level.has_fma;
  target.has_power_scaling = level.vector_bits == 512;
  target.has_f16_conversion = level.has_f16_conversion;
  target.has_f16 = target.has("avx512fp16");
  target.instructions = instructions_of(target);
  target.byte_lookup = byte_lookup_of(target);
  target.tiles = tiles_of(target);
  target.fma_ports = 2, target.fma_latency = 4, target.load_ports = 2;
  target.l2.bytes = 1 << 20, target.l3.bytes = 16 << 20;
  // Of cores with 256 bits Haswell and Zen 2 take 5 cycles, and Zen 3 as good as 5 for what waits for its turn among 8;
  // their second caches give a load each cycle at most.
  if (level.vector_bits == 256) target.fma_latency = 5, target.l2.rate = 32;
  target.threads = 4;
  target.default_schedule = cpu::default_schedule;
  target.decided_schedule = cpu::decided_schedule;
  return target;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

bool owns_target(std::string_view name) {
  return name == "x86" || name.starts_with("x86:");
}

Target make_target(std::string_view name) {
  std::string rest = name == "x86" ? "avx2" : std::string(name.substr(4));
  std::vector<std::string> parts;
  for (size_t at = 0; at <= rest.size();) {
    const size_t end = std::min(rest.find('+', at), rest.size());
    parts.push_back(rest.substr(at, end - at));
    at = end + 1;
  }
  const auto level = std::find_if(levels().begin(), levels().end(), [&](const Level& l) { return l.name == parts[0]; });
  if (level == levels().end()) {
    throw Error(ErrorCode::target, "unknown x86 level `" + parts[0] + "`\n  help: one of " + joined(target_names()));
  }
  const std::vector<std::string> further(parts.begin() + 1, parts.end());
  for (const std::string& feature : further) {
    if (std::find(further_features().begin(), further_features().end(), feature) == further_features().end()) {
      throw Error(ErrorCode::target, "unknown x86 feature `" + feature + "` in target " + std::string(name) +
                                         "\n  help: one of " + joined(further_features()));
    }
  }
  Target target = make(*level, further);
  target.name = name;
  return target;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names = {"x86"};
  for (const Level& level : levels()) names.push_back(std::string("x86:") + level.name);
  return names;
}

Target machine_target(const MachineFacts& machine) {
  const HostCpu& host = machine.cpu;
  for (auto level = levels().rbegin(); level != levels().rend(); ++level) {
    if (!std::all_of(level->features.begin(), level->features.end(), [&](const auto& f) { return host.has(f); }))
      continue;
    std::vector<std::string> further;
    for (const std::string& feature : further_features()) {
      // Encodings of the widest vectors belong to their level.
      const bool needs_avx512 = feature.substr(0, 6) == "avx512" && level->vector_bits < 512;
      const bool is_in_level =
          std::find(level->features.begin(), level->features.end(), feature) != level->features.end();
      if (host.has(feature) && !needs_avx512 && !is_in_level) further.push_back(feature);
    }
    Target target = make(*level, further);
    take_facts(target, machine);
    if (machine.has_half_width_fma) target.fma_ports = 1;
    return target;
  }
  throw Error(ErrorCode::target, "this CPU has no SSE4.2, the least that Tilewright generates code for");
}

}  // namespace tw::x86
