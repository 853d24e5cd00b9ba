// The space of a Func: every schedule that its template can make, best predicted first.
//
// A point is a set of decisions (schedule/decisions.h); running the template with them says what else it asks.  Points
// are scored by the product of their decisions' predicted costs, which needs no lowering.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "schedule/decisions.h"
#include "targets/target.h"

namespace tw::autotune {

// One more whenever a template asks for something else under a known name, so that a stored decision would mean another
// schedule.
inline constexpr int64_t space_version = 1;

struct Point {
  Decisions decisions;  // only what differs from the analytic choices: {} is the default
  double cost = 1;      // predicted time by the default's
  std::string trace;
};

// Different schedules one after the other: the default first, then by predicted cost, with a random one now and then,
// since predictions err.  The same for the same Func, target and seed.
class Space {
 public:
  Space(Func func, const Target& target, uint64_t seed);
  std::optional<Point> next();

 private:
  // A point whose template has not run yet.
  struct Open {
    Decisions decisions;
    size_t first_free = 0;  // decisions before this one, in the order of asking, stay as they are
  };
  void expand(const Open& open, double cost, const Schedule& schedule);

  Func func_;
  const Target& target_;
  std::mt19937_64 random_;
  std::multimap<double, Open> open_;  // by predicted cost
  std::set<std::string> seen_;        // traces
};

}  // namespace tw::autotune
