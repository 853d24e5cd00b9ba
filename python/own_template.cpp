#include "python/own_template.h"

#include <memory>
#include <optional>
#include <utility>

#include "runtime/error.h"
#include "schedule/schedule.h"

namespace tw::python {
namespace {

// Kept by copies of a Target that may end without the GIL.
std::shared_ptr<py::object> keep(const py::object& function) {
  return {new py::object(function), [](py::object* kept) {
            const py::gil_scoped_acquire locked;
            delete kept;
          }};
}

std::optional<Schedule> scheduled_by(const py::object& function, const Func& func, const Decisions& decisions) {
  const py::gil_scoped_acquire locked;
  try {
    const py::object schedule = py::cast(Schedule(func, decisions));
    const py::object answer = function(schedule);
    if (!py::isinstance<py::bool_>(answer))
      throw Error(ErrorCode::schedule, "the template gave neither True nor False\n  help: return whether it scheduled");
    if (!answer.cast<bool>()) return std::nullopt;
    return schedule.cast<Schedule&>();
  } catch (py::error_already_set& raised) {
    throw Error(ErrorCode::schedule, std::string("the template raised ") + raised.what());
  }
}

}  // namespace

Target with_template(Target target, const py::object& function, const std::string& name) {
  if (function.is_none()) return target;
  if (!target.decided_schedule)
    throw Error(ErrorCode::schedule, "`" + target.name + "` takes no templates\n  help: CPUs do");
  const ScheduleTemplate others = target.decided_schedule;
  target.own_template = name;
  target.decided_schedule = [own = keep(function), others](const Func& func, const Target& for_target,
                                                           const Decisions& decisions) {
    auto schedule = scheduled_by(*own, func, decisions);
    if (!schedule) return others(func, for_target, decisions);
    schedule->require_all_asked();
    return std::move(*schedule);
  };
  target.default_schedule = [](const Func& func, const Target& for_target) {
    return for_target.decided_schedule(func, for_target, {});
  };
  return target;
}

}  // namespace tw::python
