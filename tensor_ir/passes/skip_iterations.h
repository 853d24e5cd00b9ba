// A loop that leaves out iterations has the attribute skip_iterations: the guards by which it does are kept as they
// are, and nothing else gets code of its own for them (partition_loops).
#pragma once

namespace tw {

inline constexpr const char* skip_iterations_attribute = "skip_iterations";

}  // namespace tw
