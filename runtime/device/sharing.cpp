#include "runtime/device/sharing.h"

#include <algorithm>

namespace tw {
namespace {

// What is shared out has a barrier before it and one behind, finds half of its data in other cores' caches, and may
// wait for a worker whose core another program uses: what takes less than that is faster on one worker.
constexpr int64_t cycles_worth_sharing = 5000;
bool is_worth_sharing(const Step& step) {
  return !step.cycles.is_known() || step.cycles == 0 || step.cycles >= cycles_worth_sharing;
}

bool is_kernel(const Step& step) {
  return step.kind == StepKind::kernel;
}

bool goes_elsewhere(const Step& step) {
  return step.kind == StepKind::skip || step.kind == StepKind::jump || step.kind == StepKind::loop ||
         step.kind == StepKind::repeat;
}

int64_t tasks_of(const Step& step) {
  return step.tasks.is_known() ? int64_t{step.tasks} : unknown_tasks;
}

// A step of little work spares barriers where one beside it is on worker 0, too; else it is shared out like those.
void choose_shared(const Plan& plan, Sharing& sharing) {
  const std::vector<Step>& steps = plan.steps;
  const auto is_on_worker_0 = [&](size_t i) {
    return i < steps.size() && (!is_kernel(steps[i]) || tasks_of(steps[i]) <= 1 || !is_worth_sharing(steps[i]));
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool spares = is_on_worker_0(i) && (is_on_worker_0(i - 1) || is_on_worker_0(i + 1));
    sharing.is_shared[i] = is_kernel(steps[i]) && tasks_of(steps[i]) > 1 && !spares;
    if (sharing.is_shared[i]) sharing.most_tasks = std::max(sharing.most_tasks, tasks_of(steps[i]));
  }
}

// Whether what is shared takes longer than to wake workers, where they have fallen asleep since the run before: worker
// 0 is alone for longer than they spin.
bool is_worth_waking(const Plan& plan, const Sharing& sharing) {
  constexpr double of_waking = 300'000, until_asleep = 300'000, of_a_step = 100;  // cycles
  double shared = 0, alone_since = 0, often = 1;
  std::vector<double> around;  // the loops
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (step.kind == StepKind::loop) {
      around.push_back(often);
      often *= step.tasks.is_known() ? static_cast<double>(step.tasks) : 1;
    } else if (step.kind == StepKind::repeat) {
      often = around.back();
      around.pop_back();
    }
    const auto cycles = static_cast<double>(step.cycles.is_known() ? int64_t{step.cycles} : 0);
    if (sharing.is_shared[i] && cycles == 0) return true;
    alone_since = sharing.is_shared[i] ? 0 : alone_since + often * (cycles + of_a_step);
    if (sharing.is_shared[i]) shared += often * cycles;
  }
  return shared >= 2 * of_waking || alone_since <= until_asleep;
}

// Steps that run on worker 0 alone need no barrier between them.  Where ways of control meet, that holds if it does for
// all steps that the ways may come by and for what came before.
void place_barriers(const Plan& plan, Sharing& sharing) {
  const std::vector<Step>& steps = plan.steps;
  std::vector<bool> meets(steps.size() + 1, false);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (goes_elsewhere(steps[i])) meets[steps[i].target] = true;
    if (steps[i].kind == StepKind::loop) meets[i + 1] = true;
  }
  bool all_on_worker_0 = true, spared = false, is_first = true;  // since the last barrier
  size_t range_end = 0;                                          // of the outermost control around a step
  bool is_serial = true;                                         // it and what came before it
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (meets[i]) all_on_worker_0 &= is_serial, spared = true, is_first = false;
    if (step.kind == StepKind::check || step.kind == StepKind::set) continue;
    if (!is_kernel(step)) {
      if (i >= range_end && goes_elsewhere(step)) {
        range_end = step.target;
        for (size_t k = i; k < range_end; ++k)
          if (goes_elsewhere(steps[k])) range_end = std::max<size_t>(range_end, steps[k].target);
        is_serial = all_on_worker_0;
        for (size_t k = i; k < range_end; ++k) is_serial = is_serial && !sharing.is_shared[k];
      }
      if (step.buffers.empty() && step.kind != StepKind::place) continue;
      // Worker 0 reads what others may have written, or gives memory that they may still use, and the others wait for
      // what it says.
      sharing.has_barrier[i] = !all_on_worker_0;
      all_on_worker_0 = true, spared = false, is_first = false;
      continue;
    }
    // Whoever planned a step that does not wait relied on the barriers before it, the spared ones too.
    if (is_first || (!sharing.is_shared[i] && all_on_worker_0)) {
      spared |= step.waits && !is_first;
    } else {
      sharing.has_barrier[i] = step.waits || spared;
    }
    if (sharing.has_barrier[i]) all_on_worker_0 = true, spared = false;
    all_on_worker_0 &= !sharing.is_shared[i];
    is_first = false;
  }
}

}  // namespace

Sharing share_steps(const Plan& plan) {
  Sharing sharing{std::vector<bool>(plan.steps.size()), std::vector<bool>(plan.steps.size())};
  choose_shared(plan, sharing);
  if (!is_worth_waking(plan, sharing)) sharing.most_tasks = 1;
  place_barriers(plan, sharing);
  return sharing;
}

}  // namespace tw
