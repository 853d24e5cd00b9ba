#include "targets/cuda/target.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "runtime/device/cuda.h"
#include "runtime/device/cuda_image.h"
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
    throw Error(ErrorCode::target, "`cuda` and `cuda:1` are the machine's GPUs: " + problem +
                                       "\n  help: name one, such as cuda:sm_80 or cuda:sm_90");
  }
  const Architecture* best = nullptr;
  for (const Architecture& known : architectures)
    if (known.compute_capability / 10 == capability / 10 && known.compute_capability <= capability) best = &known;
  if (best) return *best;
  throw Error(ErrorCode::target,
              gpu.name + " has compute capability " + std::to_string(capability) +
                  ", for which there is no target\n  help: 75 and later ones are known; what is newer "
                  "runs cuda:sm_80+ptx");
}

// Of "cuda", the machine's first GPU, and of "cuda:1".
std::optional<int> ordinal_in(std::string_view name) {
  if (name == "cuda") return 0;
  constexpr std::string_view family = "cuda:";
  int ordinal = 0;
  if (!name.starts_with(family)) return std::nullopt;
  const auto [end, problem] = std::from_chars(name.data() + family.size(), name.data() + name.size(), ordinal);
  return problem == std::errc() && end == name.data() + name.size() ? std::optional(ordinal) : std::nullopt;
}

}  // namespace

Target machine_target(const MachineFacts& machine) {
  return make_target(architecture_of(machine.gpu, "it has none").name);
}

bool owns_target(std::string_view name) {
  return name == "cuda" || name == "cuda+ptx" || name.starts_with("cuda:");
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  if (!cuda_devices().empty()) names.emplace_back("cuda");
  for (const Architecture& architecture : architectures) names.emplace_back(architecture.name);
  return names;
}

Target make_target(std::string_view name) {
  constexpr std::string_view and_ptx = "+ptx";
  const bool has_ptx = name.ends_with(and_ptx);
  std::string_view wanted = has_ptx ? name.substr(0, name.size() - and_ptx.size()) : name;
  if (const auto gpu = ordinal_in(wanted)) {
    const std::string problem = cuda_problem();
    wanted = architecture_of(this_gpu(*gpu), problem.empty() ? "it has no GPU " + std::to_string(*gpu) : problem).name;
  }
  const auto* found = std::find_if(std::begin(architectures), std::end(architectures),
                                   [&](const Architecture& architecture) { return architecture.name == wanted; });
  if (found == std::end(architectures)) {
    std::string known;
    for (const std::string& known_name : target_names()) known += (known.empty() ? "" : ", ") + known_name;
    throw Error(ErrorCode::target, "unknown CUDA target `" + std::string(name) + "`\n  help: one of " + known +
                                       ", each also with +ptx, for all later GPUs");
  }
  Target target;
  target.name = wanted;
  // PTX of an architecture is for all later ones, so its kernels use nothing that one architecture alone has.
  if (has_ptx) target.name += and_ptx, target.features = {ptx_feature};
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
  target.float8_rate = static_cast<double>(device.float8_products) / device.fp32_lanes;
  target.default_schedule = default_schedule;
  target.decided_schedule = decided_schedule;
  return target;
}

}  // namespace tw::cuda
