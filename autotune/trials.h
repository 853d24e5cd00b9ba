// The trials of one task: its search, what was tried of it, the fastest so far, and the final between the leaders.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>

#include "autotune/search/allocate.h"
#include "autotune/search/search.h"
#include "autotune/standalone.h"
#include "autotune/task.h"
#include "autotune/tune.h"
#include "targets/compile_image.h"

namespace tw::autotune {

// The detail of a record of a final.  It has the decisions of an earlier record, was measured for longer and beside the
// default itself: the fastest of many measurements is fast by luck, too.
inline constexpr char final_detail[] = "final";

// Faster than the default beyond doubt, and by enough to matter.
bool is_faster(const Record& record);
// What was measured beside an incumbent, which takes so many times the default's time.
void set_ratio(Record& record, const Measurement& measured, double incumbent_to_default);

class Trials {
 public:
  // `folder`: for artifacts, one job's own.  `earlier`: the records of this task, space and compiler.  `bound`: as in
  // TaskState.
  Trials(Task task, const Target& target, const TuneOptions& options, std::vector<Record> earlier,
         std::filesystem::path folder, double bound);

  const Task& task() const { return task_; }
  Search& search() { return *search_; }
  const Search& search() const { return *search_; }
  int count() const { return count_; }
  const std::string& problem() const { return problem_; }  // why it cannot be measured
  // The fastest record that is faster than the default beyond doubt.
  const std::optional<Record>& best() const { return best_; }
  // What more trials may bring to the network, in seconds a run.
  double promise() const;
  bool is_done() const { return promise() <= 0; }

  // Asks the search for its next points, and says whether there are any.
  bool begin_batch(const CostModel& model);
  bool is_in_batch() const { return !batch_.empty() || !ready_.empty() || lost_; }
  // The next point of the batch, tried; nothing when the task cannot be measured.  The record is without its target,
  // compiler and time; with them, it is to be noted.
  std::optional<Record> next();
  void note(const Record& record);

  // Points of the final that have not been measured in one, and the next of them, measured for so long.
  int count_finalists() const { return static_cast<int>(finalists().size()); }
  std::optional<Record> next_final(double seconds);
  // The winner of the final, where it beat the default.
  std::optional<Record> proposal() const;

 private:
  struct Built {
    Point point;
    std::optional<Schedule> schedule;
    bool is_built = false;
    std::filesystem::path file;  // empty: the record says why
    Record record;
  };
  bool prepare();
  std::string check_default(const std::vector<std::vector<NDArray>>& outputs) const;
  Executable build(const Decisions& decisions, CodegenReport* report) const;
  void build(Built& candidate, const std::function<bool()>& is_cancelled) const;
  void build_ahead();
  void measure_some();
  std::filesystem::path new_file() const { return folder_ / (task_.key + "." + std::to_string(files_++) + ".twa"); }
  MeasureRequest request_for(const std::filesystem::path& candidate, const std::filesystem::path& incumbent) const;
  std::vector<const Record*> finalists() const;

  Task task_;
  const Target& target_;
  const TuneOptions& options_;
  std::filesystem::path folder_, default_, incumbent_;
  std::unique_ptr<Space> space_;
  std::unique_ptr<Search> search_;
  std::deque<Built> batch_;
  std::deque<Record> ready_;                      // of the batch, measured
  std::exception_ptr lost_;                       // what ended measuring, once those are taken
  std::map<std::string, Record> tried_, finals_;  // those with times, by decisions
  std::optional<Record> best_;
  double incumbent_to_default_ = 1, bound_ = 0;
  int count_ = 0;
  mutable std::atomic<int> files_ = 0;
  bool is_prepared_ = false, is_exhausted_ = false;
  std::string problem_;
  // Once prepared.
  std::vector<std::vector<NDArray>> buffers_, expected_;  // by set
  Padding padding_;                                       // of what is expected
  Plan plan_;
  int default_spills_ = 0;
};

}  // namespace tw::autotune
