// Plans as bytes, and what every plan must obey before the runtime walks it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace tw {

std::vector<std::byte> write_plans(const Plans& plans);
// Error(artifact) naming `where` and the byte.  The result still has to be validated.
Plans read_plans(std::span<const std::byte> bytes, const std::string& where);

// Empty, or the first broken rule: every buffer lies inside its storage, sizes are not negative and fit this machine,
// dtypes are those that arrays hold, no step needs more workspace than the plan says, kernels are named.
std::string find_plan_problem(const Plan& plan);
// The same of all of them; and special plans take and give what the general one does, at sizes that this one has.
std::string find_plans_problem(const Plans& plans);

}  // namespace tw
