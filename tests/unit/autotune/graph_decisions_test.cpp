// Choices of the network: which are tried, what counts for them, and which a job adopts, keeps and goes on with.
#include "autotune/graph_decisions.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "autotune/database/tuned_source.h"
#include "tests/unit/autotune/job.h"

namespace tw::autotune {
namespace {

using Access = Database::Access;

// Three convolutions, of which the last two are alike.
relay::Graph convolutions() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  relay::Graph graph;
  graph.inputs = {graph.add_value("x", relay::TensorType{f32, {Expr(1), Expr(16), Expr(14), Expr(14)}})};
  relay::ValueId value = graph.inputs[0];
  for (const auto& [name, inputs] : {std::pair("first", 16), std::pair("second", 32), std::pair("third", 32)}) {
    NDArray weight(f32, {32, inputs, 3, 3});
    for (int64_t i = 0; i < weight.size(); ++i) weight.set_float(i, normal(random) / std::sqrt(9.0 * inputs));
    relay::NodeAttributes attributes;
    attributes.set("pads", std::vector<int64_t>{1, 1, 1, 1});
    value =
        graph.add_node("conv", {value, graph.add_constant(std::string(name) + ".weight", weight)}, attributes, name)[0];
    value = graph.add_node("relu", {value}, {}, std::string(name) + ".relu")[0];
  }
  graph.outputs = {value};
  return graph;
}

// What analysis prefers takes a second a step.
class Choosing : public test::TuningJob {
 protected:
  Choosing() {
    options_.compile.constraints = {};
    options_.most_trials = 1;
    options_.most_tasks = 1;
    by_analysis_.emplace(relay::compile(convolutions(), target_, options_.compile, &compiled_));
    for (const Step& step : by_analysis_->plan().steps) analytic_kernels_.insert(step.kernel);
    options_.time_steps = [this](Executable& network) {
      std::map<std::string, double> seconds;
      for (const Step& step : network.plan().steps)
        seconds[step.name] += analytic_kernels_.count(step.kernel) ? 1 : other_seconds_;
      return seconds;
    };
  }

  TuneReport run() {
    events_.clear();
    Database database(folder_ / "tune.db", Access::write);
    return tune(convolutions(), target_, database, options_);
  }
  std::vector<nlohmann::json> events(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const auto& event : events_)
      if (event["event"] == name && event.value("phase", "network") == "network") found.push_back(event);
    return found;
  }
  std::vector<Record> records_of_choices() {
    const Database database(folder_ / "tune.db", Access::read);
    std::set<std::string> keys;
    for (const auto& decision : compiled_.decisions) keys.insert(task_key(decision.func));
    std::vector<Record> records;
    for (const Record& record : database.records(target_key(target_, 1)))
      if (keys.count(record.task)) records.push_back(record);
    return records;
  }
  size_t count_alternatives() const {
    std::map<std::string, size_t> counts;
    for (const auto& decision : compiled_.decisions)
      counts[task_key(decision.func)] = decision.asked.candidates.size() - 1;
    size_t sum = 0;
    for (const auto& [key, count] : counts) sum += count;
    return sum;
  }

  const Target target_ = parse_target("cpu");
  relay::CompileReport compiled_;
  std::optional<Executable> by_analysis_;
  std::set<std::string> analytic_kernels_;
  double other_seconds_ = 0.3;
};

