// One Func on its way to machine code.
#pragma once

#include <string>
#include <vector>

#include "schedule/layout.h"
#include "schedule/schedule.h"
#include "targets/lower.h"
#include "targets/target.h"

namespace tw::relay {

struct ScheduledFunc {
  Func func;                                   // as it is scheduled
  std::vector<std::vector<IndexMap>> layouts;  // by buffer: what the schedule did to constants
  LoweredFunc lowered;
  Expr flops, operations;  // cost.h
};

// `schedule`: of `func`.  `symbol` names the kernels until their content does.
ScheduledFunc lower_scheduled(const Func& func, const Schedule& schedule, const Target& target,
                              const std::string& symbol);

// Each once: some are equal only after lowering.
std::vector<Kernel> different_kernels(const std::vector<ScheduledFunc>& funcs);

}  // namespace tw::relay
