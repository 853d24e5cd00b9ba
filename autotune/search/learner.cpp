#include "autotune/search/learner.h"

#include <algorithm>
#include <cmath>

#include "autotune/task.h"

namespace tw::autotune {
namespace {

// Templates run for the rows of neighbours, at a millisecond or so each.
constexpr size_t most_neighbour_rows = 800, most_rows_a_neighbour = 40;
constexpr size_t priors_of_older_records = 3, neighbours_asked = 3;
constexpr double nearest_fit = 3;  // beyond this distance (powers of two a feature) a task is none like this

bool has_time(const Record& record) {
  return record.status == "ok" && record.ratio_to_default > 0;
}

// Their decisions, the fastest first, each once.
std::vector<Decisions> fastest_of(std::vector<Record> records, size_t most) {
  std::erase_if(records, [](const Record& r) { return !has_time(r) || r.ratio_to_default >= 1; });
  std::stable_sort(records.begin(), records.end(),
                   [](const Record& a, const Record& b) { return a.ratio_to_default < b.ratio_to_default; });
  std::vector<Decisions> fastest;
  for (const Record& record : records) {
    if (fastest.size() >= most) break;
    Decisions decisions = parse_decisions(record.decisions);
    if (std::find(fastest.begin(), fastest.end(), decisions) == fastest.end()) fastest.push_back(std::move(decisions));
  }
  return fastest;
}

}  // namespace

Learner::Learner(const Database& database, const Target& target, const std::string& target_key,
                 const std::vector<std::string>& own_tasks) {
  std::map<std::string, std::vector<Record>> by_task;
  for (Record& record : database.records(target_key)) by_task[record.task].push_back(std::move(record));
  for (auto& [task, records] : by_task) {
    if (std::find(own_tasks.begin(), own_tasks.end(), task) != own_tasks.end()) {
      std::erase_if(records, [](const Record& r) { return r.space == space_version && r.compiler == compiler_key(); });
      if (!records.empty()) older_[task] = fastest_of(std::move(records), priors_of_older_records);
      continue;
    }
    const Func func = parse_task(database.func_text(task));
    if (relay::is_of_decision(func)) continue;
    Neighbour neighbour{task_features(func, target), fastest_of(records, 1)};
    // Rows of another version might mean another schedule.
    std::erase_if(records, [](const Record& r) { return r.space != space_version; });
    const Space space(func, target);
    size_t taken = 0;
    for (const Record& record : records) {
      if (rows_.size() >= most_neighbour_rows || taken >= most_rows_a_neighbour) break;
      const auto point = space.visit(parse_decisions(record.decisions));
      if (!point) continue;
      rows_.push_back(row_of(task, neighbour.features, *point,
                             has_time(record) ? std::optional(std::log(record.ratio_to_default)) : std::nullopt));
      ++taken;
    }
    neighbours_[task] = std::move(neighbour);
  }
}

void Learner::attach(const std::string& task, const Search& search) {
  searches_[task] = &search;
}

std::vector<Decisions> Learner::priors(const std::string& task, const Search& search) const {
  std::vector<Decisions> priors;
  if (const auto older = older_.find(task); older != older_.end()) priors = older->second;
  std::vector<std::pair<double, Decisions>> near;
  const auto add = [&](const Features& features, const Decisions& fastest) {
    const double far = distance(search.features(), features);
    if (far < nearest_fit) near.emplace_back(far, fastest);
  };
  for (const auto& [key, neighbour] : neighbours_)
    if (!neighbour.fastest.empty()) add(neighbour.features, neighbour.fastest[0]);
  for (const auto& [key, other] : searches_)
    if (key != task && other->fastest()) add(other->features(), other->fastest()->decisions);
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < std::min(near.size(), neighbours_asked); ++i) priors.push_back(near[i].second);
  return priors;
}

const CostModel& Learner::model() {
  int points = 0;
  for (const auto& [task, search] : searches_) points += search->count();
  if (points == trained_with_) return model_;
  trained_with_ = points;
  std::vector<TrainingRow> rows = rows_;
  for (const auto& [task, search] : searches_)
    for (TrainingRow& row : search->rows(task)) rows.push_back(std::move(row));
  model_.train(std::move(rows));
  return model_;
}

}  // namespace tw::autotune
