#include "python/own_schedules.h"

#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "runtime/error.h"
#include "schedule/schedule.h"
#include "targets/backend.h"

namespace tw::python {
namespace {

// Kept by copies of a Target that may end without the GIL.
std::shared_ptr<py::object> keep(const py::object& function) {
  return {new py::object(function), [](py::object* kept) {
            const py::gil_scoped_acquire locked;
            delete kept;
          }};
}

std::optional<Schedule> scheduled_by(const py::object& function, const std::string& what, const Func& func,
                                     const Decisions& decisions) {
  const py::gil_scoped_acquire locked;
  try {
    const py::object schedule = py::cast(Schedule(func, decisions));
    const py::object answer = function(schedule);
    if (!py::isinstance<py::bool_>(answer))
      throw Error(ErrorCode::schedule, what + " gave neither True nor False\n  help: return whether it scheduled");
    if (!answer.cast<bool>()) return std::nullopt;
    return schedule.cast<Schedule&>();
  } catch (py::error_already_set& raised) {
    throw Error(ErrorCode::schedule, what + " raised " + raised.what());
  }
}

// In the order of the kernel's nodes.
std::vector<std::string> names_of_operators(const Func& func) {
  const auto found = func.attributes.find("schedules");
  if (found == func.attributes.end()) return {};
  std::vector<std::string> names;
  std::istringstream lines(std::get<std::string>(found->second));
  for (std::string line; std::getline(lines, line);) names.push_back(line);
  return names;
}

}  // namespace

Target with_schedules(Target target, const OwnSchedules& schedules) {
  if (schedules.of_all.is_none() && schedules.of_operators.empty()) return target;
  if (target.backend->launch_of)  // which they would have to give blocks of threads to launch
    throw Error(ErrorCode::schedule, "`" + target.name + "` takes no schedules of your own\n  help: CPUs do");
  std::shared_ptr<py::object> of_all;
  if (!schedules.of_all.is_none()) of_all = keep(schedules.of_all);
  std::map<std::string, std::shared_ptr<py::object>> of_operators;
  for (const auto& [name, function] : schedules.of_operators) of_operators[name] = keep(function);
  target.own_template = schedules.name;
  target.decided_schedule = [of_all, of_operators, others = target.decided_schedule](
                                const Func& func, const Target& for_target, const Decisions& decisions) {
    std::optional<Schedule> schedule;
    if (of_all) schedule = scheduled_by(*of_all, "the template", func, decisions);
    for (const std::string& name : names_of_operators(func)) {
      const auto own = of_operators.find(name);
      if (!schedule && own != of_operators.end())
        schedule = scheduled_by(*own->second, "the schedule of " + name, func, decisions);
    }
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
