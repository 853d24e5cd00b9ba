// Plans with steps of control: their sizes, and what is refused of them.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/device/control.h"
#include "runtime/device/placing.h"
#include "runtime/memory.h"
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
  EXPECT_NE(other_half.text(names).find("counter0"), std::string::npos);
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

// A function of the host that reads an array of the arena's and writes another, of [3, 4].
Plan calling_plan() {
  Plan plan;
  plan.arena_bytes = 128;
  plan.host_calls = {{"my.Function", "", R"({"axis":1})", {{f32, 2}, {f32, 2}}, 1}};
  Step call = control(StepKind::call, 0);
  call.buffers = {{Storage::arena, 0, 0, 48}, {Storage::arena, 0, 64, 48}};
  call.parameters = {3, 4, 3, 4};
  plan.steps = {call};
  return plan;
}

TEST(ControlPlan, CallsOfTheHostAreSoundAndSurviveTheRoundTrip) {
  EXPECT_EQ(find_plan_problem(calling_plan()), "");
  const std::vector<std::byte> bytes = write_plans(calling_plan());
  EXPECT_EQ(read_plans(bytes, "test").general.host_calls, calling_plan().host_calls);
  EXPECT_EQ(write_plans(read_plans(bytes, "test")), bytes);
  const std::function<void(Plan&)> changes[] = {
      [](Plan& p) { p.steps[0].target = 1; },         [](Plan& p) { p.steps[0].parameters.pop_back(); },
      [](Plan& p) { p.steps[0].buffers.pop_back(); }, [](Plan& p) { p.host_calls[0].function.clear(); },
      [](Plan& p) { p.host_calls[0].outputs = 3; },   [](Plan& p) { p.host_calls[0].arguments[0].rank = 3; },
  };
  for (const auto& change : changes) {
    Plan plan = calling_plan();
    change(plan);
    EXPECT_NE(find_plan_problem(plan).find("calls nothing of the host"), std::string::npos) << find_plan_problem(plan);
  }
}

// A number of rows is read, and what is so large is placed: a tensor, an output and a kernel's workspace.
Plan placing_plan() {
  Plan plan;
  const Size rows({{Op::counter, 0}, {Op::number, 64}, {Op::multiply}});
  plan.inputs = {{"c", i64, {}}};
  plan.outputs = {{"y", f32, {-1, 16}, {Size({{Op::counter, 0}}), Size(16)}}};
  plan.counters = {100};
  plan.tensors = {{rows, 2, 3, -1}};
  Step read = control(StepKind::read, 0), place = control(StepKind::place, 0);
  read.buffers = {{Storage::input, 0, 0, 8}};
  read.parameters = {0, 100};
  Step kernel;
  kernel.kernel = "k", kernel.name = "work";
  kernel.buffers = {{Storage::placed, 0, 0, rows}, {Storage::output, 0, 0, rows}};
  kernel.workspace_bytes = rows;
  plan.steps = {read, place, kernel};
  return plan;
}

TEST(PlacingPlan, IsSoundAndSurvivesTheRoundTrip) {
  const Plan plan = placing_plan();
  EXPECT_EQ(find_plan_problem(plan), "");
  const std::vector<std::byte> bytes = write_plans(plan);
  EXPECT_EQ(write_plans(read_plans(bytes, "test")), bytes);
  const Placements placements = placements_of(plan);
  EXPECT_EQ(placements.tensors, std::vector<int64_t>{0});
  EXPECT_EQ(placements.outputs, std::vector<int64_t>{0});
  EXPECT_EQ(placements.workspaces, (std::vector<int64_t>{-1, -1, 0}));
}

TEST(PlacingPlan, EveryRuleIsChecked) {
  const auto problem = [](const std::function<void(Plan&)>& change) {
    Plan plan = placing_plan();
    change(plan);
    return find_plan_problem(plan);
  };
  const std::pair<const char*, std::function<void(Plan&)>> cases[] = {
      {"it has no counter", [](Plan& p) { p.steps[0].counter = 7; }},
      {"it reads nothing", [](Plan& p) { p.steps[0].buffers.clear(); }},
      {"it reads nothing", [](Plan& p) { p.steps[0].parameters.pop_back(); }},
      {"it reads nothing", [](Plan& p) { p.steps[1].parameters = {1, 2}; }},
      {"it reads no number", [](Plan& p) { p.steps[0].buffers[0].bytes = 2; }},
      {"bounds are not known", [](Plan& p) { p.steps[0].parameters[1] = Size({{Op::counter, 0}}); }},
      {"nothing gives memory", [](Plan& p) { p.steps.erase(p.steps.begin() + 1); }},
      {"dimensions or counters", [](Plan& p) { p.counters.clear(); }},
      {"does not have", [](Plan& p) { p.steps[2].buffers[0].index = 1; }},
      {"reaches outside", [](Plan& p) { p.inputs[0].dtype = i32, p.inputs[0].shape = {1}; }},
  };
  for (const auto& [part, change] : cases) EXPECT_NE(problem(change).find(part), std::string::npos) << problem(change);
}