TEST_F(Choosing, adopts_what_makes_the_network_faster) {
  ASSERT_EQ(compiled_.decisions.size(), 3u);
  EXPECT_NE(task_key(compiled_.decisions[0].func), task_key(compiled_.decisions[1].func));
  EXPECT_EQ(task_key(compiled_.decisions[1].func), task_key(compiled_.decisions[2].func));
  network_ratio_ = {0.5, 0.49, 0.51};
  const TuneReport report = run();
  EXPECT_EQ(report.choices, 2);
  EXPECT_EQ(events_.front()["event"], "start");
  EXPECT_EQ(events_.front()["open_choices"], 2);
  EXPECT_EQ(events("trial").size(), count_alternatives());
  EXPECT_EQ(records_of_choices().size(), count_alternatives());
  EXPECT_EQ(report.ratio, report.adopted > 2 ? 0.25 : 0.5);  // schedules are beside the network with the choices
  EXPECT_EQ(report.trials + report.finals, count_records());
  const Database database(folder_ / "tune.db", Access::read);
  EXPECT_EQ(database.verify(), std::vector<std::string>());

  // The network compiled with them is as they say, and computes the same.
  const TunedSchedules tuned(database, target_, 1);
  relay::CompileOptions compile = options_.compile;
  compile.schedule = tuned.source(), compile.decide = tuned.decisions();
  relay::CompileReport chosen;
  Executable with = relay::compile(convolutions(), target_, compile, &chosen);
  ASSERT_EQ(chosen.decisions.size(), 3u);
  for (const auto& decision : chosen.decisions) {
    EXPECT_NE(decision.asked.chosen, decision.asked.analytic) << decision.node;
    EXPECT_EQ(tuned.uses().at(task_key(decision.func)), TunedSchedules::Use::record);
  }
  const auto inputs = made_up_inputs(with.plan(), 3);
  const NDArray a = with.run(inputs)[0], b = by_analysis_->run(inputs)[0];
  for (int64_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a.get_float(i), b.get_float(i), 1e-3);
}

TEST_F(Choosing, slower_ones_are_records_only) {
  other_seconds_ = 1.5;
  const TuneReport report = run();
  EXPECT_EQ(report.choices, 0);
  EXPECT_EQ(records_of_choices().size(), count_alternatives());
  for (const Record& record : records_of_choices()) {
    EXPECT_EQ(record.status, "ok");
    EXPECT_GT(record.ratio_to_default, 1);
    EXPECT_GT(record.predicted, 0);
    EXPECT_FALSE(record.samples.empty());
  }
}

TEST_F(Choosing, the_network_has_the_last_word) {
  network_ratio_ = {1.1, 1.05, 1.2};
  const TuneReport report = run();
  EXPECT_EQ(report.choices, 0);
  EXPECT_EQ(report.ratio, 1);
  EXPECT_TRUE(winners().empty());
  EXPECT_GE(comparisons_, 1);
}

// One choice computes something else: it alone is wrong, and the others are adopted.
TEST_F(Choosing, a_wrong_variant_costs_the_choice_that_is_to_blame) {
  const std::string first = compiled_.decisions[0].group;
  options_.find_difference = [&](Executable& network) -> std::string {
    for (const Step& step : network.plan().steps)
      if (step.name == first && !analytic_kernels_.count(step.kernel)) return "output 0, element 0: 1 instead of 2";
    return "";
  };
  EXPECT_EQ(run().choices, 1);
  int wrong = 0;
  for (const Record& record : records_of_choices()) {
    const bool is_first = record.task == task_key(compiled_.decisions[0].func);
    EXPECT_EQ(record.status, is_first ? "wrong" : "ok");
    wrong += is_first;
    if (is_first) EXPECT_EQ(record.detail, "output 0, element 0: 1 instead of 2");
  }
  EXPECT_EQ(wrong, static_cast<int>(compiled_.decisions[0].asked.candidates.size()) - 1);
  for (const Record& record : winners()) EXPECT_NE(record.task, task_key(compiled_.decisions[0].func));
}

TEST_F(Choosing, goes_on_with_what_was_measured) {
  const TuneReport first = run();
  EXPECT_EQ(first.choices, 2);
  options_.time_steps = [](Executable&) -> std::map<std::string, double> {
    ADD_FAILURE() << "measured again";
    return {};
  };
  const TuneReport second = run();
  EXPECT_EQ(second.choices, 2);
  EXPECT_TRUE(events("trial").empty());
  EXPECT_EQ(events("tasks").at(0)["earlier_trials"], first.trials);
}

TEST_F(Choosing, records_are_for_their_target_only) {
  run();
  const Database database(folder_ / "tune.db", Access::read);
  for (const auto& [name, threads] : {std::pair("cpu", 2), std::pair("x86:avx2", 1), std::pair("aarch64", 1)}) {
    const Target target = parse_target(name);
    const TunedSchedules tuned(database, target, threads);
    relay::CompileOptions compile = options_.compile;
    compile.decide = tuned.decisions();
    relay::CompileReport compiled;
    relay::compile(convolutions(), target, compile, &compiled);
    EXPECT_FALSE(compiled.decisions.empty());
    for (const auto& decision : compiled.decisions) EXPECT_EQ(decision.asked.chosen, decision.asked.analytic) << name;
    EXPECT_TRUE(tuned.uses().empty()) << name;
  }
}

