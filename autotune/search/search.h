// Which points of a task are measured: few, in the order in which they teach and promise most.
//
//   seeds     the analytic best, what was fast in the nearest tasks of the database and in older records of this one,
//             and points that differ most from each other
//   batches   three times those that the model ranks first, and some at random, since it errs
//   descent   around the fastest, one decision at a time, then two: some pay only together
//   batches   as long as something improves
//
// A candidate is scored without running its template: each set of decisions that a template was seen to ask (a context)
// is a product of candidates.  A template runs for what is about to be measured, which may reveal another context.
// The same seed, models and measurements give the same points.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "autotune/search/cost_model.h"
#include "autotune/search/space.h"

namespace tw::autotune {

// What a point teaches the cost model; without a time: that it is slow.
TrainingRow row_of(const std::string& task, const Features& features, const Point& point,
                   std::optional<double> log_ratio);

// How points are chosen.  Evolution is what the search is compared with (tests/campaigns/convergence.py): points at
// random, then mutations and mixtures of the fastest, without a model and without an end.
enum class Strategy { search, evolution };

inline constexpr int seed_trials = 8, batch_trials = 12, model_batches = 3;

class Search {
 public:
  // `space` and `target` outlive it.
  Search(const Space& space, const Target& target, uint64_t seed, Strategy strategy = Strategy::search);

  // Worth measuring before others, the most promising first: decisions of neighbours, or of another version.
  void add_prior(const Decisions& decisions);
  // The next points to measure, at most so many, which is what is left of the trials; none: nothing is left that
  // promises anything.  What fits into the trials is measured whatever it promises.
  std::vector<Point> next_batch(const CostModel& model, size_t most);
  // How a point did: ln of its time by the default's; nothing: it has no time (it failed, or spills).
  void note(const Decisions& decisions, std::optional<double> log_ratio);

  int count() const { return static_cast<int>(results_.size()); }  // of points that were noted
  int fruitless() const { return fruitless_; }                     // since the fastest was found
  // By which the model expects the first of the last batch to be faster than the fastest so far, in ln of time.
  double predicted_gain() const { return predicted_gain_; }
  const std::string& phase() const { return phase_; }
  // What was noted, for training.
  std::vector<TrainingRow> rows(const std::string& task) const;
  const Features& features() const { return features_; }
  // The fastest of those that were faster than the default; null: none was.
  const Point* fastest() const { return best() ? &best()->point : nullptr; }

 private:
  using Chosen = std::vector<size_t>;  // candidates, by decision of a context
  struct Sketch {                      // a point whose template has not run
    size_t context = 0;
    Chosen chosen;
    double score = 0;
  };
  struct Result {
    Point point;
    std::optional<double> log_ratio;
  };

  void add_context(const std::vector<AskedDecision>& asked);
  std::vector<Sketch> pool(const CostModel& model);
  std::vector<Sketch> neighbours(const CostModel& model, bool are_pairs) const;
  Decisions decisions_of(const Sketch& sketch) const;
  size_t count_unseen(const std::vector<Sketch>& sketches) const;
  bool take(std::optional<Point> point, std::vector<Point>& batch);
  bool take(const Sketch& sketch, std::vector<Point>& batch);
  void take_seeds(const std::vector<Sketch>& sketches, size_t most, std::vector<Point>& batch);
  void take_ranked(const std::vector<Sketch>& sketches, size_t most, std::vector<Point>& batch);
  std::vector<Point> next_generation(size_t most);  // evolution.cpp
  const Result* best() const;

  const Space& space_;
  Features features_;
  Strategy strategy_;
  std::mt19937_64 random_;
  std::vector<std::vector<AskedDecision>> contexts_;
  std::set<std::string> context_names_;
  std::vector<Decisions> priors_;
  std::map<std::string, Result> results_;  // by decisions
  std::set<std::string> seen_, traces_;    // decisions that were proposed, noted or refused; schedules
  std::string best_, phase_ = "seeds";
  int fruitless_ = 0;
  double predicted_gain_ = 0;
};

}  // namespace tw::autotune
