#include <gtest/gtest.h>

#include <functional>

#include "runtime/plan/plan_io.h"
#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

using Op = Size::Op;

// (n + 15) // 16 * 16 · m
const Size padded({{Op::symbol, 0},
                   {Op::number, 15},
                   {Op::add},
                   {Op::number, 16},
                   {Op::floor_div},
                   {Op::number, 16},
                   {Op::multiply},
                   {Op::symbol, 1},
                   {Op::multiply}});

TEST(Size, IsANumberOrComputedFromSymbols) {
  EXPECT_EQ(int64_t{Size(7)}, 7);
  EXPECT_EQ(Size(7).at({}), 7);
  for (const int64_t n : {1, 15, 16, 17, 100}) {
    const int64_t symbols[] = {n, 3};
    EXPECT_EQ(padded.at(symbols), (n + 15) / 16 * 16 * 3);
  }
  const int64_t symbols[] = {-7, 4};
  EXPECT_EQ(Size({{Op::symbol, 0}, {Op::symbol, 1}, {Op::floor_div}}).at(symbols), -2);
  EXPECT_EQ(Size({{Op::symbol, 0}, {Op::symbol, 1}, {Op::floor_mod}}).at(symbols), 1);
  EXPECT_EQ(Size({{Op::symbol, 0}, {Op::symbol, 1}, {Op::min}}).at(symbols), -7);
  EXPECT_EQ(Size({{Op::symbol, 0}, {Op::symbol, 1}, {Op::max}}).at(symbols), 4);
}

// What loops compute in each step.
TEST(Size, IsASumOfCounters) {
  const Size::Program rows{{Op::number, 99}, {Op::counter, 1}, {Op::subtract}, {Op::number, 48}, {Op::multiply}};
  const Size::Program turns{{Op::number, 1}, {Op::counter, 0}, {Op::number, 2}, {Op::floor_mod},
                            {Op::subtract},  {Op::number, 64}, {Op::multiply}};
  const auto combined = [](Size::Program a, const Size::Program& b, Op op) {
    a.insert(a.end(), b.begin(), b.end());
    a.push_back({op});
    return Size(a);
  };
  const Size third({{Op::counter, 0}, {Op::number, 3}, {Op::floor_mod}});
  for (const int64_t x : {-3, 0, 1, 2, 7, 200}) {
    for (const int64_t y : {0, 1, 98, 99, 100, 120}) {
      const int64_t counters[] = {x, y};
      const int64_t row = (99 - y) * 48, turn = (1 - (x & 1)) * 64;
      EXPECT_EQ(combined(rows, turns, Op::add).at({}, counters), row + turn);
      EXPECT_EQ(combined(rows, turns, Op::subtract).at({}, counters), row - turn);
      EXPECT_EQ(combined(rows, {{Op::number, 100}}, Op::min).at({}, counters), std::min<int64_t>(row, 100));
      EXPECT_EQ(combined(rows, {{Op::number, 0}}, Op::max).at({}, counters), std::max<int64_t>(row, 0));
      EXPECT_EQ(third.at({}, counters), (x % 3 + 3) % 3);
      for (const Op op : {Op::min, Op::max}) {
        const auto of = [&](int64_t a, int64_t b) { return op == Op::min ? std::min(a, b) : std::max(a, b); };
        EXPECT_EQ(Size({{Op::counter, 1}, {Op::number, 5}, {Op::add}, {Op::number, 104}, {op}}).at({}, counters),
                  of(y + 5, 104));
        EXPECT_EQ(Size({{Op::number, 99}, {Op::counter, 1}, {Op::subtract}, {Op::number, 1}, {op}}).at({}, counters),
                  of(99 - y, 1));
      }
    }
  }
  const int64_t large[] = {int64_t{1} << 62, 0};
  EXPECT_THROW(combined(rows, {{Op::counter, 0}, {Op::number, 4}, {Op::multiply}}, Op::add).at({}, large), Error);
}

TEST(Size, SaysWhatItIs) {
  const std::string names[] = {"n", "m"};
  EXPECT_EQ(padded.text(names), "((n + 15) // 16) * 16 * m");
  EXPECT_EQ(Size(5).text(names), "5");
}

