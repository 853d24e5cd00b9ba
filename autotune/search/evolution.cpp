// The other strategy: random points, then mutations and mixtures of the fastest.
#include <algorithm>

#include "autotune/search/search.h"

namespace tw::autotune {
namespace {

constexpr size_t random_points = 64, generation = 32, parents = 16;
constexpr int most_attempts = 2000;  // to find a point that is new

}  // namespace

std::vector<Point> Search::next_generation(size_t most) {
  phase_ = results_.size() < random_points ? "random" : "evolution";
  std::vector<const Result*> fastest;
  for (const auto& [text, result] : results_)
    if (result.log_ratio) fastest.push_back(&result);
  std::stable_sort(fastest.begin(), fastest.end(),
                   [](const Result* a, const Result* b) { return *a->log_ratio < *b->log_ratio; });
  fastest.resize(std::min(fastest.size(), parents));
  const auto any = [&](size_t count) { return static_cast<size_t>(random_() % count); };
  std::vector<Point> batch;
  for (int attempt = 0; attempt < most_attempts && batch.size() < std::min(most, generation); ++attempt) {
    if (phase_ == "random" || fastest.empty() || any(4) == 0) {
      Sketch sketch{any(contexts_.size()), {}, 0};
      for (const AskedDecision& asked : contexts_[sketch.context])
        sketch.chosen.push_back(any(asked.candidates.size()));
      take(sketch, batch);
      continue;
    }
    // Of two parents' decisions, of which one or two are made otherwise.
    const std::vector<AskedDecision>& asked = fastest[any(fastest.size())]->point.asked;
    const Decisions& other = fastest[any(fastest.size())]->point.decisions;
    Decisions decisions;
    for (const AskedDecision& a : asked) {
      const auto theirs = other.find(a.name);
      const Choice& own = a.candidates[a.chosen].value;
      const Choice value = any(2) && theirs != other.end() ? theirs->second : own;
      if (value != a.candidates[a.analytic].value) decisions[a.name] = value;
    }
    for (size_t changes = 1 + any(2); changes > 0; --changes) {
      const AskedDecision& a = asked[any(asked.size())];
      const size_t value = any(a.candidates.size());
      decisions.erase(a.name);
      if (value != a.analytic) decisions[a.name] = a.candidates[value].value;
    }
    if (seen_.insert(to_text(decisions)).second) take(space_.visit(decisions), batch);
  }
  for (Point& point : batch) point.predicted = 0;  // by nobody
  predicted_gain_ = 0;
  return batch;
}

}  // namespace tw::autotune
