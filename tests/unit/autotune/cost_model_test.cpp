// Features, the cost model and what trials are given to: each by cases with a known answer.
#include "autotune/search/cost_model.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>

#include "autotune/search/allocate.h"
#include "autotune/search/search.h"
#include "autotune/search/space.h"
#include "tests/unit/autotune/points.h"
#include "tests/unit/sample_funcs.h"

namespace tw::autotune {
namespace {

AskedDecision tile_of(std::vector<std::pair<Choice, double>> candidates, size_t analytic, size_t chosen) {
  AskedDecision asked{"tile", {}, analytic, chosen};
  for (auto& [value, cost] : candidates) asked.candidates.push_back({value, cost});
  return asked;
}

float value_of(const Features& features, const std::string& name) {
  for (const Feature& feature : features)
    if (feature.name == name) return feature.value;
  return std::numeric_limits<float>::quiet_NaN();
}

TEST(FeaturesOfPoints, are_numbers_and_costs_of_decisions) {
  const std::vector<AskedDecision> asked{tile_of({{{7, 3}, 1.0}, {{14, 2}, 1.5}}, 0, 1),
                                         {"strip", {{{0}, 2.0}, {{4}, 4.0}}, 1, 0}};
  const Features features = point_features(asked, chosen_of(asked));
  EXPECT_FLOAT_EQ(value_of(features, "tile.0"), std::log2(15.0f));
  EXPECT_FLOAT_EQ(value_of(features, "tile.1"), std::log2(3.0f));
  EXPECT_FLOAT_EQ(value_of(features, "tile.product"), std::log2(29.0f));
  EXPECT_FLOAT_EQ(value_of(features, "tile.cost"), std::log(1.5f));
  EXPECT_FLOAT_EQ(value_of(features, "strip.0"), 0);
  EXPECT_FLOAT_EQ(value_of(features, "strip.cost"), std::log(0.5f));
  EXPECT_NEAR(value_of(features, "point.cost"), std::log(0.75), 1e-6);
  EXPECT_FLOAT_EQ(value_of(features, "point.changed"), 2);
  EXPECT_NEAR(log_cost(asked, {0, 1}), 0, 1e-12);
}

TEST(FeaturesOfTasks, tell_tasks_apart_and_say_how_far) {
  const Target target = parse_target("x86:avx512");
  const Features a = task_features(test::matmul(64, 64, 64), target);
  const Features twice = task_features(test::matmul(128, 64, 64), target);
  const Features far = task_features(test::softmax(4, 1000), target);
  EXPECT_NEAR(value_of(twice, "task.flops") - value_of(a, "task.flops"), 1, 1e-3);
  EXPECT_NEAR(value_of(a, "task.reduce"), std::log2(65.0f), 1e-5);
  EXPECT_EQ(distance(a, a), 0);
  EXPECT_LT(distance(a, twice), distance(a, far));
  for (const Feature& feature : far) EXPECT_TRUE(std::isfinite(feature.value)) << feature.name;
}

TEST(FeaturesOfPoints, rows_are_what_the_names_say) {
  const Target target = parse_target("x86:avx512");
  for (const test::SampleFunc& sample : test::sample_funcs()) {
    const Space space(sample.func, target);
    const auto point = space.visit({});
    const Features task = task_features(sample.func, target);
    std::vector<std::string> columns{"absent", "point.changed", "point.cost", "task.flops"};
    for (const Feature& feature : point_features(point->asked, chosen_of(point->asked)))
      columns.push_back(feature.name);
    std::sort(columns.begin(), columns.end());
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    const RowEncoder encoder(columns, task, point->asked);
    std::vector<size_t> chosen;
    for (const AskedDecision& asked : point->asked) chosen.push_back(asked.candidates.size() - 1);
    std::vector<float> row(columns.size());
    encoder.encode(chosen, row.data());
    Features expected = point_features(point->asked, chosen);
    expected.push_back({"task.flops", value_of(task, "task.flops")});
    for (size_t c = 0; c < columns.size(); ++c) {
      const float value = value_of(expected, columns[c]);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(row[c])) << sample.name << " " << columns[c];
      } else {
        EXPECT_NEAR(row[c], value, 1e-6) << sample.name << " " << columns[c];
      }
    }
  }
}

// Tasks of two decisions, whose analytic cost says nothing and whose time depends on the first.
std::vector<AskedDecision> two_decisions() {
  std::vector<AskedDecision> asked{{"a", {}, 0, 0}, {"b", {}, 0, 0}};
  for (int64_t i = 0; i < 8; ++i)
    for (AskedDecision& a : asked) a.candidates.push_back({{1 << i}, 1.0});
  return asked;
}

std::vector<TrainingRow> rows_of(const std::string& task, double level, uint64_t seed) {
  std::vector<TrainingRow> rows;
  std::mt19937_64 random(seed);
  const auto asked = two_decisions();
  for (int n = 0; n < 24; ++n) {
    const std::vector<size_t> chosen{random() % 8, random() % 8};
    rows.push_back({task, std::to_string(n), point_features(asked, chosen), 0,
                    level + 0.2 * std::abs(static_cast<double>(chosen[0]) - 5)});
  }
  return rows;
}

