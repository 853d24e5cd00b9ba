// AArch64 and ARMv7: "aarch64", "armv7", cores ("cortex-a72", "neoverse-n1") and boards ("rpi4").
#pragma once

#include "runtime/machine/facts.h"
#include "targets/target.h"

namespace tw::arm {

bool owns_target(std::string_view name);
Target make_target(std::string_view name);
std::vector<std::string> target_names();
Target machine_target(const MachineFacts& machine);

}  // namespace tw::arm
