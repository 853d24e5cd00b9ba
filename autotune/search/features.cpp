#include "autotune/search/features.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "relay_ir/cost.h"
#include "targets/target.h"
#include "tensor_ir/match.h"

namespace tw::autotune {
namespace {

constexpr char cost_name[] = "point.cost", changed_name[] = "point.changed";
constexpr size_t most_extents = 4;  // of the largest block, of each kind

float log_of(double number) {
  return static_cast<float>(std::log2(1 + std::max(number, 0.0)));
}

double bytes_of(const Buffer& buffer) {
  double bytes = buffer->dtype.bytes();
  for (const Expr& extent : buffer->shape) bytes *= static_cast<double>(as_int(extent).value_or(1));
  return bytes;
}

}  // namespace

Features task_features(const Func& func, const Target& target) {
  double inputs = 0, weights = 0, outputs = 0;
  for (const Buffer& buffer : func.buffers) {
    (func.is_output(buffer) ? outputs : buffer->is_constant ? weights : inputs) += bytes_of(buffer);
  }
  // The block with the most iterations.
  int blocks = 0;
  double most = 0;
  std::vector<double> spatial, reduce;
  visit(func.body, [&](const Block& block) {
    ++blocks;
    double iterations = 1;
    std::vector<double> extents[2];
    for (const IterVar& iter : block.iters) {
      const auto extent = static_cast<double>(as_int(iter.extent).value_or(1));
      iterations *= extent;
      extents[iter.kind == IterKind::reduce].push_back(extent);
    }
    if (iterations > most) most = iterations, spatial = extents[0], reduce = extents[1];
  });
  const auto flops = static_cast<double>(as_int(relay::flops_of(func)).value_or(0));
  Features features = {
      {"task.flops", log_of(flops)},
      {"task.input_bytes", log_of(inputs)},
      {"task.weight_bytes", log_of(weights)},
      {"task.output_bytes", log_of(outputs)},
      {"task.intensity", log_of(flops / std::max(1.0, inputs + weights + outputs))},
      {"task.blocks", static_cast<float>(blocks)},
      {"task.iterations", log_of(most)},
      {"task.bits", static_cast<float>(func.buffers.empty() ? 0 : func.buffers.back()->dtype.bits)},
      {"target.vector_bits", log_of(target.vector_bits)},
      {"target.vector_registers", log_of(target.vector_registers)},
      {"target.l1.bytes", log_of(static_cast<double>(target.l1.bytes))},
      {"target.l2.bytes", log_of(static_cast<double>(target.l2.bytes))},
      {"target.threads", log_of(target.threads)},
  };
  const auto add = [&](const std::string& name, std::vector<double> extents) {
    double all = 1;
    for (const double extent : extents) all *= extent;
    features.push_back({"task." + name, log_of(all)});
    std::stable_sort(extents.begin(), extents.end(), std::greater<>());
    for (size_t i = 0; i < std::min(extents.size(), most_extents); ++i)
      features.push_back({"task." + name + "_" + std::to_string(i), log_of(extents[i])});
  };
  add("spatial", spatial);
  add("reduce", reduce);
  return features;
}

double log_cost(const AskedDecision& asked, size_t candidate) {
  const double cost = asked.candidates[candidate].cost / asked.candidates[asked.analytic].cost;
  return std::isfinite(cost) && cost > 0 ? std::log(cost) : 0;
}

double log_cost(const std::vector<AskedDecision>& asked, const std::vector<size_t>& chosen) {
  double sum = 0;
  for (size_t i = 0; i < asked.size(); ++i) sum += log_cost(asked[i], chosen[i]);
  return sum;
}

Features decision_features(const AskedDecision& asked, size_t candidate) {
  Features features;
  const Choice& value = asked.candidates[candidate].value;
  double product = 1;
  for (size_t i = 0; i < value.size(); ++i) {
    features.push_back({asked.name + "." + std::to_string(i), log_of(static_cast<double>(value[i]))});
    product *= static_cast<double>(std::max<int64_t>(value[i], 1));
  }
  if (value.size() > 1) features.push_back({asked.name + ".product", log_of(product)});
  features.push_back({asked.name + ".cost", static_cast<float>(log_cost(asked, candidate))});
  return features;
}

std::vector<size_t> chosen_of(const std::vector<AskedDecision>& asked) {
  std::vector<size_t> chosen;
  for (const AskedDecision& a : asked) chosen.push_back(a.chosen);
  return chosen;
}

Features point_features(const std::vector<AskedDecision>& asked, const std::vector<size_t>& chosen) {
  Features features;
  int changed = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    for (Feature& feature : decision_features(asked[i], chosen[i])) features.push_back(std::move(feature));
    changed += chosen[i] != asked[i].analytic;
  }
  features.push_back({cost_name, static_cast<float>(log_cost(asked, chosen))});
  features.push_back({changed_name, static_cast<float>(changed)});
  return features;
}

double distance(const Features& a, const Features& b) {
  std::map<std::string, float> values;
  for (const Feature& feature : a) values[feature.name] = feature.value;
  double sum = 0;
  int both = 0;
  for (const Feature& feature : b) {
    const auto found = values.find(feature.name);
    if (found == values.end()) continue;
    const double difference = found->second - feature.value;
    sum += difference * difference;
    ++both;
  }
  // What only one of them has counts as a factor of four.
  const auto missing = static_cast<double>(a.size() + b.size() - 2 * static_cast<size_t>(both));
  return std::sqrt((sum + 4 * missing) / std::max(1.0, both + missing));
}

RowEncoder::RowEncoder(const std::vector<std::string>& columns, const Features& task,
                       const std::vector<AskedDecision>& asked)
    : start_(columns.size(), std::numeric_limits<float>::quiet_NaN()) {
  const auto column_of = [&](const std::string& name) {
    const auto found = std::lower_bound(columns.begin(), columns.end(), name);
    return found != columns.end() && *found == name ? found - columns.begin() : -1;
  };
  for (const Feature& feature : task)
    if (const long column = column_of(feature.name); column >= 0) start_[static_cast<size_t>(column)] = feature.value;
  cost_column_ = column_of(cost_name), changed_column_ = column_of(changed_name);
  for (const AskedDecision& a : asked) {
    cells_.emplace_back();
    costs_.emplace_back();
    analytic_.push_back(a.analytic);
    for (size_t c = 0; c < a.candidates.size(); ++c) {
      cells_.back().emplace_back();
      costs_.back().push_back(log_cost(a, c));
      for (const Feature& feature : decision_features(a, c)) {
        if (const long column = column_of(feature.name); column >= 0)
          cells_.back().back().push_back({static_cast<size_t>(column), feature.value});
      }
    }
  }
}

void RowEncoder::encode(const std::vector<size_t>& chosen, float* row) const {
  std::copy(start_.begin(), start_.end(), row);
  double cost = 0;
  int changed = 0;
  for (size_t i = 0; i < cells_.size(); ++i) {
    for (const Cell& cell : cells_[i][chosen[i]]) row[cell.column] = cell.value;
    cost += costs_[i][chosen[i]];
    changed += chosen[i] != analytic_[i];
  }
  if (cost_column_ >= 0) row[cost_column_] = static_cast<float>(cost);
  if (changed_column_ >= 0) row[changed_column_] = static_cast<float>(changed);
}

}  // namespace tw::autotune
