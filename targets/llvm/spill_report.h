// Vector spills of inner loops, read off the assembly.
#pragma once

#include <string_view>

#include "targets/compile_image.h"

namespace tw {

// `assembly` is LLVM's, with its comments ("64-byte Spill"), of one kernel.
std::vector<InnerLoopReport> report_inner_loops(std::string_view assembly, const std::string& kernel);

}  // namespace tw
