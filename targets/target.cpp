#include "targets/target.h"

#include "runtime/device/cuda_image.h"
#include "targets/arm/target.h"
#include "targets/cuda/target.h"
#include "targets/machine_target.h"
#include "targets/x86/target.h"

namespace tw {
namespace {

// The rooms that know targets, by the first part of the name.
struct Family {
  Target (*make)(std::string_view name);  // Error(target): no such member
  bool (*owns)(std::string_view name);
  std::vector<std::string> (*names)();
};

const std::vector<Family>& families() {
  static const std::vector<Family> list = {
      {x86::make_target, x86::owns_target, x86::target_names},
      {arm::make_target, arm::owns_target, arm::target_names},
      {cuda::make_target, cuda::owns_target, cuda::target_names},
  };
  return list;
}

}  // namespace

Target machine_target(const MachineFacts& machine) {
  if (machine.cpu.architecture == "x86_64") return x86::machine_target(machine);
  if (machine.cpu.architecture == "aarch64" || machine.cpu.architecture == "arm") return arm::machine_target(machine);
  throw Error(ErrorCode::target,
              "no code can be generated for machines of architecture `" + machine.cpu.architecture + "`");
}

std::string reason_not_runnable(const Target& target, const MachineFacts& machine) {
  const int wanted = target.compute_capability, has = machine.gpu.compute_capability;
  if (wanted == 0) return reason_not_runnable({target.architecture, target.name, target.features}, machine.cpu);
  if (has == 0) return "there is no GPU";
  if (wanted <= has && (wanted / 10 == has / 10 || target.has(ptx_feature))) return "";
  return machine.gpu.name + " has compute capability " + std::to_string(has) + ", the code is for " +
         std::to_string(wanted);
}

void take_facts(Target& target, const MachineFacts& machine) {
  const CacheSizes& caches = machine.caches;
  if (caches.l1_data > 0) target.l1.bytes = caches.l1_data;
  if (caches.l1_ways > 0) target.l1.ways = caches.l1_ways;
  if (caches.l2 > 0) target.l2.bytes = caches.l2;
  if (caches.l3 > 0) target.l3.bytes = caches.l3;
  target.threads = machine.cores;
}

Target parse_target(std::string_view name) {
  if (name == "cpu") return machine_target(this_machine());
  for (const Family& family : families())
    if (family.owns(name)) return family.make(name);
  std::string known;
  for (const std::string& known_name : target_names()) known += (known.empty() ? "" : ", ") + known_name;
  throw Error(ErrorCode::target, "unknown target `" + std::string(name) + "`\n  help: one of " + known);
}

Target parse_target(std::string_view name, const MachineFacts& machine) {
  if (name == "cpu") return machine_target(machine);
  return name == "cuda" ? cuda::machine_target(machine) : parse_target(name);
}

std::vector<std::string> target_names() {
  std::vector<std::string> names = {"cpu"};
  for (const Family& family : families())
    for (std::string& name : family.names()) names.push_back(std::move(name));
  return names;
}

}  // namespace tw