TEST_F(Choosing, a_choice_that_is_no_candidate_is_not_applied) {
  Record record;
  record.task = task_key(compiled_.decisions[1].func);
  record.decisions = "winograd=6";
  const TunedSchedules tuned({record});
  relay::CompileOptions compile = options_.compile;
  compile.decide = tuned.decisions();
  relay::CompileReport compiled;
  relay::compile(convolutions(), target_, compile, &compiled);
  for (const auto& decision : compiled.decisions) EXPECT_EQ(decision.asked.chosen, decision.asked.analytic);
  EXPECT_EQ(tuned.uses(), (std::map<std::string, TunedSchedules::Use>{{record.task, TunedSchedules::Use::stale}}));
}

TEST_F(Choosing, a_short_budget_is_for_schedules) {
  options_.budget_seconds = 10;  // and compiling takes a second
  options_.now = [this] { return clock_ += 0.5; };
  const TuneReport report = run();
  EXPECT_EQ(report.choices, 0);
  EXPECT_TRUE(records_of_choices().empty());
  ASSERT_EQ(events("choices_skipped").size(), 1u);
  EXPECT_GT(report.trials, 0);
}

TEST_F(Choosing, nothing_is_asked_without_winograd) {
  options_.compile.constraints = {{"winograd", {0}}};
  EXPECT_EQ(run().choices, 0);
  EXPECT_EQ(events_.front()["open_choices"], 0);
  EXPECT_TRUE(events("trial").empty());
  EXPECT_TRUE(events("choices_skipped").empty());
}

TEST_F(Choosing, rows_merge_and_are_pruned) {
  run();
  Database other(folder_ / "other.db", Access::write);
  EXPECT_GT(other.merge(folder_ / "tune.db"), 0);
  EXPECT_EQ(other.merge(folder_ / "tune.db"), 0);
  EXPECT_EQ(other.verify(), std::vector<std::string>());
  const auto used = other.winners(target_key(target_, 1), space_version, compiler_key());
  EXPECT_EQ(used.size(), winners().size());
  other.prune(space_version, "another build");
  EXPECT_EQ(other.summary().tasks, 0);
  EXPECT_TRUE(other.verify().empty());
}

// What comes, goes or becomes another kernel counts for the node before it, and the rest for nothing.
TEST(StepsOfChoices, are_those_that_change) {
  const auto plan = [](const std::vector<std::pair<std::string, std::string>>& steps) {
    Plan plan;
    for (const auto& [name, kernel] : steps) {
      Step& step = plan.steps.emplace_back();
      step.kernel = kernel, step.name = name;
    }
    return plan;
  };
  const Plan without = plan({{"in", "i"}, {"a", "conv_a"}, {"pool", "p"}, {"b", "conv_b"}, {"out", "plain"}});
  const Plan with = plan(
      {{"in", "i2"}, {"a", "winograd_a"}, {"a.plain", "convert"}, {"pool", "p"}, {"b", "conv_b"}, {"out", "blocked"}});
  const auto decision = [](const std::string& group, int64_t size) {
    relay::GraphDecision decision;
    decision.node = decision.group = group;
    decision.func.name = "conv";
    decision.func.attributes["size"] = size;
    return decision;
  };
  const std::vector<relay::GraphDecision> decisions = {decision("a", 1), decision("b", 2)};
  std::vector<Record> choices(1);
  choices[0].task = task_key(decisions[0].func);
  using Steps = std::map<std::string, std::string>;
  const std::string a = choices[0].task;
  EXPECT_EQ(steps_of_decisions(with, decisions, without, choices),
            (Steps{{"in", a}, {"a", a}, {"a.plain", a}, {"out", a}}));
  EXPECT_EQ(steps_of_decisions(without, decisions, with, choices), (Steps{{"in", a}, {"a", a}, {"out", a}}));
}

}  // namespace
}  // namespace tw::autotune
