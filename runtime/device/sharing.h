// Which steps of a plan workers share, and where they wait for one another.
#pragma once

#include <limits>
#include <vector>

#include "runtime/plan/plan.h"

namespace tw {

constexpr int64_t unknown_tasks = std::numeric_limits<int64_t>::max();  // they depend on counters

struct Sharing {
  std::vector<bool> is_shared;    // by step: by all workers; else its tasks stay with worker 0
  std::vector<bool> has_barrier;  // by step: before it, when there is more than one worker
  int64_t most_tasks = 1;         // of a step that is shared
};
// The plan is valid (plan_io.h), and nothing in it is open.
Sharing share_steps(const Plan& plan);

}  // namespace tw
