// Points of a space one after the other, for tests that look at many.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autotune/search/features.h"
#include "autotune/search/space.h"
#include "tensor_ir/structural.h"

namespace tw::test {

// Different schedules: the default first, then by predicted cost, with a random one now and then.  The same for the
// same space and seed.
class Points {
 public:
  // `space` outlives it.
  Points(const autotune::Space& space, uint64_t seed) : space_(space), random_(seed ^ structural_hash(space.func())) {
    open_.emplace(1.0, Open{});
  }

  std::optional<autotune::Point> next() {
    constexpr uint64_t explored_one_in = 8;  // points that are taken at random among those that are known
    constexpr size_t explored_among = 64;    // the best of them
    while (!open_.empty()) {
      auto chosen = open_.begin();
      if (random_() % explored_one_in == 0)
        std::advance(chosen, static_cast<std::ptrdiff_t>(random_() % std::min(open_.size(), explored_among)));
      const double cost = chosen->first;
      const Open open = std::move(chosen->second);
      open_.erase(chosen);
      auto point = space_.visit(open.decisions);
      if (!point) continue;
      expand(open, cost, point->asked);
      if (seen_.insert(point->trace).second) return point;
    }
    return std::nullopt;
  }

 private:
  // A point whose template has not run yet.
  struct Open {
    Decisions decisions;
    size_t first_free = 0;  // decisions before this one, in the order of asking, stay as they are
  };

  // Each point is made once: from the one that has the analytic choice for its last decision that differs.
  void expand(const Open& open, double cost, const std::vector<AskedDecision>& asked) {
    for (size_t i = open.first_free; i < asked.size(); ++i) {
      for (size_t c = 0; c < asked[i].candidates.size(); ++c) {
        if (c == asked[i].analytic) continue;
        Open next{open.decisions, i + 1};
        next.decisions[asked[i].name] = asked[i].candidates[c].value;
        open_.emplace(cost * std::exp(autotune::log_cost(asked[i], c)), std::move(next));
      }
    }
  }

  const autotune::Space& space_;
  std::mt19937_64 random_;
  std::multimap<double, Open> open_;  // by predicted cost
  std::set<std::string> seen_;        // traces
};

}  // namespace tw::test
