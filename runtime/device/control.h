// Where a run goes on behind a step of control: the same on every device, which says how it reads a number, gives
// memory and ends a run.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "runtime/plan/plan.h"

namespace tw {

// Of a run that a step has ended.
Error failed_check(const Step& step, int64_t a, int64_t b);
// Of what a demand says of the number.
Error failed_demand(const std::string& text, int64_t number);
Error failed_read(const Step& step, int64_t number, int64_t low, int64_t high);

// What a step of control finds in its buffer of so many bytes: a truth (0 or 1), or an integer.
int64_t number_at(const void* address, int64_t bytes);

// The step behind steps[i], which is of control; steps.size(): the run ends.  None, as of what it calls: the run goes
// on without this worker.
//   ask()        what is in the step's buffer: std::optional<int64_t>
//   perform()    whether there is memory for what the step places, or what it calls has done its work:
//                std::optional<bool>
//   fail(Error)  remembers why the run ends
template <class Ask, class Perform, class Fail>
std::optional<size_t> next_step(std::span<const Step> steps, size_t i, std::span<int64_t> counters, Ask&& ask,
                                Perform&& perform, Fail&& fail) {
  const Step& step = steps[i];
  int64_t& counter = counters[step.counter];
  bool goes_on = true;  // a loop does another step; nothing is skipped
  switch (step.kind) {
    case StepKind::jump:
      return step.target;
    case StepKind::check: {
      const int64_t a = step.parameters[0].at({}, counters), b = step.parameters[1].at({}, counters);
      if (a == b) return i + 1;
      fail(failed_check(step, a, b));
      return steps.size();
    }
    case StepKind::read: {
      const std::optional<int64_t> number = ask();
      if (!number) return std::nullopt;
      const int64_t low = step.parameters[0], high = step.parameters[1];
      counter = *number;
      if (*number >= low && *number <= high) return i + 1;
      fail(failed_read(step, *number, low, high));
      return steps.size();
    }
    case StepKind::demand: {
      const std::optional<int64_t> number = ask();
      if (!number) return std::nullopt;
      if (*number == std::numeric_limits<int64_t>::min()) return i + 1;
      fail(failed_demand(step.kernel, *number));
      return steps.size();
    }
    case StepKind::set: {
      if (step.parameters.size() == 1) {
        counter = step.parameters[0].at({}, counters);
        return i + 1;
      }
      try {
        const int64_t low = step.parameters[1], high = step.parameters[2];
        counter = step.parameters[0].at({}, counters);
        if (counter >= low && counter <= high) return i + 1;
        fail(failed_read(step, counter, low, high));
      } catch (const Error& error) {  // it does not fit
        fail(error);
      }
      return steps.size();
    }
    case StepKind::place:
    case StepKind::call: {
      const std::optional<bool> is_done = perform();
      if (!is_done) return std::nullopt;
      return *is_done ? i + 1 : steps.size();
    }
    case StepKind::loop:
    case StepKind::repeat:
      counter = step.kind == StepKind::loop ? 0 : counter + 1;
      goes_on = counter < step.tasks.at({}, counters);
      break;
    case StepKind::skip:
      break;
    case StepKind::kernel:
      internal_error("next_step: a kernel is no control");
  }
  if (!step.buffers.empty() && goes_on) {
    const std::optional<int64_t> answer = ask();
    if (!answer) return std::nullopt;
    goes_on = *answer != 0;
  }
  return goes_on == (step.kind == StepKind::repeat) ? step.target : i + 1;
}

}  // namespace tw
