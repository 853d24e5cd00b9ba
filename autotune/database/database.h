// The database of tuned schedules: SQLite, rollback journal, synchronous=FULL.  What is committed is never lost.
//
// schema.sql documents the tables.  One job writes at a time; readers may come at any time.  A file that is no such
// database is Error(file).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/measure/measurement.h"
#include "tensor_ir/ir.h"

namespace tw::autotune {

// As the table.
struct Record {
  std::string digest;  // filled in by add
  std::string task, target;
  int64_t space = 0;
  std::string compiler, decisions, trace;
  double predicted = 0;
  std::string status, detail;
  std::vector<Sample> samples;
  double ratio = 0, ratio_low = 0, ratio_high = 0, ratio_to_default = 0;
  std::string machine;
  int64_t measured_at = 0;
};

struct Confirmation {
  std::string record, model;
  double ratio = 0;
  int64_t verdict = 1, measured_at = 0;
};

// One task of a job's network: what all groups that compute it do and take in a run with default schedules.
struct JobTask {
  std::string key, name;
  int64_t groups = 0;
  double seconds = 0, flops = 0, bytes = 0;
};

struct JobRow {
  std::string model, name, target;
  int64_t space = 0;
  std::string compiler;
  double seconds = 0;
  std::vector<JobTask> tasks;
  double peak_flops = 0, bandwidth = 0;
  std::string machine;
  double budget = 0;
  int64_t seed = 0, started_at = 0;
};

// The Func of a task's text.  In earlier versions attributes said which parameters are constant: attrs {constant:W =
// 1}.
Func parse_task(const std::string& text);

class Database {
 public:
  enum class Access { read, write };
  // `write` makes the file where there is none.
  Database(const std::filesystem::path& path, Access access);
  ~Database();
  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;

  // Each is committed when it returns; what is there already stays as it is.
  void add_target(const std::string& key, const std::string& facts);
  void add_task(const std::string& key, const std::string& func);
  void add(const JobRow& job);
  std::string add(const Record& record);  // its digest
  void add(const Confirmation& confirmation);

  // Of this task on exactly this target, by this version of the space and build of the compiler; in the order of their
  // digests.
  std::vector<Record> records(const std::string& target, const std::string& task, int64_t space,
                              const std::string& compiler) const;
  // Of all tasks on this target, by whatever version of the space and build of the compiler; in the order of tasks.
  std::vector<Record> records(const std::string& target) const;
  std::string func_text(const std::string& task) const;  // empty: it is not there
  // Those that a network has confirmed: of each task the fastest.
  std::vector<Record> winners(const std::string& target, int64_t space, const std::string& compiler) const;
  // The tasks that have one on this target, by whatever version of the space and build of the compiler.
  std::vector<std::string> tasks_with_winners(const std::string& target) const;

  // For people.
  struct Summary {
    int64_t targets = 0, tasks = 0, jobs = 0, records = 0, confirmations = 0;
    std::vector<std::pair<std::string, int64_t>> by_status;
  };
  Summary summary() const;
  // Every row as one line of JSON, in the order of keys.
  void export_lines(const std::function<void(const std::string&)>& line) const;
  // The union of both; how many rows were new.  A file is a database or lines of JSON.  All or nothing.
  int64_t merge(const std::filesystem::path& other);
  // What is wrong with the file or its rows.
  std::vector<std::string> verify() const;
  // Removes what this space and compiler cannot use, and tasks and targets without records; how many rows.
  int64_t prune(int64_t space, const std::string& compiler);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tw::autotune