TEST(Size, OverflowAndDivisionByZeroAreErrors) {
  const int64_t large[] = {int64_t{1} << 62, 0};
  const auto code = [&](const Size& size) {
    try {
      size.at(large);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code(Size({{Op::symbol, 0}, {Op::number, 4}, {Op::multiply}})), ErrorCode::limit);
  EXPECT_EQ(code(Size({{Op::symbol, 0}, {Op::symbol, 1}, {Op::floor_div}})), ErrorCode::input);
}

TEST(Size, RangesAreOfRunsWhichDivideByNothingBelowOne) {
  const Size share({{Op::number, 12}, {Op::counter, 0}, {Op::floor_div}});
  const std::vector<int64_t> most = {4};
  EXPECT_EQ(share.range(most).low, 3);
  EXPECT_EQ(share.range(most).high, 12);
}

TEST(Size, ProgramsThatCannotRunAreFound) {
  EXPECT_TRUE(padded.is_well_formed(2));
  EXPECT_FALSE(padded.is_well_formed(1));
  EXPECT_FALSE(Size({{Op::add}}).is_well_formed(2));
  EXPECT_FALSE(Size({{Op::symbol, 0}, {Op::symbol, 1}}).is_well_formed(2));
  EXPECT_FALSE(Size({{Op::symbol, -1}}).is_well_formed(2));
  EXPECT_FALSE(Size({{static_cast<Op>(99), 0}}).is_well_formed(2));
}

// y[n, 2] = x[n, 2] through an intermediate, in pieces of a row.
Plan open_plan() {
  Plan plan;
  plan.symbols = {{"n", 1, 1000}};
  const Size n({{Op::symbol, 0}}), bytes({{Op::symbol, 0}, {Op::number, 8}, {Op::multiply}});
  plan.inputs = {{"x", f32, {-1, 2}, {n, 2}}};
  plan.outputs = {{"y", f32, {-1, 2}, {n, 2}}};
  plan.tensors = {{bytes, 0, 1}, {bytes, 0, 1}};
  plan.steps = {{"scale", "first", {{Storage::input, 0, 0, bytes}, {Storage::arena, 1, 0, bytes}}, {2, 1}, n},
                {"scale", "second", {{Storage::arena, 1, 0, bytes}, {Storage::output, 0, 0, bytes}}, {2, 1}, n}};
  return plan;
}

TEST(OpenPlan, IsThePlanOfARunAtItsSizes) {
  EXPECT_EQ(find_plan_problem(open_plan()), "");
  const int64_t sizes[] = {100};
  const Plan plan = plan_at(open_plan(), sizes);
  EXPECT_EQ(find_plan_problem(plan), "");
  EXPECT_TRUE(plan.symbols.empty());
  EXPECT_EQ(plan.outputs[0].shape, (Shape{100, 2}));
  EXPECT_EQ(int64_t{plan.steps[1].tasks}, 100);
  EXPECT_EQ(plan.arena_bytes, 2 * 832);
  EXPECT_EQ(int64_t{plan.steps[0].buffers[1].offset}, 832);
}

TEST(OpenPlan, SurvivesTheRoundTrip) {
  const std::vector<std::byte> bytes = write_plans(open_plan());
  EXPECT_EQ(write_plans(read_plans(bytes, "test")), bytes);
}

TEST(OpenPlan, RefusesSizesThatDisagreeOrAreOutOfBounds) {
  const Plan plan = open_plan();
  EXPECT_EQ(symbol_sizes(plan, {{7, 2}}), std::vector<int64_t>{7});
  for (const int64_t n : {0, 1001}) EXPECT_THROW(symbol_sizes(plan, {{n, 2}}), Error);
  EXPECT_THROW(symbol_sizes(plan, {{7}}), Error);
  EXPECT_THROW(symbol_sizes(plan, {}), Error);
}

TEST(OpenPlan, EveryRuleIsChecked) {
  const auto problem = [](const std::function<void(Plan&)>& edit) {
    Plan plan = open_plan();
    edit(plan);
    return find_plan_problem(plan);
  };
  EXPECT_NE(problem([](Plan& p) { p.steps[0].tasks = Size({{Op::symbol, 1}}); }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[1].index = 2; }), "");
  EXPECT_NE(problem([](Plan& p) { p.symbols[0].low = 1001; }), "");
  EXPECT_NE(problem([](Plan& p) { p.inputs[0].dims.pop_back(); }), "");
  EXPECT_NE(problem([](Plan& p) { p.inputs[0].dims[0] = 5; }), "");
  EXPECT_NE(problem([](Plan& p) { p.symbols.clear(); }), "");
}

