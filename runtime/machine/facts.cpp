#include "runtime/machine/facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/device/cuda.h"
#include "runtime/error.h"
#include "runtime/team.h"

namespace tw {
namespace {

using nlohmann::json;

// CPUs whose floating-point units are narrower than their widest vectors: of AMD's with 512 bits those that do not say
// that theirs are as wide (AMD64 Architecture Programmer's Manual, volume 3, CPUID Fn8000_001A: FP512), of those with
// 256 bits the generations up to the first Zen.  Of these the bit FP256 would tell as well, but virtual machines hide
// it.
bool has_half_width_fma() {
#if defined(__x86_64__)
  constexpr unsigned vendor = 0x80000000, units = 0x8000001a, fp512 = 1 << 3;
  __builtin_cpu_init();
  if (!__builtin_cpu_is("amd")) return false;
  if (!__builtin_cpu_supports("avx512f")) return __builtin_cpu_is("amdfam15h") || __builtin_cpu_is("znver1");
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_max(vendor, nullptr) < units) return false;
  __cpuid(units, eax, ebx, ecx, edx);
  return (eax & fp512) == 0;
#else
  return false;
#endif
}

// Emulators of user programs show the program under the one of these names, and themselves under the other.
bool is_emulated() {
  const auto identity = [](const char* path) {
    struct stat status{};
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
      fstat(descriptor, &status);
      close(descriptor);
    }
    return std::pair(status.st_dev, status.st_ino);
  };
  const auto one = identity("/proc/self/exe"), other = identity("/proc/thread-self/exe");
  return one.second != 0 && other.second != 0 && one != other;
}

// Each with its name in JSON.
template <class Facts, class F>
void for_each_fact(Facts& facts, F&& f) {
  f("architecture", facts.cpu.architecture);
  f("cpu", facts.cpu.name);
  f("features", facts.cpu.features);
  f("l1_bytes", facts.caches.l1_data);
  f("l1_ways", facts.caches.l1_ways);
  f("l2_bytes", facts.caches.l2);
  f("l3_bytes", facts.caches.l3);
  f("has_half_width_fma", facts.has_half_width_fma);
  f("cores", facts.cores);
  f("threads", facts.threads);
  f("is_emulated", facts.is_emulated);
  f("gpu", facts.gpu.name);
  f("gpu_capability", facts.gpu.compute_capability);
  f("gpu_is_emulated", facts.gpu.is_emulated);
}

}  // namespace

MachineFacts this_machine() {
  MachineFacts facts;
  facts.cpu = host_cpu();
  facts.caches = cache_sizes();
  facts.has_half_width_fma = has_half_width_fma();
  facts.cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  facts.threads = default_team_size();
  facts.is_emulated = is_emulated();
  return facts;
}

GpuFacts this_gpu(int ordinal) {
  const std::vector<CudaDeviceInfo> devices = cuda_devices();
  if (ordinal < 0 || ordinal >= std::ssize(devices)) return {};
  const CudaDeviceInfo& device = devices[static_cast<size_t>(ordinal)];
  return {device.name, device.compute_capability, device.name == "Emulated GPU"};
}

std::string to_text(const MachineFacts& facts) {
  json value;
  for_each_fact(facts, [&](const char* name, const auto& fact) { value[name] = fact; });
  return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

MachineFacts parse_machine_facts(std::string_view text) {
  try {
    const json value = json::parse(text);
    MachineFacts facts;
    for_each_fact(facts, [&](const char* name, auto& fact) { value.at(name).get_to(fact); });
    std::sort(facts.cpu.features.begin(), facts.cpu.features.end());
    const bool is_sensible = facts.cores >= 1 && facts.threads >= 1 && facts.threads <= Team::max_size &&
                             facts.caches.l1_data >= 0 && facts.caches.l1_ways >= 0 && facts.caches.l2 >= 0 &&
                             facts.caches.l3 >= 0;
    if (is_sensible) return facts;
  } catch (const json::exception&) {
  }
  throw Error(ErrorCode::device, "a machine describes itself in words that are none of tw-measure's");
}

}  // namespace tw
