// The space of a Func: every schedule that its template can make.
//
// A point is a set of decisions (schedule/decisions.h); running the template with them says what else it asks.  Points
// are scored by the product of their decisions' predicted costs, which needs no lowering.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedule/decisions.h"
#include "targets/target.h"

namespace tw::autotune {

// One more whenever a template asks for something else under a known name, so that a stored decision would mean another
// schedule.
inline constexpr int64_t space_version = 1;

struct Point {
  Decisions decisions;   // only what differs from the analytic choices: {} is the default
  double cost = 1;       // predicted time by the default's: by analysis
  double predicted = 1;  // by the cost model that chose it
  std::string trace;
  std::vector<AskedDecision> asked;  // by the template, with these decisions
};

class Space {
 public:
  // `target` outlives it.
  Space(Func func, const Target& target) : func_(std::move(func)), target_(target) {}

  // The point with these decisions; nothing when the template or a primitive refuses them.
  std::optional<Point> visit(const Decisions& decisions) const;
  // The point that is most like decisions for another Func or version: of each decision that the template asks for the
  // candidate nearest to what was decided there.
  Point nearest(const Decisions& decisions) const;

  const Func& func() const { return func_; }

 private:
  Func func_;
  const Target& target_;
};

// How far apart two values of a decision are: factors between their numbers, in powers of two.
double distance(const Choice& a, const Choice& b);

}  // namespace tw::autotune