std::vector<std::vector<size_t>> all_points() {
  std::vector<std::vector<size_t>> points;
  for (size_t a = 0; a < 8; ++a)
    for (size_t b = 0; b < 8; ++b) points.push_back({a, b});
  return points;
}

TEST(CostModels, without_rows_are_the_prior_exactly) {
  CostModel model;
  EXPECT_FALSE(model.is_trained());
  const std::vector<AskedDecision> asked{tile_of({{{7, 3}, 1.0}, {{14, 2}, 1.5}, {{4, 4}, 0.5}}, 0, 0)};
  EXPECT_EQ(model.predict({}, asked, {{0}, {1}, {2}}), (std::vector<double>{0, std::log(1.5), std::log(0.5)}));
  model.train({rows_of("t", 0, 1)[0]});  // alone in its task: compared with nothing
  EXPECT_FALSE(model.is_trained());
  EXPECT_EQ(model.predict({}, asked, {{1}}), (std::vector<double>{std::log(1.5)}));
}

TEST(CostModels, learn_the_order_and_the_distance_from_other_tasks) {
  CostModel model;
  auto rows = rows_of("one", 0, 1);
  for (TrainingRow& row : rows_of("another", 3, 2)) rows.push_back(row);  // twenty times slower throughout
  model.train(rows);
  const std::vector<double> predicted = model.predict({}, two_decisions(), all_points());
  std::vector<double> truth;
  for (const auto& point : all_points()) truth.push_back(0.2 * std::abs(static_cast<double>(point[0]) - 5));
  EXPECT_GT(rank_correlation(predicted, truth), 0.9);
  const auto at = [&](size_t a) { return predicted[a * 8]; };
  EXPECT_NEAR(at(3) - at(5), 0.4, 0.2);
}

TEST(CostModels, are_the_same_for_the_same_rows_in_any_order) {
  auto rows = rows_of("one", 0, 1);
  for (TrainingRow& row : rows_of("another", 1, 2)) rows.push_back(row);
  CostModel a, b;
  a.train(rows);
  std::reverse(rows.begin(), rows.end());
  b.train(rows);
  EXPECT_EQ(a.predict({}, two_decisions(), all_points()), b.predict({}, two_decisions(), all_points()));
}

// The benchmark of scoring: `autotune_tests --gtest_filter=CostModels.score_many_points` prints how many points a
// second, with all features of a real task.  No test fails on time.
TEST(CostModels, score_many_points) {
  const Target target = parse_target("x86:avx512");
  const Space space(test::conv2d(64, 64, 28, 3, 1, 1), target);
  const Features task = task_features(space.func(), target);
  test::Points enumeration(space, 0);
  std::vector<TrainingRow> rows;
  for (int n = 0; n < 64; ++n)
    if (const auto point = enumeration.next()) rows.push_back(row_of("t", task, *point, std::sin(n)));
  CostModel model;
  model.train(rows);
  ASSERT_TRUE(model.is_trained());
  const auto origin = space.visit({});
  std::vector<std::vector<size_t>> points(100'000);
  std::mt19937_64 random(1);
  for (auto& point : points)
    for (const AskedDecision& asked : origin->asked) point.push_back(random() % asked.candidates.size());
  const auto start = std::chrono::steady_clock::now();
  const auto predicted = model.predict(task, origin->asked, points);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << static_cast<int64_t>(static_cast<double>(points.size()) / seconds) << " points a second, "
            << rows[0].features.size() << " features\n";
  ASSERT_EQ(predicted.size(), points.size());
  for (size_t p = 0; p < points.size(); p += 9973)
    EXPECT_EQ(predicted[p], model.predict(task, origin->asked, {points[p]})[0]);
}

TEST(RankCorrelation, knows_order_reverse_and_ties) {
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {10, 20, 90}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {3, 2, 1}), -1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 1, 1}, {3, 2, 1}), 0);
  EXPECT_NEAR(rank_correlation({1, 2, 2, 3}, {1, 2, 3, 4}), 0.9487, 1e-4);
  EXPECT_DOUBLE_EQ(rank_correlation({}, {}), 0);
}

TEST(Allocation, goes_where_time_is_and_leaves_what_does_not_improve) {
  const TaskState slow{.seconds = 2}, quick{.seconds = 1};
  EXPECT_GT(expected_gain(slow), expected_gain(quick));
  TaskState tired = slow;
  tired.fruitless = 24;
  EXPECT_LT(expected_gain(tired), expected_gain(quick));
  TaskState hopeful = tired;
  hopeful.predicted_gain = 0.3;
  EXPECT_GT(expected_gain(hopeful), expected_gain(tired));
  TaskState bounded = slow;
  bounded.bound = 1.96;
  EXPECT_LE(expected_gain(bounded), 0.04 + 1e-12);
  bounded.bound = 2.5;  // measured while the machine was busy
  EXPECT_GT(expected_gain(bounded), 0);
  EXPECT_LT(expected_gain(bounded), expected_gain(quick)) << "others first";
}

}  // namespace
}  // namespace tw::autotune
