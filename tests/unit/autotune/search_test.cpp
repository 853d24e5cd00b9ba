// The search on spaces of real templates with made-up times: what it proposes, in what order, and how near it comes.
#include "autotune/search/search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autotune/task.h"
#include "tests/unit/autotune/points.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"

namespace tw::autotune {
namespace {

Target core() {
  Target target = parse_target("x86:avx512");
  target.threads = 2;
  return target;
}

// ln of a made-up time, by a tile that analysis does not prefer.
double time_of(const Point& point) {
  double sum = 0;
  for (const AskedDecision& asked : point.asked) {
    const Choice& value = asked.candidates[asked.chosen].value;
    if (asked.name == "tile") sum += 0.2 * distance(value, {4, 4});
    if (asked.name == "row_a_task") sum += value[0] == 0 ? 0 : 0.1;
  }
  return sum;
}

struct Trace {
  std::vector<std::string> tried, phases;
  double best = 0;
};

Trace run(Search& search, const Space& space, size_t most, double (*time)(const Point&) = time_of) {
  Trace run;
  const double by_default = time(*space.visit({}));
  while (run.tried.size() < most) {
    CostModel model;
    model.train(search.rows("t"));
    const auto batch = search.next_batch(model, most - run.tried.size());
    if (batch.empty()) break;
    if (run.phases.empty() || run.phases.back() != search.phase()) run.phases.push_back(search.phase());
    for (const Point& point : batch) {
      run.tried.push_back(to_text(point.decisions));
      run.best = std::min(run.best, time(point) - by_default);
      search.note(point.decisions, time(point) - by_default);
    }
  }
  return run;
}

TEST(Searching, tries_each_schedule_once_and_the_same_again) {
  const Target target = core();
  const Func func = test::conv2d(64, 64, 28, 3, 1, 1);
  const Space space(func, target);
  Search a(space, target, 3), b(space, target, 3), c(space, target, 4);
  const Trace first = run(a, space, 64);
  EXPECT_EQ(std::set<std::string>(first.tried.begin(), first.tried.end()).size(), first.tried.size());
  EXPECT_FALSE(std::count(first.tried.begin(), first.tried.end(), ""));  // the default is known
  EXPECT_EQ(first.tried, run(b, space, 64).tried);
  EXPECT_NE(first.tried, run(c, space, 64).tried);
}

// A template with these decisions, of so many values each; behind "a" another one may be asked for.
Target asking(std::vector<std::pair<std::string, int64_t>> decisions) {
  Target target = core();
  target.decided_schedule = [decisions = std::move(decisions)](const Func& func, const Target&,
                                                               const Decisions& decided) {
    Schedule schedule(func, decided);
    const BlockRef block = schedule.blocks()[0];
    auto asked = decisions;
    for (size_t n = 0; n < asked.size(); ++n) {
      const auto [name, count] = asked[n];
      std::vector<Candidate> candidates;
      for (int64_t i = 0; i < count; ++i) candidates.push_back({{i}, 1.0 + 0.01 * static_cast<double>(i)});
      const int64_t value = schedule.decide(name, candidates, {0})[0];
      schedule.annotate(block, name, value);
      if (name == "a" && value >= 7) asked.emplace_back("e", 10);
    }
    schedule.require_all_asked();
    return schedule;
  };
  return target;
}

Target deep() {
  return asking({{"a", 10}, {"b", 10}, {"c", 10}, {"d", 10}});
}

double deep_time(const Point& point) {
  double sum = 0;
  for (const AskedDecision& asked : point.asked) {
    const auto value = static_cast<double>(asked.candidates[asked.chosen].value[0]);
    sum += asked.name == "e" ? -0.05 * value : 0.03 * std::abs(value - (asked.name == "a" ? 8 : 5));
  }
  return sum;
}

TEST(Searching, finds_its_way_in_large_spaces_with_decisions_behind_decisions) {
  const Target target = deep();
  const Space space(test::matmul(16, 16, 16), target);
  const double by_default = deep_time(*space.visit({}));
  const double best = -0.45 - by_default;  // of 40,000 points
  double reached = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Search search(space, target, seed);
    const Trace trace = run(search, space, 64, deep_time);
    reached += trace.best / best / 5;
    ASSERT_GE(trace.phases.size(), 3u);
    EXPECT_EQ(trace.phases[0], "seeds");
    EXPECT_EQ(trace.phases[1], "batch");
    EXPECT_EQ(trace.phases[2], "descent");
    EXPECT_LE(trace.tried.size(), 64u);
  }
  EXPECT_GT(reached, 0.8);
}

// The sum of what each decision takes alone, and two of them that lose alone win together.
double pair_time(const Point& point) {
  std::map<std::string, double> value;
  for (const AskedDecision& asked : point.asked)
    value[asked.name] = static_cast<double>(asked.candidates[asked.chosen].value[0]);
  if (value["tile"] == 7 && value["rows"] == 1) value["rows"] = -6;
  return 0.03 * std::abs(value["tile"] - 5) + 0.03 * value["rows"] + 0.08 * std::abs(value["b"] - 1) +
         0.08 * std::abs(value["c"] - 1);
}

TEST(Searching, finds_two_decisions_that_pay_only_together) {
  const Target target = asking({{"tile", 20}, {"rows", 2}, {"b", 10}, {"c", 10}});
  const Space space(test::matmul(16, 16, 16), target);
  const double best = 0.06 - 0.18 - pair_time(*space.visit({}));
  int found = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Search search(space, target, seed);
    found += run(search, space, 64, pair_time).best < best + 1e-9;
  }
  EXPECT_GE(found, 8);
}

