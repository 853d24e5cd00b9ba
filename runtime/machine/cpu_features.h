// What this machine's CPU can do, by LLVM's feature names, as far as the operating system lets programs use it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"

namespace tw {

struct HostCpu {
  std::string architecture;           // "x86_64", "aarch64", "arm"
  std::string name;                   // for people; may be empty
  std::vector<std::string> features;  // sorted

  bool has(std::string_view feature) const;
};

// Detected once.
const HostCpu& host_cpu();

// Whether code with these requirements can run here; if not, the reason: "this CPU lacks avx512f".
std::string reason_not_runnable(const MachineRequirements& requirements, const HostCpu& cpu = host_cpu());

// Error(wrong_machine) with that reason and what to do.  `what` is the artifact's path, or empty.
void require_runnable(const MachineRequirements& requirements, const std::string& what,
                      const HostCpu& cpu = host_cpu());

}  // namespace tw
