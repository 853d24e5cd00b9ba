// What passes of the graph leave open (relay_ir/decision.h), tried in variants of the whole network.
//
// A variant makes every decision in another way at once, so there are as few of them as one decision has candidates.
// What a choice costs is what it changes: its nodes' own steps, and those around them that come, go or become other
// kernels with it, such as conversions of layouts and what is fused elsewhere.  Such a step counts for the node that
// stands before it.  The whole network has the last word (confirm.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autotune/confirm.h"
#include "autotune/database/database.h"
#include "autotune/task.h"
#include "relay_ir/compile/compile.h"

namespace tw::autotune {

class GraphDecisions {
 public:
  // `decisions` and `profile`: of the network as analysis makes it.  Of shapes that are not constant nothing is tried.
  GraphDecisions(const std::vector<relay::GraphDecision>& decisions, const std::vector<StepProfile>& profile);

  // Equal nodes are one task; its seconds are of their own steps.
  std::vector<Task> tasks() const;
  // What was measured, now or before, of one of the tasks.
  void note(const Record& record);
  int count() const;                         // of records that were noted
  int count(const std::string& task) const;  // of one task
  const Task& task(const std::string& key) const { return open_.at(key).task; }
  double best(const std::string& task) const;  // least time by that of the analytic choice; 1: nothing was faster
  // For each variant what it does otherwise, the most promising first: records that nothing was measured of.
  std::vector<std::vector<Record>> variants() const;
  // Of each task the fastest that was faster than what analysis prefers.
  std::vector<Proposal> proposals() const;

 private:
  struct Open {
    Task task;
    std::vector<Record> alternatives;     // the one with the least predicted time first
    std::map<std::string, Record> tried;  // by decisions
    const Record* fastest() const;        // null: nothing was faster than the analytic choice
  };
  std::map<std::string, Open> open_;  // by task
};

// Which steps of a network, by name, count for which task of these records where it is compared with another network.
std::map<std::string, std::string> steps_of_decisions(const Plan& plan,
                                                      const std::vector<relay::GraphDecision>& decisions,
                                                      const Plan& other, const std::vector<Record>& choices);

}  // namespace tw::autotune