// loop { set; place; kernel }: in each step a tensor of one row more is made of the one before.
Plan growing_plan() {
  Plan plan;
  const Size rows({{Op::counter, 1}, {Op::number, 64}, {Op::multiply}});
  plan.counters = {5, 9};
  plan.tensors = {{rows, 0, 4}, {rows, 0, 4, -1, 0}};
  Step set = control(StepKind::set, 0), place = control(StepKind::place, 0);
  set.counter = place.counter = 1;
  set.parameters = {Size({{Op::counter, 0}, {Op::number, 1}, {Op::add}})};
  Step kernel;
  kernel.kernel = "k", kernel.name = "work";
  kernel.buffers = {{Storage::placed, 0, 0, rows}, {Storage::placed, 1, 0, rows}};
  plan.steps = {control(StepKind::loop, 5), set, place, kernel, control(StepKind::repeat, 1)};
  return plan;
}

TEST(GrowingPlan, IsSoundAndSurvivesTheRoundTrip) {
  const Plan plan = growing_plan();
  EXPECT_EQ(find_plan_problem(plan), "");
  const std::vector<std::byte> bytes = write_plans(plan);
  const Plans again = read_plans(bytes, "test");
  EXPECT_EQ(write_plans(again), bytes);
  EXPECT_EQ(again.general.tensors[1].before, 0);
}

TEST(GrowingPlan, EveryRuleIsChecked) {
  const auto problem = [](const std::function<void(Plan&)>& change) {
    Plan plan = growing_plan();
    change(plan);
    return find_plan_problem(plan);
  };
  const std::pair<const char*, std::function<void(Plan&)>> cases[] = {
      {"it has no counter", [](Plan& p) { p.steps[1].counter = 7; }},
      {"it has no counter", [](Plan& p) { p.steps[1].parameters.clear(); }},
      {"more than it can be", [](Plan& p) { p.counters[1] = 4; }},
      {"more than it can be", [](Plan& p) { p.steps[1].parameters = {-1}; }},
      {"more than it can be", [](Plan& p) { p.steps[1].parameters = {p.steps[1].parameters[0], -1, 9}; }},
      {"more than it can be", [](Plan& p) { p.steps[1].parameters = {p.steps[1].parameters[0], 0, 10}; }},
      {"bounds are not known", [](Plan& p) { p.steps[1].parameters = {1, 0, p.steps[1].parameters[0]}; }},
      {"it has no counter", [](Plan& p) { p.steps[1].parameters = {1, 0}; }},
      {"cannot take turns", [](Plan& p) { p.tensors[1].before = 2; }},
      {"cannot take turns", [](Plan& p) { p.tensors[1].before = -2; }},
      {"cannot take turns", [](Plan& p) { p.tensors[0].before = 0; }},
      {"cannot take turns", [](Plan& p) { p.tensors[0].before = 1; }},
  };
  for (const auto& [part, change] : cases) EXPECT_NE(problem(change).find(part), std::string::npos) << problem(change);
}

// What is placed again lies by turns in two pieces, and what was there before stays.
TEST(GrowingPlan, KeepsWhatWasThere) {
  const Plan plan = growing_plan();
  Placing placing(plan);
  int pieces = 0;
  GrowingMemory memory([&](size_t bytes) {
    ++pieces;
    return allocate_storage(bytes);
  });
  const BufferUse before{Storage::placed, 0}, after{Storage::placed, 1};
  for (int64_t rows = 1; rows < 200; ++rows) {
    const char* last = rows > 1 ? placing.start_of(after) : nullptr;
    const std::vector<int64_t> counters{rows - 1, rows};
    placing.place(1, counters, 1, memory);
    ASSERT_EQ(placing.start_of(before), last);
    if (last) ASSERT_EQ(*last, static_cast<char>(rows - 1));
    *placing.start_of(after) = static_cast<char>(rows);
  }
  EXPECT_LT(pieces, 40);
}

// What only gets more behind it stays, in memory that seldom is another.
TEST(GrowingPlan, StaysWhereItIs) {
  Plan plan = growing_plan();
  plan.tensors[0].before = 0;
  plan.tensors[1].before = -1;
  ASSERT_EQ(find_plan_problem(plan), "");
  Placing placing(plan);
  int pieces = 0, moved = 0;
  GrowingMemory memory([&](size_t bytes) {
    ++pieces;
    return allocate_storage(bytes);
  });
  const BufferUse all{Storage::placed, 0};
  const char* last = nullptr;
  for (int64_t rows = 1; rows < 200; ++rows) {
    placing.place(1, std::vector<int64_t>{rows - 1, rows}, 1, memory);
    for (int64_t row = 0; row + 1 < rows; ++row) ASSERT_EQ(placing.start_of(all)[row * 64], static_cast<char>(row));
    placing.start_of(all)[(rows - 1) * 64] = static_cast<char>(rows - 1);
    moved += placing.start_of(all) != last ? 1 : 0;
    last = placing.start_of(all);
  }
  EXPECT_LT(moved, 20);
}

