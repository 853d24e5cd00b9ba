// The trials of one task: its space, what was tried of it, and the fastest so far.
#pragma once

#include <memory>
#include <optional>
#include <set>

#include "autotune/space.h"
#include "autotune/task.h"
#include "autotune/tune.h"
#include "targets/compile_image.h"

namespace tw::autotune {

class Trials {
 public:
  // `folder`: for artifacts, one job's own.  `earlier`: the records of this task, space and compiler.
  Trials(Task task, const Target& target, const TuneOptions& options, std::vector<Record> earlier,
         std::filesystem::path folder);

  const Task& task() const { return task_; }
  int count() const { return count_; }
  bool is_done() const { return is_exhausted_ || !problem_.empty() || count_ >= options_.most_trials; }
  const std::string& problem() const { return problem_; }  // why it cannot be measured
  // The fastest record that is faster than the default beyond doubt.
  const std::optional<Record>& best() const { return best_; }
  // What one more trial may bring to the network, in seconds a run: less with each trial that brought nothing.
  double promise() const { return is_done() ? 0 : task_.seconds / (4 + fruitless_); }

  // The next point that has not been tried; nothing when there is none, or the task cannot be measured.  The record is
  // without its target, compiler and time; with them, it is to be noted.
  std::optional<Record> next();
  void note(const Record& record);

 private:
  void prepare();
  std::string check_default(const std::vector<std::vector<NDArray>>& outputs) const;
  Executable build(const Decisions& decisions, CodegenReport* report) const;
  void make_incumbent(const Executable& executable, double to_default);
  Record try_point(const Point& point);

  Task task_;
  const Target& target_;
  const TuneOptions& options_;
  std::filesystem::path folder_, incumbent_;
  Space space_;
  std::set<std::string> tried_;  // decisions
  std::optional<Record> best_;
  double incumbent_to_default_ = 1;
  int count_ = 0, fruitless_ = 0;
  bool is_prepared_ = false, is_exhausted_ = false;
  std::string problem_;
  // Once prepared.
  std::vector<std::vector<NDArray>> buffers_, expected_;  // by set
  Plan plan_;
  int default_spills_ = 0;
};

}  // namespace tw::autotune
