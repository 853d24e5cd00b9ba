#include "autotune/space.h"

#include "tensor_ir/structural.h"

namespace tw::autotune {
namespace {

constexpr uint64_t explored_one_in = 8;  // points that are taken at random among those that are known
constexpr size_t explored_among = 64;    // the best of them

}  // namespace

Space::Space(Func func, const Target& target, uint64_t seed)
    : func_(std::move(func)), target_(target), random_(seed ^ structural_hash(func_)) {
  open_.emplace(1.0, Open{});
}

// Each point is made once: from the one that has the analytic choice for its last decision that differs.
void Space::expand(const Open& open, double cost, const Schedule& schedule) {
  for (size_t i = open.first_free; i < schedule.asked().size(); ++i) {
    const AskedDecision& asked = schedule.asked()[i];
    for (size_t c = 0; c < asked.candidates.size(); ++c) {
      if (c == asked.analytic) continue;
      Open next{open.decisions, i + 1};
      next.decisions[asked.name] = asked.candidates[c].value;
      open_.emplace(cost * asked.candidates[c].cost / asked.candidates[asked.analytic].cost, std::move(next));
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
    try {
      const Schedule schedule = target_.decided_schedule(func_, target_, open.decisions);
      expand(open, cost, schedule);
      Point point{open.decisions, cost, to_text(schedule.trace())};
      if (seen_.insert(point.trace).second) return point;
    } catch (const Error& error) {
      // A combination that a primitive refuses is no schedule.
      if (error.code() != ErrorCode::schedule) throw;
    }
  }
  return std::nullopt;
}

}  // namespace tw::autotune
