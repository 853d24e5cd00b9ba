#include "autotune/graph_decisions.h"

#include <algorithm>
#include <set>

#include "autotune/search/space.h"
#include "autotune/trials.h"

namespace tw::autotune {

GraphDecisions::GraphDecisions(const std::vector<relay::GraphDecision>& decisions,
                               const std::vector<StepProfile>& profile) {
  for (const relay::GraphDecision& decision : decisions) {
    if (!has_constant_shapes(decision.func)) continue;
    const AskedDecision& asked = decision.asked;
    const std::string key = task_key(decision.func);
    const auto [found, is_new] = open_.try_emplace(key);
    Open& open = found->second;
    if (is_new) open.task = {key, asked.name + " of " + decision.node, decision.func};
    ++open.task.groups;
    for (const StepProfile& step : profile)
      if (step.name == decision.group) open.task.seconds += step.seconds;
    // Of equal nodes one may have weights that leave it more candidates.
    for (const Candidate& candidate : asked.candidates) {
      Record record;
      record.task = key, record.space = space_version;
      record.decisions = to_text(Decisions{{asked.name, candidate.value}});
      record.predicted = candidate.cost / asked.candidates[asked.analytic].cost;
      const bool is_known = std::any_of(open.alternatives.begin(), open.alternatives.end(),
                                        [&](const Record& known) { return known.decisions == record.decisions; });
      if (candidate.value != asked.candidates[asked.analytic].value && !is_known)
        open.alternatives.push_back(std::move(record));
    }
    std::stable_sort(open.alternatives.begin(), open.alternatives.end(),
                     [](const Record& a, const Record& b) { return a.predicted < b.predicted; });
  }
}

std::vector<Task> GraphDecisions::tasks() const {
  std::vector<Task> tasks;
  for (const auto& [key, open] : open_) tasks.push_back(open.task);
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.seconds > b.seconds; });
  return tasks;
}

void GraphDecisions::note(const Record& record) {
  open_.at(record.task).tried[record.decisions] = record;
}

int GraphDecisions::count() const {
  int count = 0;
  for (const auto& [key, open] : open_) count += static_cast<int>(open.tried.size());
  return count;
}

int GraphDecisions::count(const std::string& task) const {
  return static_cast<int>(open_.at(task).tried.size());
}

std::vector<std::vector<Record>> GraphDecisions::variants() const {
  std::vector<std::vector<Record>> variants;
  for (const auto& [key, open] : open_) {
    size_t variant = 0;
    for (const Record& alternative : open.alternatives) {
      if (open.tried.count(alternative.decisions)) continue;
      if (variants.size() == variant) variants.emplace_back();
      variants[variant++].push_back(alternative);
    }
  }
  return variants;
}

const Record* GraphDecisions::Open::fastest() const {
  const Record* fastest = nullptr;
  for (const auto& [decisions, record] : tried)
    if (is_faster(record) && (!fastest || record.ratio_to_default < fastest->ratio_to_default)) fastest = &record;
  return fastest;
}

double GraphDecisions::best(const std::string& task) const {
  const Record* fastest = open_.at(task).fastest();
  return fastest ? fastest->ratio_to_default : 1;
}

std::vector<Proposal> GraphDecisions::proposals() const {
  std::vector<Proposal> proposals;
  for (const auto& [key, open] : open_)
    if (const Record* fastest = open.fastest())
      proposals.push_back({*fastest, open.task.seconds * (1 - fastest->ratio_to_default)});
  return proposals;
}

std::map<std::string, std::string> steps_of_decisions(const Plan& plan,
                                                      const std::vector<relay::GraphDecision>& decisions,
                                                      const Plan& other, const std::vector<Record>& choices) {
  const auto kernels_by_name = [](const Plan& of) {
    std::map<std::string, std::multiset<std::string>> kernels;
    for (const Step& step : of.steps) kernels[step.name].insert(step.kernel);
    return kernels;
  };
  const auto ours = kernels_by_name(plan), theirs = kernels_by_name(other);
  std::map<std::string, std::string> own;  // group → task
  for (const relay::GraphDecision& decision : decisions) {
    const std::string key = task_key(decision.func);
    if (std::any_of(choices.begin(), choices.end(), [&](const Record& choice) { return choice.task == key; }))
      own[decision.group] = key;
  }
  std::map<std::string, std::string> counts_for;
  std::vector<std::string> before_all;
  const std::string* last = nullptr;
  for (const Step& step : plan.steps) {
    const auto task = own.find(step.name);
    const auto same = theirs.find(step.name);
    if (task != own.end()) {
      last = &task->second;
      for (const std::string& name : before_all) counts_for[name] = *last;
      before_all.clear();
    } else if (same != theirs.end() && ours.at(step.name) == same->second) {
      continue;
    }
    if (last) {
      counts_for[step.name] = *last;
    } else {
      before_all.push_back(step.name);
    }
  }
  return counts_for;
}

}  // namespace tw::autotune
