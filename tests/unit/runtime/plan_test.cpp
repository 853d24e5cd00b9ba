#include <gtest/gtest.h>

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
  EXPECT_EQ(code(Size({{Op::symbol, 0}, {Op::symbol, 1}, {Op::floor_div}})), ErrorCode::limit);
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
  const std::vector<std::byte> bytes = write_plan(open_plan());
  EXPECT_EQ(write_plan(read_plan(bytes, "test")), bytes);
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

}  // namespace
}  // namespace tw