TEST(OpenPlan, RunsAtEverySize) {
  Executable executable(test::kernel_image(), open_plan(), {}, test::small_requirements());
  executable.set_threads(2);
  for (const int64_t n : {1, 300, 7, 300, 1000, 2, 3, 4, 5, 6, 8, 9, 10, 1}) {
    NDArray x(f32, {n, 2});
    for (int64_t i = 0; i < 2 * n; ++i) x.set_float(i, static_cast<double>(i));
    const NDArray y = executable.run({x}).at(0);
    ASSERT_EQ(y.shape(), x.shape());
    for (int64_t i = 0; i < 2 * n; ++i) ASSERT_EQ(y.get_float(i), x.get_float(i)) << n;
  }
  EXPECT_EQ(executable.output_shapes({{3, 2}}), (std::vector<Shape>{{3, 2}}));
}

// The plan for n = 5, one for 10 to 20, and the open one; which is which shows in the names of their steps.
Plans special_plans() {
  const int64_t sizes[] = {5};
  Plan exact = plan_at(open_plan(), sizes), range = open_plan();
  range.symbols[0].low = 10, range.symbols[0].high = 20;
  for (Step& step : exact.steps) step.name += " of 5";
  for (Step& step : range.steps) step.name += " of 10 to 20";
  return {open_plan(), {{{{5, 5}}, exact}, {{{10, 20}}, range}}};
}

TEST(SpecialPlans, ServeTheSizesThatTheyAreFor) {
  EXPECT_EQ(find_plans_problem(special_plans()), "");
  const auto step_at = [](int64_t n) { return plan_at(special_plans(), std::span(&n, 1)).steps[1].name; };
  EXPECT_EQ(step_at(5), "second of 5");
  for (const int64_t n : {10, 15, 20}) EXPECT_EQ(step_at(n), "second of 10 to 20");
  for (const int64_t n : {1, 4, 6, 9, 21, 1000}) EXPECT_EQ(step_at(n), "second");
}

TEST(SpecialPlans, TheFirstOfThemCounts) {
  Plans plans = special_plans();
  plans.special[0].sizes = {{5, 5}};
  plans.special[1].sizes = {{1, 20}}, plans.special[1].plan.symbols[0].low = 1;
  const int64_t five = 5, four = 4;
  EXPECT_EQ(plan_at(plans, std::span(&five, 1)).steps[0].name, "first of 5");
  EXPECT_EQ(plan_at(plans, std::span(&four, 1)).steps[0].name, "first of 10 to 20");
}

TEST(SpecialPlans, SurviveTheRoundTrip) {
  const std::vector<std::byte> bytes = write_plans(special_plans());
  const Plans back = read_plans(bytes, "test");
  ASSERT_EQ(back.special.size(), 2u);
  EXPECT_EQ(back.special[1].sizes[0].high, 20);
  EXPECT_EQ(find_plans_problem(back), "");
  EXPECT_EQ(write_plans(back), bytes);
}

TEST(SpecialPlans, DamagedBytesAreErrorsOrFound) {
  const std::vector<std::byte> bytes = write_plans(special_plans());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_EQ(test::caught([&] { (void)read_plans(std::span(bytes).first(length), "test"); }).code, ErrorCode::artifact)
        << length;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> flipped = bytes;
    flipped[i] ^= std::byte{0xff};
    const auto error = test::caught([&] { (void)find_plans_problem(read_plans(flipped, "test")); });
    EXPECT_TRUE(error.code == ErrorCode{0} || error.code == ErrorCode::artifact) << i << ": " << error.text;
  }
}

