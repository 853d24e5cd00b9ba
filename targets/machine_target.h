// The target that a machine is: what "cpu" means on it.
#pragma once

#include "runtime/machine/facts.h"
#include "targets/target.h"

namespace tw {

// Error(target) when Tilewright generates no code for such a machine.
Target machine_target(const MachineFacts& machine);
// The target of a name on that machine: "cpu" and "cuda" are its own.
Target parse_target(std::string_view name, const MachineFacts& machine);

// Empty: code for the target runs there.
std::string reason_not_runnable(const Target& target, const MachineFacts& machine);

// Caches, where the machine says what they are, and threads instead of the target's.
void take_facts(Target& target, const MachineFacts& machine);

}  // namespace tw
