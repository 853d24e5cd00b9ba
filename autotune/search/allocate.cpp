#include "autotune/search/allocate.h"

#include <algorithm>
#include <cmath>

namespace tw::autotune {
namespace {

constexpr double first_hope = 0.15;     // share of a task's time that trials may save when nothing is known
constexpr double patience = 12;         // fruitless trials after which 1/e of that is left
constexpr double trust_in_model = 0.5;  // of what it predicts, since the best of many predictions is too good
constexpr double most_predicted = 0.5;
// There others come first.  Something may be left in any case: the machine is measured once, and may be busy then.
constexpr double near_the_bound = 1.05, left_at_the_bound = 0.001;

}  // namespace

double expected_gain(const TaskState& task) {
  const double now = task.seconds * task.ratio, fading = std::exp(-task.fruitless / patience);
  const double predicted = trust_in_model * std::clamp(task.predicted_gain, 0.0, most_predicted);
  const double share = 1 - std::exp(-predicted * std::sqrt(fading)) + first_hope * fading;
  return std::min(now * share, std::max(left_at_the_bound * now, now - near_the_bound * task.bound));
}

}  // namespace tw::autotune