TEST(SpecialPlans, EveryRuleIsChecked) {
  const auto problem = [](const std::function<void(Plans&)>& edit) {
    Plans plans = special_plans();
    edit(plans);
    return find_plans_problem(plans);
  };
  EXPECT_NE(problem([](Plans& p) { p.special[0].sizes.clear(); }), "");
  EXPECT_NE(problem([](Plans& p) { p.special[0].sizes[0].low = 6; }), "");
  EXPECT_NE(problem([](Plans& p) { p.special[1].sizes[0].high = 21; }), "");
  EXPECT_NE(problem([](Plans& p) { p.special[1].plan.symbols[0].name = "m"; }), "");
  EXPECT_NE(problem([](Plans& p) { p.special[0].sizes[0] = {5, 1001}; }), "");
  EXPECT_NE(problem([](Plans& p) { p.special[0].plan.inputs[0].name = "z"; }), "");
  EXPECT_NE(problem([](Plans& p) { p.special[0].plan.outputs[0].in_place = 0; }), "");
  EXPECT_NE(problem([](Plans& p) { p.special[0].plan.constants = {{"c", f32, {1}}}; }), "");
  EXPECT_NE(problem([](Plans& p) { p.special[0].plan.arena_bytes = 8; }), "");
  EXPECT_NE(problem([](Plans& p) { p.special.resize(5000, p.special[0]); }), "");
  EXPECT_NE(problem([](Plans& p) {
              const int64_t sizes[] = {5};
              p.general = plan_at(p.general, sizes);
            }),
            "");
}

TEST(SpecialPlans, RunFromMemoryAndFromAFile) {
  const test::Folder folder;
  Executable compiled(test::kernel_image(), special_plans(), {}, test::small_requirements());
  compiled.save(folder / "m.twa");
  Executable loaded = Executable::load(folder / "m.twa");
  for (Executable* executable : {&compiled, &loaded}) {
    EXPECT_EQ(executable->plans().special.size(), 2u);
    for (const int64_t n : {5, 15, 30, 5, 1, 20}) {
      NDArray x(f32, {n, 2});
      for (int64_t i = 0; i < 2 * n; ++i) x.set_float(i, static_cast<double>(i));
      const NDArray y = executable->run({x}).at(0);
      ASSERT_EQ(y.shape(), x.shape());
      for (int64_t i = 0; i < 2 * n; ++i) ASSERT_EQ(y.get_float(i), x.get_float(i)) << n;
      EXPECT_EQ(executable->profile({x}, 1).at(0).name, n == 5               ? "first of 5"
                                                        : n == 15 || n == 20 ? "first of 10 to 20"
                                                                             : "first");
    }
    EXPECT_EQ(executable->output_shapes({{5, 2}}), (std::vector<Shape>{{5, 2}}));
    EXPECT_THROW(executable->run({NDArray(f32, {1001, 2})}), Error);
  }
}

TEST(SpecialPlans, AKernelThatOneOfThemLacksIsAnErrorBeforeARun) {
  Plans plans = special_plans();
  plans.special.insert(plans.special.begin(), {{{1, 1000}}, open_plan()});  // which serves all runs
  plans.special[2].plan.steps[1].kernel = "absent";
  EXPECT_EQ(test::caught([&] { Executable(test::kernel_image(), plans, {}, test::small_requirements()); }).code,
            ErrorCode::artifact);
}

