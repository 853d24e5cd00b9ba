// Who decides the schedule: a target's analytic default, a database's record, a search's candidate.
#pragma once

#include <functional>

#include "schedule/schedule.h"

namespace tw {

struct Target;

// The scheduled form of an unscheduled Func for a target.
using ScheduleSource = std::function<Schedule(const Func&, const Target&)>;

// A target's templates, which ask for decisions (decisions.h).  With {} they make the analytic default. Error(schedule)
// when a decision does not fit the Func.
using ScheduleTemplate = std::function<Schedule(const Func&, const Target&, const Decisions&)>;

}  // namespace tw
