// Jobs with a clock, a measurer and a comparison that are predictable: what is tried, kept, adopted and gone on with.
#include <gtest/gtest.h>

#include <set>

#include "autotune/space.h"
#include "autotune/task.h"
#include "autotune/tune.h"
#include "autotune/tuned_source.h"
#include "tests/unit/autotune_job.h"

namespace tw::autotune {
namespace {

using test::caught;
using Access = Database::Access;
using test::network;
using Tuning = test::TuningJob;

TEST_F(Tuning, adopts_what_makes_the_network_faster) {
  const TuneReport report = run();
  EXPECT_GE(report.tasks, 2);
  EXPECT_EQ(report.trials, count_records());
  EXPECT_GT(report.adopted, 0);
  EXPECT_EQ(report.ratio, 0.9);
  EXPECT_TRUE(report.skipped.empty());
  EXPECT_EQ(static_cast<int>(winners().size()), report.adopted);
  EXPECT_EQ(events_.front()["event"], "start");
  EXPECT_EQ(events_.back()["event"], "end");
  EXPECT_TRUE(Database(folder_ / "tune.db", Access::read).verify().empty());
  EXPECT_EQ(Database(folder_ / "tune.db", Access::read).summary().jobs, 1);

  // The network compiled with them computes the same.
  const Target target = parse_target("cpu");
  const TunedSchedules tuned(Database(folder_ / "tune.db", Access::read), target, 1);
  relay::CompileOptions compile = options_.compile;
  Executable without = relay::compile(network(), target, compile);
  compile.schedule = tuned.source();
  Executable with = relay::compile(network(), target, compile);
  EXPECT_EQ(static_cast<int>(tuned.uses().size()), report.adopted);
  for (const auto& [task, use] : tuned.uses()) EXPECT_EQ(use, TunedSchedules::Use::record);
  const auto inputs = made_up_inputs(with.plan(), 3);
  const NDArray a = with.run(inputs)[0], b = without.run(inputs)[0];
  for (int64_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a.get_float(i), b.get_float(i), 1e-4);
}

TEST_F(Tuning, records_are_for_their_target_only) {
  run();
  EXPECT_FALSE(winners().empty());
  EXPECT_TRUE(winners(2).empty());  // another number of threads
  for (const char* name : {"x86:sse4", "x86:avx2", "aarch64", "rpi4", "armv7"}) {
    const Target target = parse_target(name);
    EXPECT_TRUE(winners(1, name).empty()) << name;
    const TunedSchedules tuned(Database(folder_ / "tune.db", Access::read), target, 1);
    relay::CompileOptions compile = options_.compile;
    compile.schedule = tuned.source();
    relay::compile(network(), target, compile);
    EXPECT_TRUE(tuned.uses().empty()) << name;
  }
}

TEST_F(Tuning, goes_on_where_it_stopped) {
  options_.most_trials = 3;
  const int first = run().trials;
  options_.most_trials = 6;
  const int second = run().trials;
  EXPECT_GT(second, 0);
  EXPECT_EQ(first + second, count_records());
  std::set<std::string> points;
  Database database(folder_ / "tune.db", Access::read);
  database.export_lines([&](const std::string& line) {
    const auto row = nlohmann::json::parse(line);
    if (row["table"] != "records") return;
    EXPECT_TRUE(points.insert(row["task"].get<std::string>() + " " + row["decisions"].get<std::string>()).second);
  });
  EXPECT_EQ(run().trials, 0);
  EXPECT_GT(comparisons_, 0);
}

TEST_F(Tuning, the_same_seed_tries_the_same) {
  const auto tried = [&] {
    std::vector<std::string> result;
    for (const auto& event : events_)
      if (event["event"] == "trial")
        result.push_back(event["key"].get<std::string>() + event["decisions"].get<std::string>());
    events_.clear();
    std::sort(result.begin(), result.end());  // which task is next follows from times
    return result;
  };
  run();
  const auto first = tried();
  std::filesystem::remove(folder_ / "tune.db");
  run();
  EXPECT_EQ(tried(), first);
}

TEST_F(Tuning, what_slows_the_network_down_is_not_adopted) {
  network_ratio_ = {1.1, 1.05, 1.2};
  EXPECT_EQ(run().adopted, 0);
  EXPECT_TRUE(winners().empty());
  EXPECT_GE(comparisons_, 1);
  // Nor if it was before: it has spoken against itself as often as for itself.
  network_ratio_ = {0.9, 0.8, 1.0};
  EXPECT_GT(run().adopted, 0);
}

TEST_F(Tuning, bad_candidates_are_rows_and_the_job_goes_on) {
  for (const Status status : {Status::crash, Status::timeout, Status::wrong}) {
    std::filesystem::remove(folder_ / "tune.db");
    status_ = status;
    const TuneReport report = run();
    EXPECT_GT(report.trials, 3);
    EXPECT_EQ(report.by_status.at(word_of(status)),
              report.trials - (report.by_status.count("spill") ? report.by_status.at("spill") : 0));
    EXPECT_EQ(report.adopted, 0);
    EXPECT_EQ(count_records(), report.trials);
  }
}

TEST_F(Tuning, ends_with_its_budget) {
  options_.most_trials = 1000;
  options_.budget_seconds = 40;  // of a clock that goes on by a second whenever somebody looks
  const TuneReport report = run();
  EXPECT_LT(report.trials, 40);
  EXPECT_FALSE(report.was_stopped);
}

TEST_F(Tuning, stops_after_the_current_candidate) {
  int asked = 0;
  options_.is_stopping = [&] { return ++asked > 3; };
  const TuneReport report = run();
  EXPECT_TRUE(report.was_stopped);
  EXPECT_LE(report.trials, 3);
  EXPECT_EQ(count_records(), report.trials);
  EXPECT_EQ(events_.back()["event"], "end");
}

TEST_F(Tuning, a_task_whose_default_fails_is_left_out) {
  options_.measure_candidate = [](const MeasureRequest&) {
    Measurement measured;
    measured.status = Status::crash;
    measured.detail = "because";
    return measured;
  };
  const TuneReport report = run();
  EXPECT_EQ(report.trials, 0);
  EXPECT_EQ(static_cast<int>(report.skipped.size()), report.tasks);
}

TEST_F(Tuning, other_machines_are_refused) {
  Database database(folder_ / "tune.db", Access::write);
  const char* other = host_cpu().architecture == "x86_64" ? "rpi4" : "x86:avx2";
  EXPECT_EQ(caught([&] { tune(network(), parse_target(other), database, options_); }).code, ErrorCode::target);
}

}  // namespace
}  // namespace tw::autotune