TEST(Plan, MapsAreOfTensorsThatAGpuCopiesBoxesOf) {
  const auto problem_of = [](const std::function<void(TensorMap&)>& change) {
    Plan plan = small_plan();
    TensorMap map = {1, 2, {64, 3}, {128}, {64, 2}, 128};
    change(map);
    plan.steps[0].maps = {map};
    return find_plan_problem(plan);
  };
  EXPECT_EQ(problem_of([](TensorMap&) {}), "");
  const std::function<void(TensorMap&)> changes[] = {
      [](TensorMap& map) { map.buffer = 9; },
      [](TensorMap& map) { map.element_bytes = 3; },
      [](TensorMap& map) { map.extents = {64}; },
      [](TensorMap& map) { map.extents = {64, int64_t{1} << 33}; },
      [](TensorMap& map) { map.extents = {64, -1}; },
      [](TensorMap& map) { map.strides = {130}; },
      [](TensorMap& map) { map.strides = {int64_t{1} << 40}; },
      [](TensorMap& map) { map.box = {64}; },
      [](TensorMap& map) { map.box = {64, 257}; },
      [](TensorMap& map) { map.box = {64, 0}; },
      [](TensorMap& map) { map.box = {65, 2}; },
      [](TensorMap& map) { map.swizzle_bytes = 64; },  // less than a row of the box
      [](TensorMap& map) { map.swizzle_bytes = 256; },
      [](TensorMap& map) {
        map.extents = {64, 1, 1, 1, 1, 1}, map.strides = {128, 128, 128, 128, 128}, map.box = {64, 1, 1, 1, 1, 1};
      },
  };
  for (const auto& change : changes)
    EXPECT_NE(problem_of(change).find("no GPU copies boxes of such a tensor"), std::string::npos)
        << &change - changes << " " << problem_of(change);
}

TEST(Plan, ListsAreMadeOfTensorsThatFit) {
  const std::vector<TensorInfo> tensors = {{"t", DType{DTypeKind::boolean}, {}}, {"x", f32, {6, 2}}, {"s", i64, {3}}};
  const auto problem = [&](std::vector<ListInfo> lists) { return find_list_problem(lists, tensors); };
  using enum ListKind;
  EXPECT_EQ(problem({{"e", sequence, 0, 0}, {"y", sequence, 0, 3}, {"f", ListKind::optional, 3, 0}}), "");
  EXPECT_EQ(problem({{"y", packed, 1, 2, 1}}), "");
  EXPECT_EQ(problem({{"y", ListKind::optional, 0, 2}}), "");
  EXPECT_EQ(problem({{"y", ListKind::optional, 0, 3}, {"y", packed, 1, 2}}), "");
  for (const std::vector<ListInfo>& wrong : std::vector<std::vector<ListInfo>>{
           {{"y", sequence, 0, 4}},
           {{"a", sequence, 1, 1}, {"b", sequence, 0, 1}},
           {{"a", sequence, 0, 2}, {"b", sequence, 1, 1}},
           {{"y", packed, 1, 2, 2}},
           {{"y", packed, 0, 2}},
           {{"y", stacked, 0, 1}},
           {{"y", ListKind::optional, 1, 2}},
           {{"y", ListKind::optional, 0, 3}},
           {{"y", ListKind::optional, 0, 3}, {"y", stacked, 1, 1}},
           {{"y", ListKind::optional, 0, 1}},
       })
    EXPECT_NE(problem(wrong), "");
  EXPECT_EQ(problem({{"m", map, 1, 1, 0, {"a", "b"}}, {"w", text, 2, 1}}), "");
  EXPECT_EQ(problem({{"m", map, 1, 1, 0, {}, {7, 9}}}), "");
  for (const ListInfo& wrong : {ListInfo{"m", map, 1, 1}, ListInfo{"m", map, 1, 1, 0, {"a"}},
                                ListInfo{"m", map, 1, 1, 0, {"a", "b"}, {1}}, ListInfo{"m", map, 2, 1, 0, {"a", "b"}},
                                ListInfo{"w", text, 1, 1, 0, {"a"}}, ListInfo{"w", text, 1, 2, 0, {"a"}}})
    EXPECT_NE(problem({wrong}), "");
  const std::vector<TensorInfo> parts = {{"x", f32, {6}}, {"s", i64, {3, 2}}, {"t", i32, {3, 2}}};
  EXPECT_EQ(find_list_problem(std::vector<ListInfo>{{"y", ragged, 0, 2}}, parts), "");
  EXPECT_NE(find_list_problem(std::vector<ListInfo>{{"y", ragged, 0, 1}}, parts), "");
  EXPECT_NE(find_list_problem(std::vector<ListInfo>{{"y", ragged, 1, 2}}, parts), "");
  EXPECT_NE(find_list_problem(std::vector<ListInfo>{{"y", ragged, 0, 2}}, {parts[0], parts[2]}), "");
}

}  // namespace
}  // namespace tw
