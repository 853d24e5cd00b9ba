#include "autotune/database/tuned_source.h"

#include <mutex>

#include "autotune/search/space.h"
#include "autotune/task.h"

namespace tw::autotune {

struct TunedSchedules::State {
  std::map<std::string, Record> records;  // by task
  std::set<std::string> outdated;         // tasks that have records by another build or version of the space only
  std::mutex mutex;
  std::map<std::string, Use> uses;
};

TunedSchedules::TunedSchedules(std::vector<Record> records) : state_(std::make_shared<State>()) {
  for (Record& record : records) {
    const std::string task = record.task;
    state_->records.emplace(task, std::move(record));
  }
}

TunedSchedules::TunedSchedules(const Database& database, const Target& target, int threads)
    : TunedSchedules(database.winners(target_key(target, threads), space_version, compiler_key())) {
  for (const std::string& task : database.tasks_with_winners(target_key(target, threads)))
    if (state_->records.count(task) == 0) state_->outdated.insert(task);
}

const Record* TunedSchedules::find(const std::string& key) const {
  const auto found = state_->records.find(key);
  if (found != state_->records.end()) return &found->second;
  if (state_->outdated.count(key) > 0) note(key, Use::stale);
  return nullptr;
}

void TunedSchedules::note(const std::string& key, Use use) const {
  const std::lock_guard lock(state_->mutex);
  Use& noted = state_->uses.try_emplace(key, use).first->second;
  if (use == Use::record) noted = use;
}

Schedule TunedSchedules::operator()(const Func& func, const Target& target) const {
  const std::string key = task_key(func);
  const Record* found = find(key);
  if (!found || !target.decided_schedule) return target.default_schedule(func, target);
  try {
    Schedule schedule = target.decided_schedule(func, target, parse_decisions(found->decisions));
    if (to_text(schedule.trace()) == found->trace) {
      note(key, Use::record);
      return schedule;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::schedule && error.code() != ErrorCode::text) throw;
  }
  note(key, Use::stale);
  return target.default_schedule(func, target);
}

Choice TunedSchedules::decide(const relay::GraphDecision& decision) const {
  const AskedDecision& asked = decision.asked;
  const std::string key = task_key(decision.func);
  const Record* found = find(key);
  if (!found) return asked.candidates[asked.analytic].value;
  for (const Candidate& candidate : asked.candidates) {
    if (to_text(Decisions{{asked.name, candidate.value}}) != found->decisions) continue;
    note(key, Use::record);
    return candidate.value;
  }
  note(key, Use::stale);
  return asked.candidates[asked.analytic].value;
}

std::map<std::string, TunedSchedules::Use> TunedSchedules::uses() const {
  const std::lock_guard lock(state_->mutex);
  return state_->uses;
}

std::set<std::string> TunedSchedules::machines() const {
  std::set<std::string> names;
  for (const auto& [key, use] : uses())
    if (use == Use::record) names.insert(state_->records.at(key).machine);
  return names;
}

}  // namespace tw::autotune
