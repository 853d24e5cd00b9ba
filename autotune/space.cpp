#include "autotune/space.h"

#include <algorithm>
#include <cmath>

#include "autotune/features.h"
#include "tensor_ir/structural.h"

namespace tw::autotune {
namespace {

constexpr uint64_t explored_one_in = 8;  // points that are taken at random among those that are known
constexpr size_t explored_among = 64;    // the best of them

}  // namespace

double distance(const Choice& a, const Choice& b) {
  double sum = a.size() == b.size() ? 0 : 100;  // not the same kind of value
  const auto log_of = [](int64_t number) { return std::log2(1 + static_cast<double>(std::max<int64_t>(number, 0))); };
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += std::abs(log_of(a[i]) - log_of(b[i]));
  return sum;
}

Space::Space(Func func, const Target& target, uint64_t seed)
    : func_(std::move(func)), target_(target), random_(seed ^ structural_hash(func_)) {
  open_.emplace(1.0, Open{});
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

// Each point is made once: from the one that has the analytic choice for its last decision that differs.
void Space::expand(const Open& open, double cost, const std::vector<AskedDecision>& asked) {
  for (size_t i = open.first_free; i < asked.size(); ++i) {
    for (size_t c = 0; c < asked[i].candidates.size(); ++c) {
      if (c == asked[i].analytic) continue;
      Open next{open.decisions, i + 1};
      next.decisions[asked[i].name] = asked[i].candidates[c].value;
      open_.emplace(cost * std::exp(log_cost(asked[i], c)), std::move(next));
    }
  }
}

std::optional<Point> Space::next() {
  while (!open_.empty()) {
    auto chosen = open_.begin();
    if (random_() % explored_one_in == 0)
      std::advance(chosen, static_cast<std::ptrdiff_t>(random_() % std::min(open_.size(), explored_among)));
    const double cost = chosen->first;
    const Open open = std::move(chosen->second);
    open_.erase(chosen);
    auto point = visit(open.decisions);
    if (!point) continue;
    expand(open, cost, point->asked);
    if (seen_.insert(point->trace).second) return point;
  }
  return std::nullopt;
}

}  // namespace tw::autotune