TEST(Searching, comes_near_the_best_of_all_points) {
  if (test::is_sanitized) GTEST_SKIP() << "how good a search is does not depend on who watches";
  const Target target = core();
  for (const Func& func : {test::conv2d(24, 64, 28, 3, 1, 1), test::matmul(512, 512, 512)}) {
    const Space space(func, target);
    const double by_default = time_of(*space.visit({}));
    double best = 0;
    test::Points enumeration(space, 0);
    while (const auto point = enumeration.next()) best = std::min(best, time_of(*point) - by_default);
    ASSERT_LT(best, -0.05);
    Search search(space, target, 0);
    EXPECT_LT(run(search, space, 48).best, best + 0.03);
  }
}

TEST(Searching, priors_come_first) {
  const Target target = core();
  const Space space(test::conv2d(64, 64, 28, 3, 1, 1), target);
  const Point wanted = space.nearest({{"tile", {4, 4}}, {"unknown", {7}}});
  EXPECT_TRUE(wanted.decisions.count("tile"));
  EXPECT_FALSE(wanted.decisions.count("unknown"));
  Search search(space, target, 0);
  search.add_prior({{"tile", {4, 4}}, {"unknown", {7}}});
  const auto batch = search.next_batch(CostModel(), 8);
  ASSERT_FALSE(batch.empty());
  EXPECT_EQ(batch[0].decisions, wanted.decisions);
}

TEST(Searching, nearest_takes_what_is_there) {
  const Target target = core();
  const Space space(test::matmul(64, 96, 64), target);
  const Point point = space.nearest({{"tile", {1000, 1}}});
  ASSERT_EQ(point.decisions.count("tile"), point.decisions.size());
  EXPECT_TRUE(space.visit(point.decisions));
}

TEST(Searching, ends_where_nothing_is_left) {
  const Target target = core();
  const Space space(test::depthwise(32, 14, 3, 1, 1), target);
  Search search(space, target, 0);
  const Trace result = run(search, space, 1000);
  EXPECT_LT(result.tried.size(), 200u);
  EXPECT_TRUE(search.next_batch(CostModel(), 8).empty());
}

// Nothing is faster than the default but one point, which nothing leads to.
double hidden_time(const Point& point) {
  double sum = 0;
  bool is_it = true;
  for (const AskedDecision& asked : point.asked) {
    const auto value = static_cast<double>(asked.candidates[asked.chosen].value[0]);
    is_it = is_it && value == 5;
    sum += 0.1 * value;
  }
  return is_it ? -0.2 : sum;
}

TEST(Searching, tries_all_that_fits_into_its_trials) {
  const Target target = asking({{"x", 8}, {"y", 7}});
  const Space space(test::matmul(16, 16, 16), target);
  Search search(space, target, 0);
  const Trace all = run(search, space, 64, hidden_time);
  EXPECT_EQ(all.tried.size(), 55u);
  EXPECT_EQ(all.best, -0.2);
  // Where it does not fit, hope ends first.
  const Target larger = asking({{"x", 20}, {"y", 20}});
  const Space larger_space(test::matmul(16, 16, 16), larger);
  Search short_search(larger_space, larger, 0);
  EXPECT_LT(run(short_search, larger_space, 100, hidden_time).tried.size(), 100u);
}

TEST(Searching, failures_teach_and_are_not_repeated) {
  const Target target = core();
  const Space space(test::matmul(512, 512, 512), target);
  Search search(space, target, 0);
  for (const Point& point : search.next_batch(CostModel(), 8)) search.note(point.decisions, std::nullopt);
  EXPECT_EQ(search.fastest(), nullptr);
  for (const TrainingRow& row : search.rows("t"))
    if (!row.point.empty()) EXPECT_GT(row.log_ratio, 0.5);
  // Of another version: no point of this space, and nothing happens.
  search.note({{"zeal", {3}}}, -1.0);
  EXPECT_EQ(search.count(), 8);
}

TEST(Searching, evolution_goes_on_without_a_model) {
  const Target target = deep();
  const Space space(test::matmul(16, 16, 16), target);
  Search a(space, target, 1, Strategy::evolution), b(space, target, 1, Strategy::evolution);
  const Trace trace = run(a, space, 300, deep_time);
  EXPECT_EQ(trace.tried.size(), 300u);
  EXPECT_EQ(std::set<std::string>(trace.tried.begin(), trace.tried.end()).size(), 300u);
  EXPECT_EQ(trace.phases, (std::vector<std::string>{"random", "evolution"}));
  EXPECT_EQ(run(b, space, 300, deep_time).tried, trace.tried);
  // It improves on its random beginnings.
  Search random(space, target, 1, Strategy::evolution);
  EXPECT_LT(trace.best, run(random, space, 64, deep_time).best);
}

}  // namespace
}  // namespace tw::autotune
