// Random legal traces change nothing: the scheduled Func computes what the unscheduled one computes, by the oracle,
// which also traps on races, on memory never written and on indices out of bounds; so does its lowered form; and the
// trace replays to the identical Func.
#include "tests/unit/random_trace.h"

#include <gtest/gtest.h>

#include <set>

#include "tensor_ir/pass.h"
#include "tensor_ir/structural.h"

namespace tw::test {
namespace {

// As targets/lower does, but for vectors.
Func lower_to_loops(const Func& scheduled) {
  Func f = scheduled;
  for (const auto& name : {"lower_blocks", "compact_buffers", "pipeline_loops", "flatten_buffers", "simplify_all",
                           "unroll_loops", "simplify_all"}) {
    f = run_pass(name, f, find_pass(name));
  }
  return f;
}

// Nothing for what code generation refuses: registers whose number is not known.
std::optional<Func> loops_of(const Func& func) {
  try {
    return lower_to_loops(func);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::lower) throw;
    return std::nullopt;
  }
}

TEST(RandomTraces, ComputeTheSameAndReplay) {
  const auto funcs = trace_funcs();
  const int count = traces_to_run(2400);
  int lowered_count = 0;
  std::map<std::string, int> applied, refused;
  for (int n = 0; n < count; ++n) {
    const uint64_t seed = first_seed() + static_cast<uint64_t>(n);
    const SampleFunc& sample = funcs[static_cast<size_t>(n) % funcs.size()];
    RandomTrace random(sample.func, seed);
    std::string trace = "(none)";
    try {
      const RandomSchedule grown = random.grow(4 + n % 19);
      const Schedule& schedule = grown.schedule;
      trace = to_text(schedule.trace());
      for (const auto& name : grown.applied) ++applied[name];
      for (const auto& name : grown.refused) ++refused[name];
      verify(schedule.func());
      const auto logical = trace_buffers(sample.func, seed);
      auto expected = trace_buffers(sample.func, seed);
      auto got = in_layouts(grown, logical);
      InterpretOptions options;
      options.parameters = trace_parameters(sample.func);
      options.seed = seed;
      interpret(sample.func, expected, options);
      interpret(schedule.func(), got, options);
      ASSERT_LE(output_difference(sample.func, grown, logical, expected, got), 2e-5)
          << sample.name << ", TW_SEED=" << seed << "\n"
          << trace << to_text(schedule.func());
      if (const auto lowered = loops_of(schedule.func())) {
        got.clear();
        for (const NDArray& array : in_layouts(grown, logical)) got.push_back(array.reshape({array.size()}));
        interpret(*lowered, got, options);
        for (size_t i = 0; i < got.size(); ++i)
          got[i] = got[i].reshape(run_time_shape(schedule.func(), schedule.func().buffers[i]));
        ASSERT_LE(output_difference(sample.func, grown, logical, expected, got), 2e-5)
            << sample.name << ", TW_SEED=" << seed << "\n"
            << trace << to_text(*lowered);
        ++lowered_count;
      }
      const Schedule replayed = replay(parse_trace(trace), sample.func);
      ASSERT_TRUE(structural_equal(replayed.func(), schedule.func())) << sample.name << ", TW_SEED=" << seed << "\n"
                                                                      << trace;
      ASSERT_EQ(replayed.trace(), schedule.trace()) << trace;
    } catch (const Error& error) {
      FAIL() << sample.name << ", TW_SEED=" << seed << "\n" << error.what() << "\n" << trace;
    }
  }
  EXPECT_GE(lowered_count, count * 9 / 10);
  // The generator reaches every primitive it knows.
  for (const std::string& name : std::set<std::string>(random_primitives().begin(), random_primitives().end())) {
    EXPECT_GE(applied[name], count / 200) << name << " was refused " << refused[name] << " times";
    if (std::getenv("TW_VERBOSE"))
      printf("%-24s applied %6d refused %6d\n", name.c_str(), applied[name], refused[name]);
  }
}

}  // namespace
}  // namespace tw::test