// Where a step decides how large its result is, what was there is taken before the step, and memory given within it.
TEST(GrowingPlan, TakesWhenItsOwnNumberIsSet) {
  Plan plan = growing_plan();
  const Size after({{Op::counter, 2}});
  plan.counters.push_back(INT64_MAX);
  plan.tensors[1].bytes = after;
  Step set = control(StepKind::set, 0), place = control(StepKind::place, 0);
  set.counter = place.counter = 2;
  set.parameters = {Size({{Op::counter, 1}, {Op::number, 3}, {Op::multiply}}), 0, INT64_MAX};
  plan.steps.insert(plan.steps.begin() + 3, {set, place});
  plan.steps[0].target = 7;
  plan.steps[6].target = 1;
  plan.steps[5].buffers[1].bytes = after;
  ASSERT_EQ(find_plan_problem(plan), "");
  Placing placing(plan);
  GrowingMemory memory([](size_t bytes) { return allocate_storage(bytes); });
  const BufferUse taking{Storage::placed, 0}, made{Storage::placed, 1};
  placing.place(2, std::vector<int64_t>{0, 0, 10}, 1, memory);
  const char* first = placing.start_of(made);
  placing.place(1, std::vector<int64_t>{0, 10, 10}, 1, memory);
  EXPECT_EQ(placing.start_of(taking), first);
  placing.place(2, std::vector<int64_t>{0, 10, 30}, 1, memory);
  EXPECT_EQ(placing.start_of(taking), first);
  EXPECT_NE(placing.start_of(made), first);
  const char* second = placing.start_of(made);
  placing.place(1, std::vector<int64_t>{1, 30, 30}, 1, memory);
  EXPECT_EQ(placing.start_of(taking), second);
}

// A number that is set is within its bounds, or the run ends.
TEST(ControlPlan, ChecksWhatIsSet) {
  Step set = control(StepKind::set, 0);
  set.kernel = "`rows`", set.name = "node `more`";
  set.parameters = {Size({{Op::counter, 0}, {Op::counter, 0}, {Op::multiply}}), 0, 50};
  set.counter = 1;
  const std::vector<Step> steps{set};
  const auto run = [&](int64_t rows) {
    std::vector<int64_t> counters{rows, -1};
    std::string text = "?";
    const auto next = next_step(
        steps, 0, counters, [] { return std::optional<int64_t>(); }, [] { return std::optional<bool>(); },
        [&](const Error& error) { text = error.what(); });
    return std::pair(text, *next == 1 ? counters[1] : -1);
  };
  EXPECT_EQ(run(7), std::pair(std::string("?"), int64_t{49}));
  EXPECT_NE(run(8).first.find("TW1101 `rows` is 64, but node `more` can take 0 to 50"), std::string::npos);
  EXPECT_NE(run(INT64_MAX).first.find("TW"), std::string::npos);
}

// Of two numbers, what depends on both is placed when the second one is read; what is known is in the arena.
TEST(PlacingPlan, PlacesWhenAllIsRead) {
  Plan plan;
  const Size both({{Op::counter, 0}, {Op::counter, 1}, {Op::multiply}});
  plan.counters = {9, 9};
  plan.tensors = {{Size(128), 0, 5, -1}, {both, 4, 5, -1}, {Size({{Op::counter, 1}}), 4, 5, -1}, {Size(64), 0, 5, -1}};
  for (const uint32_t counter : {1u, 0u}) {
    for (const StepKind kind : {StepKind::read, StepKind::place}) {
      plan.steps.push_back(control(kind, 0));
      plan.steps.back().counter = counter;
    }
  }
  Step kernel;
  for (uint32_t i = 0; i < 4; ++i) kernel.buffers.push_back({Storage::arena, i, 0, plan.tensors[i].bytes});
  plan.steps.push_back(kernel);
  lay_out(plan);
  EXPECT_EQ(plan.arena_bytes, 192);
  ASSERT_EQ(plan.tensors.size(), 2u);
  EXPECT_EQ(placements_of(plan).tensors, (std::vector<int64_t>{0, 1}));
  const std::vector<BufferUse>& uses = plan.steps.back().buffers;
  EXPECT_EQ(uses[0].storage, Storage::arena);
  EXPECT_EQ(uses[1].storage, Storage::placed);
  EXPECT_EQ(uses[1].index, 0u);
  EXPECT_EQ(uses[2].index, 1u);
  EXPECT_EQ(int64_t{uses[3].offset} + int64_t{uses[0].offset}, 128);
}

}  // namespace
}  // namespace tw
