// A user's own schedules, written in Python, in front of a target's templates.
#pragma once

#include <map>
#include <string>

#include "python/bind.h"
#include "targets/target.h"

namespace tw::python {

// Each is called with a Schedule and returns whether it scheduled it.
struct OwnSchedules {
  py::object of_all;                               // asked about every kernel; None: there is none
  std::string name;                                // of that, which what is tuned with it is for
  std::map<std::string, py::object> of_operators;  // asked after it about kernels that name them (ops/custom.cpp)
};

// The target, with the schedules asked first: what they refuse to schedule is left to the target's templates.
Target with_schedules(Target target, const OwnSchedules& schedules);

}  // namespace tw::python
