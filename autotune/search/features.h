// What the cost model sees of a point: numbers with names, from the decisions, their candidates' predicted costs and
// facts of the Func and target.  No template runs and nothing is lowered, so a hundred thousand points are scored in a
// second.
//
// Names are those of the decisions ("tile.0", "tile.cost"), so a decision that a template adds is a feature of itself,
// and means the same in every task.
#pragma once

#include <string>
#include <vector>

#include "schedule/decisions.h"
#include "tensor_ir/ir.h"

namespace tw {
struct Target;
}

namespace tw::autotune {

struct Feature {
  std::string name;
  float value = 0;
};
using Features = std::vector<Feature>;

// Of all points of a Func: logarithms of its work, sizes and extents.  Shapes are constant.
Features task_features(const Func& func, const Target& target);
// Of one decision with this candidate: its numbers, and its predicted cost by the analytic choice's.
Features decision_features(const AskedDecision& asked, size_t candidate);
// Of a point, without those of its task.
Features point_features(const std::vector<AskedDecision>& asked, const std::vector<size_t>& chosen);
std::vector<size_t> chosen_of(const std::vector<AskedDecision>& asked);

// ln of the predicted time by that of the analytic choices: the prior.
double log_cost(const AskedDecision& asked, size_t candidate);
double log_cost(const std::vector<AskedDecision>& asked, const std::vector<size_t>& chosen);

// How far apart two tasks are: root mean square over the features that both have.
double distance(const Features& a, const Features& b);

// Rows of numbers, one a point, in the columns of a model (sorted by name); what a point lacks is not a number.  Made
// once for the decisions that a template asked, then each row is a few stores.
class RowEncoder {
 public:
  RowEncoder(const std::vector<std::string>& columns, const Features& task, const std::vector<AskedDecision>& asked);
  void encode(const std::vector<size_t>& chosen, float* row) const;

 private:
  struct Cell {
    size_t column;
    float value;
  };
  std::vector<float> start_;                           // the task's
  std::vector<std::vector<std::vector<Cell>>> cells_;  // by decision and candidate
  std::vector<std::vector<double>> costs_;
  std::vector<size_t> analytic_;
  long cost_column_ = -1, changed_column_ = -1;
};

}  // namespace tw::autotune
