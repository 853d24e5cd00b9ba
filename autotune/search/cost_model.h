// How fast a point is predicted to be: the analytic cost times a residual that is learned from records.
//
//   ln t(point) = ln cost(point) + trees(features)        up to a constant of the task
//
// The trees (XGBoost) are boosted on a ranking loss: over all pairs of rows of one task, how far the predicted
// difference is from the measured one, where both are ln of the time by the default's; beyond a factor of 1.2 the loss
// is linear, so that outliers and failures only say which is worse, and pairs with a fast row weigh more.  Such a loss
// compares rows within a task only, so tasks that were measured at other times, or whose whole level the analytic model
// misses, teach what they can: the order.
//
// Without rows the model is the analytic prior exactly.  The same rows give the same model, in any order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autotune/search/features.h"

namespace tw::autotune {

// A point that was measured.
struct TrainingRow {
  std::string task, point;  // key and decisions: rows are put into this order
  Features features;        // of task and point
  double log_cost = 0;      // the prior
  double log_ratio = 0;     // ln of the time by the default's
};

class CostModel {
 public:
  CostModel();
  ~CostModel();
  CostModel(CostModel&&) noexcept;
  CostModel& operator=(CostModel&&) noexcept;

  // Anew, from these rows alone.  Fewer than two rows in every task: the prior.
  void train(std::vector<TrainingRow> rows);
  bool is_trained() const;

  // Predicted ln of the times of points by each other's, given as what a template asked and candidates of it.
  std::vector<double> predict(const Features& task, const std::vector<AskedDecision>& asked,
                              const std::vector<std::vector<size_t>>& points) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Spearman's rank correlation, ties sharing their ranks; 0 for fewer than two or where all are equal.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tw::autotune
