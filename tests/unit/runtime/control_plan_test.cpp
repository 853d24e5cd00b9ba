// Plans with steps of control: their sizes, and what is refused of them.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/plan/plan_io.h"
#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

using Op = Size::Op;

// (1 - step % 2) · 64 + n
const Size other_half({{Op::number, 1},
                       {Op::counter, 0},
                       {Op::number, 2},
                       {Op::floor_mod},
                       {Op::subtract},
                       {Op::number, 64},
                       {Op::multiply},
                       {Op::symbol, 0},
                       {Op::add}});

TEST(Counters, AreKnownWithinARunOnly) {
  const int64_t symbols[] = {5};
  const Size of_run = other_half.fixed(symbols);
  EXPECT_FALSE(of_run.is_known());
  for (const int64_t step : {0, 1, 2, 3}) {
    const int64_t counters[] = {step};
    EXPECT_EQ(of_run.at({}, counters), (1 - step % 2) * 64 + 5);
    EXPECT_EQ(of_run.plus(3).at({}, counters), (1 - step % 2) * 64 + 8);
  }
  const int64_t most[] = {9};
  EXPECT_EQ(of_run.range(most).low, 5);
  EXPECT_EQ(of_run.range(most).high, 69);
  EXPECT_TRUE(Size({{Op::symbol, 0}, {Op::number, 2}, {Op::multiply}}).fixed(symbols).is_known());
  EXPECT_FALSE(of_run.is_well_formed(0));
  EXPECT_TRUE(of_run.is_well_formed(0, 1));
  const std::string names[] = {"n"};
  EXPECT_NE(other_half.text(names).find("step0"), std::string::npos);
}

TEST(Counters, RangesHoldWhatTheSizesAre) {
  const Size sizes[] = {
      Size({{Op::counter, 0}, {Op::number, -3}, {Op::multiply}, {Op::counter, 1}, {Op::add}}),
      Size({{Op::counter, 0}, {Op::counter, 1}, {Op::subtract}, {Op::number, 4}, {Op::floor_div}}),
      Size({{Op::counter, 0}, {Op::counter, 1}, {Op::subtract}, {Op::number, 4}, {Op::floor_mod}}),
      Size({{Op::counter, 0}, {Op::counter, 1}, {Op::min}, {Op::number, 2}, {Op::max}}),
  };
  const int64_t most[] = {5, 7};
  for (const Size& size : sizes) {
    const Size::Range range = size.range(most);
    for (int64_t a = 0; a <= most[0]; ++a) {
      for (int64_t b = 0; b <= most[1]; ++b) {
        const int64_t counters[] = {a, b};
        EXPECT_GE(size.at({}, counters), range.low);
        EXPECT_LE(size.at({}, counters), range.high);
      }
    }
  }
}

Step control(StepKind kind, uint32_t target, bool has_condition = false) {
  Step step;
  step.kind = kind;
  step.name = "c";
  step.target = target;
  step.tasks = 3;
  if (has_condition) step.buffers = {{Storage::arena, 0, 0, 1}};
  return step;
}

// loop { branch { kernel } { } }: a kernel that reads a part of the arena in each step.
Plan control_plan() {
  Plan plan;
  plan.arena_bytes = 3 * 64;
  plan.counters = {3};
  Step kernel;
  kernel.kernel = "k", kernel.name = "work";
  kernel.buffers = {{Storage::arena, 0, Size({{Op::counter, 0}, {Op::number, 64}, {Op::multiply}}), 64}};
  plan.steps = {control(StepKind::loop, 5), control(StepKind::skip, 4, true), kernel, control(StepKind::jump, 4),
                control(StepKind::repeat, 1)};
  return plan;
}

TEST(ControlPlan, IsSoundAndSurvivesTheRoundTrip) {
  const Plan plan = control_plan();
  EXPECT_EQ(find_plan_problem(plan), "");
  const std::vector<std::byte> bytes = write_plans(plan);
  EXPECT_EQ(write_plans(read_plans(bytes, "test")), bytes);
}

TEST(ControlPlan, EveryRuleIsChecked) {
  const auto problem = [](const std::function<void(Plan&)>& change) {
    Plan plan = control_plan();
    change(plan);
    return find_plan_problem(plan);
  };
  const std::pair<const char*, std::function<void(Plan&)>> cases[] = {
      {"goes nowhere", [](Plan& p) { p.steps[1].target = 1; }},
      {"goes nowhere", [](Plan& p) { p.steps[1].target = 5; }},
      {"goes nowhere", [](Plan& p) { p.steps[3].target = 2; }},
      {"goes nowhere", [](Plan& p) { p.steps[0].target = 9; }},
      {"has no end", [](Plan& p) { p.steps[0].target = 4; }},
      {"has no end", [](Plan& p) { p.steps[4].target = 2; }},
      {"has no end", [](Plan& p) { p.steps[4].counter = 1; }},
      {"has no end", [](Plan& p) { p.steps[0].counter = 1, p.steps[4].counter = 1; }},
      {"has no place here", [](Plan& p) { p.steps[0].kind = StepKind::jump; }},
      {"has no place here", [](Plan& p) { p.steps[1].buffers.clear(); }},
      {"not one byte", [](Plan& p) { p.steps[1].buffers[0].bytes = 4; }},
      {"does not compare two sizes", [](Plan& p) { p.steps[3].kind = StepKind::check; }},
      {"dimensions or counters", [](Plan& p) { p.counters.clear(); }},
      {"reaches outside", [](Plan& p) { p.counters = {4}; }},
      {"reaches outside", [](Plan& p) { p.arena_bytes = 128; }},
  };
  for (const auto& [part, change] : cases) EXPECT_NE(problem(change).find(part), std::string::npos) << problem(change);
}

}  // namespace
}  // namespace tw
