#include "targets/cuda/target.h"

#include <algorithm>

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

}  // namespace

bool owns_target(std::string_view name) {
  return name == "cuda" || name.starts_with("cuda:");
}

std::vector<std::string> target_names() {
  std::vector<std::string> names = {"cuda"};
  for (const Architecture& architecture : architectures) names.emplace_back(architecture.name);
  return names;
}

Target make_target(std::string_view name) {
  const std::string_view wanted = name == "cuda" ? "cuda:sm_80" : name;
  const auto* found = std::find_if(std::begin(architectures), std::end(architectures),
                                   [&](const Architecture& architecture) { return architecture.name == wanted; });
  if (found == std::end(architectures)) {
    std::string known;
    for (const std::string& known_name : target_names()) known += (known.empty() ? "" : ", ") + known_name;
    throw Error(ErrorCode::target, "unknown CUDA target `" + std::string(name) + "`\n  help: one of " + known);
  }
  Target target;
  target.name = name;
  target.backend = &backend();
  target.architecture = "cuda";
  target.vector_bits = 128;  // of one access to memory
  target.vector_registers = 255;
  target.has_fma = true;
  target.has_f16_conversion = true;
  target.l1.bytes = 128 << 10;
  const DeviceFacts& device = *device_facts(found->compute_capability);
  target.l2.bytes = device.l2_bytes;
  target.l3 = {};
  target.threads = device.multiprocessors;
  target.compute_capability = found->compute_capability;
  target.shared_bytes = 48 << 10;  // a block may have without asking for more
  target.default_schedule = default_schedule;
  return target;
}

}  // namespace tw::cuda
