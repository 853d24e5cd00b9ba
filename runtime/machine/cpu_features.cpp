#include "runtime/machine/cpu_features.h"

#include <algorithm>
#include <array>
#include <fstream>

#include "runtime/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sys/auxv.h>
#endif

namespace tw {
namespace {

#if defined(__x86_64__)

constexpr const char* architecture = "x86_64";
constexpr long arch_get_supported_state = 0x1021, arch_request_state = 0x1023, tile_data = 18;

enum Register { eax, ebx, ecx, edx };
// State that the operating system must save for the feature to be usable (bits of XCR0).
enum class State : uint64_t { none = 0, avx = 0x6, avx512 = 0xe6, amx = 0x60000 };

struct Row {
  const char* feature;
  uint32_t leaf, subleaf;
  Register where;
  int bit;
  State state;
};
// Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.
constexpr Row rows[] = {
    {"sse3", 1, 0, ecx, 0, State::none},
    {"ssse3", 1, 0, ecx, 9, State::none},
    {"fma", 1, 0, ecx, 12, State::avx},
    {"cx16", 1, 0, ecx, 13, State::none},
    {"sse4.1", 1, 0, ecx, 19, State::none},
    {"sse4.2", 1, 0, ecx, 20, State::none},
    {"movbe", 1, 0, ecx, 22, State::none},
    {"popcnt", 1, 0, ecx, 23, State::none},
    {"avx", 1, 0, ecx, 28, State::avx},
    {"f16c", 1, 0, ecx, 29, State::avx},
    {"cmov", 1, 0, edx, 15, State::none},
    {"sse", 1, 0, edx, 25, State::none},
    {"sse2", 1, 0, edx, 26, State::none},
    {"bmi", 7, 0, ebx, 3, State::none},
    {"avx2", 7, 0, ebx, 5, State::avx},
    {"bmi2", 7, 0, ebx, 8, State::none},
    {"avx512f", 7, 0, ebx, 16, State::avx512},
    {"avx512dq", 7, 0, ebx, 17, State::avx512},
    {"avx512ifma", 7, 0, ebx, 21, State::avx512},
    {"avx512cd", 7, 0, ebx, 28, State::avx512},
    {"avx512bw", 7, 0, ebx, 30, State::avx512},
    {"avx512vl", 7, 0, ebx, 31, State::avx512},
    {"avx512vbmi", 7, 0, ecx, 1, State::avx512},
    {"avx512vbmi2", 7, 0, ecx, 6, State::avx512},
    {"gfni", 7, 0, ecx, 8, State::none},
    {"avx512vnni", 7, 0, ecx, 11, State::avx512},
    {"avx512bitalg", 7, 0, ecx, 12, State::avx512},
    {"avx512vpopcntdq", 7, 0, ecx, 14, State::avx512},
    {"amx-bf16", 7, 0, edx, 22, State::amx},
    {"avx512fp16", 7, 0, edx, 23, State::avx512},
    {"amx-tile", 7, 0, edx, 24, State::amx},
    {"amx-int8", 7, 0, edx, 25, State::amx},
    {"avxvnni", 7, 1, eax, 4, State::avx},
    {"avx512bf16", 7, 1, eax, 5, State::avx512},
    {"amx-fp16", 7, 1, eax, 21, State::amx},
    {"avxifma", 7, 1, eax, 23, State::avx},
    {"avxvnniint8", 7, 1, edx, 4, State::avx},
    {"avxneconvert", 7, 1, edx, 5, State::avx},
    {"avxvnniint16", 7, 1, edx, 10, State::avx},
    {"lzcnt", 0x80000001, 0, ecx, 5, State::none},
    {"prfchw", 0x80000001, 0, ecx, 8, State::none},
};

std::array<uint32_t, 4> cpuid(uint32_t leaf, uint32_t subleaf) {
  std::array<uint32_t, 4> r{};
  if (__get_cpuid_max(leaf & 0x80000000u, nullptr) >= leaf)
    __cpuid_count(leaf, subleaf, r[eax], r[ebx], r[ecx], r[edx]);
  return r;
}

uint64_t enabled_states() {
  if (!(cpuid(1, 0)[ecx] >> 27 & 1)) return 0;  // OSXSAVE
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Asks for it: supported states may still be refused, to all programs or to this one (a small alternate signal stack).
bool kernel_grants_amx() {
  uint64_t states = 0;
  if (syscall(SYS_arch_prctl, arch_get_supported_state, &states) != 0 || !(states >> tile_data & 1)) return false;
  return syscall(SYS_arch_prctl, arch_request_state, tile_data) == 0;
}

std::vector<std::string> detect_features() {
  std::vector<std::string> features;
  const uint64_t states = enabled_states();
  const bool amx = kernel_grants_amx();
  for (const Row& row : rows) {
    if (row.leaf == 7 && row.subleaf > cpuid(7, 0)[eax]) continue;
    auto needed = static_cast<uint64_t>(row.state);
    if (!(cpuid(row.leaf, row.subleaf)[row.where] >> row.bit & 1) || (states & needed) != needed) continue;
    if (row.state == State::amx && !amx) continue;
    features.push_back(row.feature);
  }
  return features;
}

std::string detect_name() {
  std::string name;
  for (uint32_t leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    for (uint32_t word : cpuid(leaf, 0)) {
      for (int byte = 0; byte < 4; ++byte) {
        if (char c = static_cast<char>(word >> 8 * byte)) name += c;
      }
    }
  }
  size_t first = name.find_first_not_of(' '), last = name.find_last_not_of(' ');
  return first == std::string::npos ? "" : name.substr(first, last - first + 1);
}

#else

struct Row {
  const char* feature;
  unsigned long type;  // AT_HWCAP or AT_HWCAP2
  int bit;
};

// The bits are the kernel's interface: arch/{arm64,arm}/include/uapi/asm/hwcap.h.
#if defined(__aarch64__)
constexpr const char* architecture = "aarch64";
constexpr Row rows[] = {
    {"fp-armv8", AT_HWCAP, 0}, {"neon", AT_HWCAP, 1},     {"aes", AT_HWCAP, 3},       {"sha2", AT_HWCAP, 6},
    {"crc", AT_HWCAP, 7},      {"lse", AT_HWCAP, 8},      {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
    {"rcpc", AT_HWCAP, 15},    {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},      {"fp16fml", AT_HWCAP, 23},
    {"sve2", AT_HWCAP2, 1},    {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14},    {"sme", AT_HWCAP2, 23},
};
#else
constexpr const char* architecture = "arm";
constexpr Row rows[] = {
    {"vfp2", AT_HWCAP, 6},      {"neon", AT_HWCAP, 12},      {"vfp3", AT_HWCAP, 13},  {"vfp4", AT_HWCAP, 16},
    {"fp16", AT_HWCAP, 16},     {"hwdiv-arm", AT_HWCAP, 17}, {"hwdiv", AT_HWCAP, 18}, {"d32", AT_HWCAP, 19},
    {"fullfp16", AT_HWCAP, 23}, {"dotprod", AT_HWCAP, 24},   {"bf16", AT_HWCAP, 26},  {"i8mm", AT_HWCAP, 27},
};
#endif

std::vector<std::string> detect_features() {
  std::vector<std::string> features;
  for (const Row& row : rows) {
    if (getauxval(row.type) >> row.bit & 1) features.push_back(row.feature);
  }
  return features;
}

std::string detect_name() {
  std::ifstream model("/proc/device-tree/model");  // "Raspberry Pi 4 Model B Rev 1.4"
  std::string name;
  std::getline(model, name, '\0');
  if (!name.empty()) return name;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    size_t colon = line.find(':');
    bool is_name = line.rfind("model name", 0) == 0 || line.rfind("Model", 0) == 0;
    if (is_name && colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "";
}

#endif

}  // namespace

bool HostCpu::has(std::string_view feature) const {
  return std::binary_search(features.begin(), features.end(), feature, std::less<>());
}

const HostCpu& host_cpu() {
  static const HostCpu cpu = [] {
    HostCpu found{architecture, detect_name(), detect_features()};
    std::sort(found.features.begin(), found.features.end());
    return found;
  }();
  return cpu;
}

std::string reason_not_runnable(const MachineRequirements& requirements, const HostCpu& cpu) {
  if (requirements.architecture != cpu.architecture)
    return "this machine is " + cpu.architecture + ", the code is for " + requirements.architecture;
  std::string missing;
  for (const std::string& feature : requirements.features) {
    if (!cpu.has(feature)) missing += (missing.empty() ? "" : ", ") + feature;
  }
  return missing.empty() ? "" : "this CPU lacks " + missing;
}

void require_runnable(const MachineRequirements& requirements, const std::string& what, const HostCpu& cpu) {
  std::string reason = reason_not_runnable(requirements, cpu);
  if (reason.empty()) return;
  throw Error(ErrorCode::wrong_machine,
              (what.empty() ? "" : what + ": ") + "built for " + requirements.target + ", " + reason +
                  "\n  help: run it on such a machine, or compile the model with --target for this one (\"cpu\")");
}

}  // namespace tw
