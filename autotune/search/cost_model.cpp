#include "autotune/search/cost_model.h"

#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "runtime/error.h"

namespace tw::autotune {
namespace {

constexpr int tree_count = 40;
constexpr double linear_beyond = 0.18;  // ln 1.2
constexpr double fast_within = 0.3;     // rows that are slower than their task's fastest by e^this weigh 1/e as much
constexpr size_t rows_at_once = 8192;   // of a prediction

void checked(int status) {
  if (status != 0) throw Error(ErrorCode::internal, std::string("XGBoost: ") + XGBGetLastError());
}

class Matrix {
 public:
  Matrix(const std::vector<float>& values, size_t rows, size_t columns) {
    checked(
        XGDMatrixCreateFromMat_omp(values.data(), rows, columns, std::numeric_limits<float>::quiet_NaN(), &handle_, 1));
  }
  ~Matrix() { XGDMatrixFree(handle_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  DMatrixHandle handle() const { return handle_; }

 private:
  DMatrixHandle handle_ = nullptr;
};

class Booster {
 public:
  // What it learned for the rows of the matrix is kept from tree to tree.
  explicit Booster(const Matrix& training) {
    const DMatrixHandle matrix = training.handle();
    checked(XGBoosterCreate(&matrix, 1, &handle_));
    constexpr std::pair<const char*, const char*> parameters[] = {
        {"booster", "gbtree"}, {"tree_method", "exact"}, {"nthread", "1"},   {"verbosity", "0"},
        {"seed", "0"},         {"eta", "0.15"},          {"max_depth", "4"}, {"min_child_weight", "2"},
        {"lambda", "2"},       {"base_score", "0"}};
    for (const auto& [name, value] : parameters) checked(XGBoosterSetParam(handle_, name, value));
  }
  ~Booster() { XGBoosterFree(handle_); }
  Booster(const Booster&) = delete;
  Booster& operator=(const Booster&) = delete;

  void boost(const Matrix& matrix, std::vector<float>& gradient, std::vector<float>& hessian) {
    checked(XGBoosterBoostOneIter(handle_, matrix.handle(), gradient.data(), hessian.data(), gradient.size()));
  }
  std::vector<float> predict(const Matrix& matrix) const {
    bst_ulong count = 0;
    const float* values = nullptr;
    constexpr int margin = 1;
    checked(XGBoosterPredict(handle_, matrix.handle(), margin, 0, 0, &count, &values));
    return {values, values + count};
  }

 private:
  BoosterHandle handle_ = nullptr;
};

// First and behind the last row of each task.
std::vector<std::pair<size_t, size_t>> groups_of(const std::vector<TrainingRow>& rows) {
  std::vector<std::pair<size_t, size_t>> groups;
  for (size_t first = 0, last; first < rows.size(); first = last) {
    for (last = first + 1; last < rows.size() && rows[last].task == rows[first].task;) ++last;
    groups.emplace_back(first, last);
  }
  return groups;
}

}  // namespace

struct CostModel::State {
  State(std::vector<std::string> columns, const Matrix& training) : columns(std::move(columns)), booster(training) {}
  std::vector<std::string> columns;  // sorted
  Booster booster;
};

CostModel::CostModel() = default;
CostModel::~CostModel() = default;
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;

bool CostModel::is_trained() const {
  return state_ != nullptr;
}

void CostModel::train(std::vector<TrainingRow> rows) {
  state_.reset();
  const auto order = [](const TrainingRow& row) { return std::tie(row.task, row.point, row.log_ratio); };
  std::sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  const auto groups = groups_of(rows);
  if (std::none_of(groups.begin(), groups.end(), [](const auto& g) { return g.second - g.first > 1; })) return;

  std::set<std::string> names;
  for (const TrainingRow& row : rows)
    for (const Feature& feature : row.features) names.insert(feature.name);
  const std::vector<std::string> columns(names.begin(), names.end());
  std::vector<float> values(rows.size() * columns.size(), std::numeric_limits<float>::quiet_NaN());
  for (size_t r = 0; r < rows.size(); ++r) {
    for (const Feature& feature : rows[r].features) {
      const auto column = std::lower_bound(columns.begin(), columns.end(), feature.name);
      values[r * columns.size() + static_cast<size_t>(column - columns.begin())] = feature.value;
    }
  }
  const Matrix matrix(values, rows.size(), columns.size());
  auto state = std::make_unique<State>(columns, matrix);
  std::vector<double> weights(rows.size());
  for (const auto& [first, last] : groups) {
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = first; i < last; ++i) least = std::min(least, rows[i].log_ratio);
    for (size_t i = first; i < last; ++i) weights[i] = std::exp((least - rows[i].log_ratio) / fast_within);
  }
  std::vector<float> gradient(rows.size()), hessian(rows.size());
  for (int tree = 0; tree < tree_count; ++tree) {
    const std::vector<float> learned = tree ? state->booster.predict(matrix) : std::vector<float>(rows.size());
    for (const auto& [first, last] : groups) {
      for (size_t i = first; i < last; ++i) {
        double pull = 0, weight = 0;
        for (size_t j = first; j < last; ++j) {
          if (i == j) continue;
          const double predicted = learned[i] + rows[i].log_cost - learned[j] - rows[j].log_cost;
          const double w = std::max(weights[i], weights[j]);
          pull += w * std::clamp(predicted - (rows[i].log_ratio - rows[j].log_ratio), -linear_beyond, linear_beyond);
          weight += w;
        }
        // Each row as much as its own weight says, however many it is compared with.
        const double share = weight > 0 ? (0.2 + weights[i]) / weight : 0;
        gradient[i] = static_cast<float>(pull * share);
        hessian[i] = static_cast<float>(weight * share);
      }
    }
    state->booster.boost(matrix, gradient, hessian);
  }
  state_ = std::move(state);
}

std::vector<double> CostModel::predict(const Features& task, const std::vector<AskedDecision>& asked,
                                       const std::vector<std::vector<size_t>>& points) const {
  std::vector<std::vector<double>> costs;
  for (const AskedDecision& a : asked) {
    costs.emplace_back();
    for (size_t c = 0; c < a.candidates.size(); ++c) costs.back().push_back(log_cost(a, c));
  }
  std::vector<double> predicted(points.size(), 0.0);
  for (size_t p = 0; p < points.size(); ++p)
    for (size_t i = 0; i < asked.size(); ++i) predicted[p] += costs[i][points[p][i]];
  if (!state_) return predicted;
  const RowEncoder encoder(state_->columns, task, asked);
  const size_t width = state_->columns.size();
  std::vector<float> values;
  for (size_t first = 0; first < points.size(); first += rows_at_once) {
    const size_t count = std::min(rows_at_once, points.size() - first);
    values.resize(count * width);
    for (size_t p = 0; p < count; ++p) encoder.encode(points[first + p], &values[p * width]);
    const std::vector<float> learned = state_->booster.predict(Matrix(values, count, width));
    for (size_t p = 0; p < count; ++p) predicted[first + p] += learned[p];
  }
  return predicted;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  check(a.size() == b.size(), "rank_correlation: as many of each");
  const size_t n = a.size();
  const auto ranks_of = [n](const std::vector<double>& values) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return values[i] < values[j]; });
    std::vector<double> ranks(n);
    for (size_t first = 0, last; first < n; first = last) {
      for (last = first + 1; last < n && values[order[last]] == values[order[first]];) ++last;
      for (size_t i = first; i < last; ++i) ranks[order[i]] = static_cast<double>(first + last - 1) / 2;
    }
    return ranks;
  };
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = (static_cast<double>(n) - 1) / 2;
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < n; ++i) {
    xx += (x[i] - mean) * (x[i] - mean), yy += (y[i] - mean) * (y[i] - mean);
    xy += (x[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace tw::autotune
