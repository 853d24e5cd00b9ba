// NVIDIA GPUs by compute capability: "cuda:sm_75" … "cuda:sm_120"; "cuda" is this machine's.
#pragma once

#include "runtime/machine/facts.h"
#include "targets/target.h"

namespace tw::cuda {

bool owns_target(std::string_view name);
Target make_target(std::string_view name);
std::vector<std::string> target_names();
Target machine_target(const MachineFacts& machine);

}  // namespace tw::cuda
