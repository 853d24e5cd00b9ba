// A tuning job: tries what passes of the graph leave open about a network, finds the tasks of the network as it is
// fastest, tries candidates for them within a budget, and adopts what makes the network faster.  What was tried is in
// the database when the next candidate starts; the same call goes on from there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autotune/database/database.h"
#include "autotune/measure/measure.h"
#include "autotune/search/search.h"
#include "relay_ir/compile/compile.h"
#include "schedule/decisions.h"

namespace tw::autotune {

class Fleet;

struct TuneOptions {
  relay::CompileOptions compile;  // of the network; `schedule` and `decide` are the job's own
  bool choices = true;            // whether choices of the network are tried, too
  double budget_seconds = 600;    // by the clock
  uint64_t seed = 0;
  Strategy strategy = Strategy::search;
  int most_tasks = 0;                     // those that take the longest; 0: all
  std::vector<std::string> only_tasks;    // by their keys (task.h); none: all
  int most_trials = 64;                   // of a task, over all jobs of this database
  std::filesystem::path measure_program;  // tw-measure
  Fleet* fleet = nullptr;  // measures instead of this machine, as many candidates at once as it has devices
  // One line of JSON for each: start, choices_skipped, tasks, trial, skipped, final, confirmation, end.
  std::function<void(const std::string&)> on_event;
  std::function<bool()> is_stopping;   // asked after each candidate: true goes on to the confirmation
  std::function<bool()> is_cancelled;  // asked while a candidate runs: true ends the job with Error(input)

  // What tests put something predictable in the place of.
  std::function<void(const Decisions&)> on_compile;  // in the process that compiles
  std::function<double()> now;                       // seconds
  std::function<Measurement(const MeasureRequest&)> measure_candidate;
  std::function<std::vector<StepProfile>(Executable&)> profile;  // of the network with default schedules
  // What the machine can do at most, for the job's row; asked where the budget is worth it.
  struct Bounds {
    double peak_flops = 0, bandwidth = 0;  // f32 operations and bytes read a second, by all workers
  };
  std::function<Bounds()> measure_bounds;
  // Latency of the network with proposals by that without; kernels are not judged one by one then.
  std::function<Ratio(Executable& with, Executable& without)> compare_networks;
  // What steps of a network take in a run, by name, in any one unit: with other choices and by analysis, in turn.
  std::function<std::map<std::string, double>(Executable&)> time_steps;
  // Where a network does not compute what the one by analysis does; empty: nowhere.
  std::function<std::string(Executable&)> find_difference;
};

struct TuneReport {
  int tasks = 0, trials = 0, finals = 0;  // of this job
  std::map<std::string, int> by_status;   // of them
  int adopted = 0;                        // records in the network now
  int choices = 0;                        // of them: of the network; the others are schedules
  double ratio = 1;                       // network with them by network by analysis alone
  double default_seconds = 0;             // of a run of the latter
  bool was_stopped = false;
  std::vector<std::string> skipped;  // tasks that cannot be measured, with the reason
};

// Error(target) when this machine, or the fleet's, cannot run code for the target.  Error(device) when no device is
// left.
TuneReport tune(const relay::Graph& graph, const Target& target, Database& database, const TuneOptions& options);

// All of them, as many at the same time as there are devices, with each result as it comes.
void measure_all(const TuneOptions& options, const std::vector<MeasureRequest>& requests,
                 const std::function<void(size_t index, const Measurement& measured)>& on_result);
int measured_at_once(const TuneOptions& options);
Measurement measure_one(const TuneOptions& options, const MeasureRequest& request);

}  // namespace tw::autotune
