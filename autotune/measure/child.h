// A measuring child from outside: started, waited for, ended at its limit, and its exchange read.  Of tuning jobs and
// of tw-measure itself, where it serves jobs on other machines.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>

#include "autotune/measure/exchange.h"
#include "autotune/measure/measurement.h"

namespace tw::autotune {

struct ChildRequest {
  const Plan* plan = nullptr;                      // of the candidate
  std::function<void(std::span<std::byte>)> fill;  // writes the inputs, as the exchange has them
  int threads = 1;
  double seconds = 0, worst_ratio = 0;  // as in MeasureRequest
  double limit_seconds = 0;             // by the clock
  int64_t memory_bytes = 0;             // of address space
  bool wants_profile = false;
  std::function<bool()> is_cancelled;
};

// Starts the child with these two descriptors as its exchange and its report; gives its process, a leader of its group.
using StartChild = std::function<pid_t(int exchange, int report)>;

// The memory that a child may take: `most` beside the model's own and what threads reserve.
int64_t address_space(const Plan& plan, int threads, int64_t most, int64_t artifact_bytes);

// Error(file) when it cannot be started or cannot load the two; Error(input) when the job is cancelled.
ChildResult run_child(const ChildRequest& request, const StartChild& start);

}  // namespace tw::autotune
