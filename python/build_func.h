// One scheduled Func as an Executable: for people who write schedules, and for measuring them.
#pragma once

#include "runtime/executable.h"
#include "schedule/schedule.h"
#include "targets/target.h"

namespace tw::python {

// Inputs and outputs are the Func's buffers, whose extents must be constants: Error(lower).
Executable build_func(const Func& scheduled, const Target& target);

}  // namespace tw::python
