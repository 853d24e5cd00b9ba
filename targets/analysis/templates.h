// What default schedules do with templates, whatever the target.
#pragma once

#include <functional>

#include "schedule/schedule.h"

namespace tw::analysis {

// Whether the template applies to what it tries.  One that declines leaves nothing behind, nor anything that it asked
// for; so does one that needs of open sizes what cannot be proved.
bool apply_template(Schedule& schedule, const std::function<bool(Schedule&)>& attempt);

// Of nothing, a reduction is its neutral element: where it may have no terms, what begins it stands outside.
void begin_outside(Schedule& schedule);

}  // namespace tw::analysis
