// x86-64: "x86" (= avx2), "x86:sse4", "x86:avx2", "x86:avx512", each with further features after "+":
// "x86:avx512+avx512vnni+avx512bf16".
#pragma once

#include "runtime/machine/facts.h"
#include "targets/target.h"

namespace tw::x86 {

bool owns_target(std::string_view name);
Target make_target(std::string_view name);
std::vector<std::string> target_names();
// The best level and every feature that its CPU has.
Target machine_target(const MachineFacts& machine);

}  // namespace tw::x86
