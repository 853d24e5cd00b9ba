#include "targets/cuda/target.h"

#include <algorithm>

#include "runtime/device/cuda.h"
#include "targets/cuda/backend.h"
#include "targets/cuda/default_schedule.h"
#include "targets/cuda/device_facts.h"

namespace tw::cuda {
namespace {

struct Architecture {
  const char* name;
  int compute_capability;
};

constexpr Architecture architectures[] = {
    {"cuda:sm_75", 75}, {"cuda:sm_80", 80},   {"cuda:sm_86", 86},   {"cuda:sm_89", 89},
    {"cuda:sm_90", 90}, {"cuda:sm_100", 100}, {"cuda:sm_120", 120},
};

// Of a GPU, or why there is none.  Code for an architecture runs on later ones of its major version, too.
const Architecture& architecture_of(const GpuFacts& gpu, const std::string& problem) {
  const int capability = gpu.compute_capability;
  if (capability == 0) {
    throw Error(ErrorCode::target,
                "`cuda` is the machine's GPU: " + problem + "\n  help: name one, such as cuda:sm_80 or cuda:sm_90");
  }
  const Architecture* best = nullptr;
  for (const Architecture& known : architectures)
    if (known.compute_capability / 10 == capability / 10 && known.compute_capability <= capability) best = &known;
  if (best) return *best;
  throw Error(ErrorCode::target, gpu.name + " has compute capability " + std::to_string(capability) +
                                     ", for which there is no target\n  help: 75 and later ones are known");
}

}  // namespace

Target machine_target(const MachineFacts& machine) {
  return make_target(architecture_of(machine.gpu, "it has none").name);
}

bool owns_target(std::string_view name) {
  return name == "cuda" || name.starts_with("cuda:");
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  if (!cuda_devices().empty()) names.emplace_back("cuda");
  for (const Architecture& architecture : architectures) names.emplace_back(architecture.name);
  return names;
}

Target make_target(std::string_view name) {
  const std::string_view wanted = name == "cuda" ? architecture_of(this_gpu(), cuda_problem()).name : name;
  const auto* found = std::find_if(std::begin(architectures), std::end(architectures),
                                   [&](const Architecture& architecture) { return architecture.name == wanted; });
  if (found == std::end(architectures)) {
    std::string known;
    for (const std::string& known_name : target_names()) known += (known.empty() ? "" : ", ") + known_name;
    throw Error(ErrorCode::target, "unknown CUDA target `" + std::string(name) + "`\n  help: one of " + known);
  }
  Target target;
  target.name = wanted;
  target.backend = &backend();
  target.architecture = "cuda";
  target.vector_bits = 8 * access_bytes;
  target.vector_registers = 255;
  target.has_fma = true;
  target.has_f16_conversion = true;
  target.l1.bytes = 128 << 10;
  target.keeps_first_cache = false;
  const DeviceFacts& device = *device_facts(found->compute_capability);
  target.l2.bytes = device.l2_bytes;
  target.l3 = {};
  target.threads = device.multiprocessors;
  target.compute_capability = found->compute_capability;
  target.shared_bytes = device.block_shared_bytes;
  target.tensor_core_rate = static_cast<double>(device.tensor_core_products) / device.fp32_lanes;
  target.default_schedule = default_schedule;
  target.decided_schedule = decided_schedule;
  return target;
}

}  // namespace tw::cuda
