// Jobs with a clock, a measurer and a comparison that are predictable: what is tried, kept, adopted and gone on with.
#include "autotune/tune.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <set>

#include "autotune/confirm.h"
#include "autotune/database/tuned_source.h"
#include "autotune/measure/compile_child.h"
#include "autotune/search/space.h"
#include "autotune/task.h"
#include "autotune/trials.h"
#include "tests/unit/autotune/job.h"

namespace tw::autotune {
namespace {

using test::caught;
using Access = Database::Access;
using test::network;
using Tuning = test::TuningJob;

relay::Graph network_of_one() {
  return relay::parse_graph("graph g (x: f32[4]) {\n  y = relu(x)\n  return y\n}");
}

TEST_F(Tuning, adopts_what_makes_the_network_faster) {
  const TuneReport report = run();
  EXPECT_GE(report.tasks, 2);
  EXPECT_EQ(report.trials + report.finals, count_records());
  EXPECT_GT(report.adopted, 0);
  for (const std::string& reason : report.skipped) ADD_FAILURE() << reason;
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
  int records = 0;
  std::set<std::string> points;
  Database database(folder_ / "tune.db", Access::read);
  database.export_lines([&](const std::string& line) {
    const auto row = nlohmann::json::parse(line);
    if (row["table"] != "records" || row["detail"] == final_detail) return;
    ++records;
    EXPECT_TRUE(points.insert(row["task"].get<std::string>() + " " + row["decisions"].get<std::string>()).second);
  });
  EXPECT_EQ(first + second, records);
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
  const TuneReport slower = run();
  EXPECT_EQ(slower.adopted, 0);
  EXPECT_EQ(slower.ratio, 1) << "it is the one by analysis";
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
    EXPECT_EQ(count_records(), report.trials + report.finals);
  }
}

// LLVM ends the process over what it cannot translate; that of the job is another.
TEST_F(Tuning, a_compiler_that_dies_costs_its_candidate) {
  const std::vector<std::pair<std::function<void()>, std::string>> ends = {
      {[] { abort(); }, "the compiler was ended by Aborted"},
      {[] { raise(SIGSEGV); }, "the compiler was ended by Segmentation fault"},
      {[] { _exit(3); }, "the compiler ended with status 3"}};
  for (const auto& [end, detail] : ends) {
    std::filesystem::remove(folder_ / "tune.db");
    events_.clear();
    options_.on_compile = [&](const Decisions&) { end(); };
    const TuneReport report = run();
    EXPECT_GT(report.trials, 0);
    EXPECT_EQ(report.by_status.at("refused"), report.trials);
    EXPECT_EQ(count_records(), report.trials);
    for (const auto& event : events_)
      if (event["event"] == "trial") EXPECT_EQ(event["detail"], detail);
  }
}

TEST(CompileInChild, ends_what_does_not_end) {
  const auto result = compile_in_child(
      []() -> int {
        for (;;) pause();
      },
      0.2);
  EXPECT_EQ(result.problem, "the compiler took longer than 0.2 s");
  EXPECT_EQ(compile_in_child([] { return 42; }, 60).value, 42);
  EXPECT_EQ(compile_in_child([]() -> int { throw Error(ErrorCode::lower, "too wide"); }, 60).problem,
            "TW1404 too wide");
  int asked = 0;
  const auto is_cancelled = [&] { return ++asked > 2; };
  EXPECT_EQ(caught([&] {
              compile_in_child(
                  []() -> int {
                    for (;;) pause();
                  },
                  60, is_cancelled);
            }).code,
            ErrorCode::input);
}

TEST_F(Tuning, ends_with_its_budget) {
  options_.most_trials = 1000;
  // Of a clock that goes on by itself and by what is done.
  for (const double budget : {120.0, 300.0}) {
    std::filesystem::remove(folder_ / "tune.db");
    clock_ = 0;
    options_.now = [this] { return clock_ += 1e-3; };
    options_.measure_candidate = [this](const MeasureRequest& request) {
      clock_ += 4 + request.seconds;
      return measure(request);
    };
    options_.compare_networks = [this](Executable&, Executable&) {
      return clock_ += 0.5, ++comparisons_, network_ratio_;
    };
    options_.budget_seconds = budget;
    const TuneReport report = run();
    EXPECT_LT(clock_, 1.05 * budget);
    EXPECT_GT(report.trials, 0);
    EXPECT_FALSE(report.was_stopped);
  }
}

TEST_F(Tuning, stops_after_the_current_candidate) {
  int asked = 0;
  options_.is_stopping = [&] { return ++asked > 3; };
  const TuneReport report = run();
  EXPECT_TRUE(report.was_stopped);
  EXPECT_LE(report.trials, 3);
  EXPECT_EQ(count_records(), report.trials + report.finals);
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
  EXPECT_GE(report.skipped.size(), 2u);  // those that leave something to try
}

TEST_F(Tuning, other_machines_are_refused) {
  Database database(folder_ / "tune.db", Access::write);
  const char* other = host_cpu().architecture == "x86_64" ? "rpi4" : "x86:avx2";
  EXPECT_EQ(caught([&] { tune(network(), parse_target(other), database, options_); }).code, ErrorCode::target);
}

// Measurements with noise, then a job whose measurements are those of the first.
TEST_F(Tuning, replayed_measurements_give_the_same_decisions) {
  options_.most_trials = 24;
  std::map<std::string, std::vector<Sample>> measured;
  std::mt19937_64 random(5);
  bool is_replay = false;
  int missing = 0;
  options_.measure_candidate = [&](const MeasureRequest& request) {
    Measurement result = measure(request);
    if (request.seconds == 0) return result;
    std::string key = std::to_string(request.seconds);
    for (const auto& path : {request.candidate, request.incumbent}) {
      const Executable executable = Executable::load(path);
      for (const Step& step : executable.plan().steps) key += " " + step.kernel;
    }
    if (!is_replay && !measured.count(key)) {  // other decisions may give the same kernels
      for (Sample& sample : result.samples) sample.candidate *= 1 + 0.05 * static_cast<double>(random() % 1000) / 1000;
      measured[key] = result.samples;
    }
    missing += measured.count(key) == 0;
    result.samples = measured[key];
    return result;
  };
  const auto tried = [&] {
    std::vector<std::string> result;
    for (const auto& event : events_)
      if (event["event"] == "trial" || event["event"] == "final")
        result.push_back(event["key"].get<std::string>() + " " + event["decisions"].get<std::string>());
    events_.clear();
    return result;
  };
  const TuneReport first = run();
  const auto points = tried();
  EXPECT_GT(points.size(), 20u);
  is_replay = true;
  clock_ = 0;
  std::filesystem::remove(folder_ / "tune.db");
  EXPECT_EQ(run().adopted, first.adopted);
  EXPECT_EQ(tried(), points);
  EXPECT_EQ(missing, 0);
}

TEST_F(Tuning, finals_are_measured_beside_the_default_and_decide) {
  // What was fast in the search is slow in the final: luck.
  options_.measure_candidate = [&](const MeasureRequest& request) {
    Measurement result = measure(request);
    const bool is_final = request.seconds > 0 && request.worst_ratio > 2 &&
                          std::any_of(events_.begin(), events_.end(),
                                      [](const auto& e) { return e["event"] == "trial" && e["trial"] == 6; });
    for (Sample& sample : result.samples) sample.candidate = is_final ? 1.05 : 0.8;
    return result;
  };
  const TuneReport report = run();
  EXPECT_GT(report.trials, 0);
  EXPECT_EQ(report.adopted, 0);
  EXPECT_EQ(comparisons_, 0);
}

TEST_F(Tuning, only_the_tasks_that_are_asked_for_are_searched) {
  const auto searched = [&] {
    std::set<std::string> keys;
    for (const auto& event : events_)
      if (event["event"] == "trial") keys.insert(event["key"]);
    return keys;
  };
  options_.most_trials = 2;
  run();
  const std::string last = *searched().rbegin();
  ASSERT_GT(searched().size(), 1u);
  std::filesystem::remove(folder_ / "tune.db");
  events_.clear();
  options_.only_tasks = {last};
  EXPECT_EQ(run().tasks, 1);
  EXPECT_EQ(searched(), std::set<std::string>{last});
}

// Each process is a few percent faster or slower than others with the same code, all of its runs alike.  The luck of
// the fastest is not handed on to what is measured beside it.
TEST_F(Tuning, the_luck_of_incumbents_does_not_add_up) {
  constexpr double luck = 0.03;
  options_.most_trials = 48, options_.most_tasks = 1;
  std::mt19937_64 random(7);
  double truth = 1;  // of every candidate, by the default's
  std::filesystem::path by_default;
  options_.measure_candidate = [&](const MeasureRequest& request) {
    if (request.seconds == 0) by_default = request.incumbent;
    Measurement result = measure(request);
    const double noise = 1 + luck * (2 * static_cast<double>(random() % 1001) / 1000 - 1);
    for (Sample& sample : result.samples) sample.candidate = (request.incumbent == by_default ? truth : 1) * noise;
    return result;
  };
  for (const double t : {1.0, 0.8}) {
    std::filesystem::remove(folder_ / "tune.db");
    events_.clear();
    truth = t;
    const TuneReport report = run();
    EXPECT_EQ(report.trials + report.finals, count_records());
    int timed = 0;
    for (const auto& event : events_) {
      if (event["event"] != "trial" || event["status"] != "ok") continue;
      ++timed;
      EXPECT_GE(event["best"], truth * (1 - luck) - 1e-9);
      EXPECT_NEAR(event["ratio_to_default"], truth, truth * 2.1 * luck);
    }
    EXPECT_GT(timed, 20);
  }
}

// What is faster than the incumbent is measured beside the default once more, and that is what its record says.
TEST_F(Tuning, only_what_is_fast_twice_becomes_the_incumbent) {
  std::set<std::string> tried;
  options_.measure_candidate = [&](const MeasureRequest& request) {
    Measurement result = measure(request);
    const bool is_first = tried.insert(request.candidate).second;
    for (Sample& sample : result.samples) sample.candidate = is_first ? 0.5 : 0.97 + 0.02 * (tried.size() % 2);
    return result;
  };
  const TuneReport report = run();
  EXPECT_GT(report.trials, 0);
  for (const auto& event : events_) {
    if (event["event"] != "trial" || event["status"] != "ok") continue;
    EXPECT_GE(event["ratio_to_default"], 0.97);
    EXPECT_EQ(event["ratio"], event["ratio_to_default"]);
  }
}

TEST_F(Tuning, records_of_other_builds_are_measured_again_first) {
  run();
  Database database(folder_ / "tune.db", Access::read);
  std::map<std::string, std::string> fastest;  // of each task
  for (const auto& record : database.records(target_key(parse_target("cpu"), 1)))
    if (record.status == "ok" && record.ratio_to_default < 1) fastest.emplace(record.task, record.decisions);
  ASSERT_FALSE(fastest.empty());
  // As an older build has left it: one record a task, faster than all others.
  Database older(folder_ / "older.db", Access::write);
  older.add_target(target_key(parse_target("cpu"), 1), target_facts(parse_target("cpu"), 1));
  for (Record record : database.records(target_key(parse_target("cpu"), 1))) {
    if (!fastest.count(record.task) || fastest[record.task] != record.decisions) continue;
    older.add_task(record.task, database.func_text(record.task));
    record.compiler = "0ld", record.ratio_to_default = 0.3;
    older.add(record);
  }
  const TunedSchedules none(older, parse_target("cpu"), 1);
  events_.clear();
  tune(network(), parse_target("cpu"), older, options_);
  for (const auto& [task, decisions] : fastest) {
    const auto first = std::find_if(events_.begin(), events_.end(), [&, key = task](const auto& event) {
      return event["event"] == "trial" && event["key"] == key;
    });
    ASSERT_NE(first, events_.end());
    EXPECT_EQ((*first)["decisions"], decisions);
  }
}

// A proposal that is slower in the network is left out; the others are adopted together.
TEST(Confirmations, judge_each_proposal_in_the_network) {
  const Target target = parse_target("cpu");
  relay::CompileOptions options;
  options.threads = 1;
  const auto proposals = [] {
    std::vector<Proposal> list(4);
    for (size_t i = 0; i < list.size(); ++i) {
      list[i].record.task = std::string(1, static_cast<char>('a' + i));
      list[i].record.ratio_to_default = 0.8, list[i].gain = 1.0 + static_cast<double>(i);
    }
    return list;
  };
  std::vector<size_t> rounds;
  Confirming with;
  Ratio network{0.9, 0.89, 0.91};
  std::map<std::string, Ratio> tasks{{"a", {0.9, 0.9, 0.9}}, {"b", {1.2, 1.1, 1.3}}, {"c", {0.95, 0.9, 1.1}}};
  std::string difference;
  with.compile = [&](const std::vector<Record>&) { return relay::compile(network_of_one(), target, options); };
  with.find_difference = [&](Executable&) { return difference; };
  with.compare_tasks = [&](Executable&) { return tasks; };
  with.compare = [&](Executable&) { return network; };
  with.has_time = [] { return true; };
  with.on_round = [&](const ConfirmationRound& round) { rounds.push_back(round.records); };
  const auto adopted = confirm(proposals(), with);
  ASSERT_EQ(adopted.size(), 3u);
  for (const Record& record : adopted) EXPECT_NE(record.task, "b");
  EXPECT_EQ(rounds, (std::vector<size_t>{4, 3}));
  // By noise at best: not adopted.
  network = {1.0, 0.9, 1.1};
  EXPECT_TRUE(confirm(proposals(), with).empty());
  network = {0.99, 0.97, 1.01};
  EXPECT_EQ(confirm(proposals(), with).size(), 3u);
  // Other outputs, whatever the time.
  difference = "output 0";
  EXPECT_TRUE(confirm(proposals(), with).empty());
}

}  // namespace
}  // namespace tw::autotune
