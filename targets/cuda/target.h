// NVIDIA GPUs by compute capability: "cuda:sm_75" … "cuda:sm_120"; "cuda" is sm_80.
#pragma once

#include "targets/target.h"

namespace tw::cuda {

bool owns_target(std::string_view name);
Target make_target(std::string_view name);
std::vector<std::string> target_names();

}  // namespace tw::cuda
