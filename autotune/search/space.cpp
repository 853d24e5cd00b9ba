#include "autotune/search/space.h"

#include <algorithm>
#include <cmath>

#include "autotune/search/features.h"

namespace tw::autotune {

double distance(const Choice& a, const Choice& b) {
  double sum = a.size() == b.size() ? 0 : 100;  // not the same kind of value
  const auto log_of = [](int64_t number) { return std::log2(1 + static_cast<double>(std::max<int64_t>(number, 0))); };
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += std::abs(log_of(a[i]) - log_of(b[i]));
  return sum;
}

std::optional<Point> Space::visit(const Decisions& decisions) const {
  try {
    const Schedule schedule = target_.decided_schedule(func_, target_, decisions);
    const double cost = std::exp(log_cost(schedule.asked(), chosen_of(schedule.asked())));
    Point point{{}, cost, cost, to_text(schedule.trace()), schedule.asked()};
    for (const AskedDecision& asked : point.asked)
      if (asked.chosen != asked.analytic) point.decisions[asked.name] = asked.candidates[asked.chosen].value;
    return point;
  } catch (const Error& error) {
    // A combination that a primitive refuses is no schedule.
    if (error.code() != ErrorCode::schedule) throw;
    return std::nullopt;
  }
}

Point Space::nearest(const Decisions& decisions) const {
  std::optional<Point> point = visit({});
  check(point.has_value(), "space: the default is a schedule");
  for (size_t i = 0; i < point->asked.size(); ++i) {
    const AskedDecision& asked = point->asked[i];
    const auto decided = decisions.find(asked.name);
    if (decided == decisions.end()) continue;
    const auto best =
        std::min_element(asked.candidates.begin(), asked.candidates.end(), [&](const Candidate& a, const Candidate& b) {
          return distance(a.value, decided->second) < distance(b.value, decided->second);
        });
    Decisions more = point->decisions;
    more[asked.name] = best->value;
    if (auto next = visit(more); next && next->asked.size() > i) point = std::move(next);
  }
  return *point;
}

}  // namespace tw::autotune
