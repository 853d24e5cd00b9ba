// Schedules and choices of the network from the database: a record of exactly this task on exactly this target, by this
// space and compiler, that a network has confirmed; otherwise the target's default and what analysis prefers.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "autotune/database/database.h"
#include "relay_ir/decision.h"
#include "schedule/source.h"

namespace tw::autotune {

class TunedSchedules {
 public:
  // `threads`: of the run.  Reads the database once.
  TunedSchedules(const Database& database, const Target& target, int threads);
  // Of given records, one a task: what a search proposes.
  explicit TunedSchedules(std::vector<Record> records);

  // For several threads at once.  A record whose decisions no longer make the schedule that was measured is not used.
  Schedule operator()(const Func& func, const Target& target) const;
  ScheduleSource source() const {
    return [*this](const Func& func, const Target& target) { return (*this)(func, target); };
  }
  // A record whose choice is no candidate any more is not used.
  Choice decide(const relay::GraphDecision& decision) const;
  relay::DecisionSource decisions() const {
    return [*this](const relay::GraphDecision& decision) { return decide(decision); };
  }

  // By task key: what has been asked for so far.  Copies share it.  A record that served one of several nodes is used;
  // stale is one that fits no longer, or that another build or version of the space has made.
  enum class Use { record, stale };
  std::map<std::string, Use> uses() const;
  std::set<std::string> machines() const;  // by name, which measured the records that are used

 private:
  const Record* find(const std::string& key) const;  // null: the default it is
  void note(const std::string& key, Use use) const;

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tw::autotune
