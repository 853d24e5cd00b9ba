// A user's own template, written in Python, in front of a target's templates.
#pragma once

#include <string>

#include "python/bind.h"
#include "targets/target.h"

namespace tw::python {

// `function`: called with a new Schedule of each Func; it schedules it, asks for decisions and returns true, or returns
// false and leaves it to the target's templates.  None: the target as it is.  `name`: what it is tuned for.
// Error(schedule) when the function raises.  The GIL is taken for each call.
Target with_template(Target target, const py::object& function, const std::string& name);

}  // namespace tw::python
