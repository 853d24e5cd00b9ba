// Confirmation: what was faster alone is adopted only where the network is no slower with it.
//
// In the network a kernel meets other caches and neighbours than alone, so first each proposal is judged by the time of
// its own steps in runs of the whole network, and those that are not faster there are left out.  What remains is
// adopted together if the network is no slower with it, and otherwise by the better half.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autotune/database/database.h"
#include "autotune/measure/measure.h"
#include "relay_ir/compile/compile.h"
#include "runtime/executable.h"

namespace tw::autotune {

struct Proposal {
  Record record;
  double gain = 0;  // seconds of a run, expected
};

struct ConfirmationRound {
  size_t records = 0;
  Ratio ratio;         // network with them by network without
  std::string detail;  // how its outputs differ, or what was not faster in it
  bool is_adopted = false;
  std::vector<Record> slower;  // what is left out, where that made the network slower beyond doubt
};

struct Confirming {
  std::function<Executable(const std::vector<Record>&)> compile;
  std::function<std::string(Executable&)> find_difference;                 // of its outputs; empty: none
  std::function<std::map<std::string, Ratio>(Executable&)> compare_tasks;  // with by without, by task, in the network
  std::function<Ratio(Executable&)> compare;                               // of the whole network
  std::function<bool()> has_time;                                          // for another round
  std::function<void(const ConfirmationRound&)> on_round;
};

// The records that were adopted, after the rounds that were reported.
std::vector<Record> confirm(std::vector<Proposal> proposals, const Confirming& with);

// Zeros for integers, which index anything, and made-up floats, for a network's inputs.
std::vector<NDArray> made_up_inputs(const Plan& plan, uint64_t seed);
// Runs both in turn for about so many seconds.  A sample is two runs of each, of which each goes first once.
std::vector<Sample> time_networks(Executable& with, Executable& without, const std::vector<NDArray>& inputs,
                                  double seconds);
// Seconds that the steps of a name took in one run, from when the first worker began to when the last ended.
std::map<std::string, double> seconds_of_steps(Executable& executable, const std::vector<NDArray>& inputs);

// Two networks within runs of both in turn: what their steps take together, by what they count for.
struct StepComparison {
  std::map<std::string, std::string> with, without;  // what a step of this name counts for; others do not count
  std::function<std::map<std::string, double>(Executable&)> time_steps;
  int rounds = 8;      // at least, of a run of each
  double seconds = 0;  // at least
};
std::map<std::string, std::vector<Sample>> compare_steps(Executable& with, Executable& without,
                                                         const StepComparison& comparison);

}  // namespace tw::autotune
