// Running plans: results, threads, barriers, buffers, wrong inputs, profiles.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "runtime/memory.h"
#include "runtime/plan/plan_io.h"
#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

using namespace test;

void expect_answer(const std::vector<NDArray>& outputs) {
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(values(outputs[0]), small_answer()[0]);
  EXPECT_EQ(values(outputs[1]), small_answer()[1]);
}

TEST(Executable, GivesTheAnswerWithAnyNumberOfThreads) {
  Executable executable = small_executable();
  for (int threads : {0, 1, 2, 3, 4, 7, 64}) {
    executable.set_threads(threads);
    for (int run = 0; run < 20; ++run) expect_answer(executable.run(small_inputs()));
  }
  EXPECT_EQ(caught([&] { executable.set_threads(-1); }).code, ErrorCode::limit);
  EXPECT_EQ(caught([&] { executable.set_threads(100'000); }).code, ErrorCode::limit);
}

TEST(Executable, SharesTasksInOrderAndCompletely) {
  for (int64_t tasks : {1, 2, 5, 8, 100}) {
    Plan plan;
    plan.outputs = {{"calls", i64, {tasks, 2}}};
    plan.steps = {{"record_call", "calls", {{Storage::output, 0, 0, tasks * 16}}, {}, tasks}};
    Executable executable(kernel_image(), plan, {}, small_requirements());
    for (int threads : {1, 2, 3, 8}) {
      executable.set_threads(threads);
      NDArray calls = executable.run({})[0];
      int64_t next = 0, shares = 0;
      while (next < tasks) {
        int64_t first = calls.get_int(2 * next) - 1, last = calls.get_int(2 * next + 1);
        ASSERT_EQ(first, next);
        ASSERT_GT(last, first);
        const int64_t share = (tasks + threads - 1) / threads;
        EXPECT_LE(last - first, threads == 1 ? share : (share + 7) / 8);
        next = last;
        ++shares;
      }
      EXPECT_GE(shares, std::min<int64_t>(tasks, threads));
    }
  }
}

// While a worker is held up in its first tasks, the others do the rest of its share.
TEST(Executable, WorkersTakeOverWhatOthersHaveLeft) {
  const int64_t tasks = 64, many_rounds = int64_t{1} << 31;
  Plan plan;
  plan.outputs = {{"done", i32, {tasks}}};
  plan.steps = {{"hold_up_the_first", "done", {{Storage::output, 0, 0, tasks * 4}}, {tasks, many_rounds}, tasks}};
  Executable executable(kernel_image(), plan, {}, small_requirements());
  for (int threads : {2, 4}) {
    executable.set_threads(threads);
    for (int run = 0; run < 20; ++run) {
      std::vector<NDArray> done = {NDArray(i32, {tasks})};
      std::memset(done[0].data(), 0, done[0].byte_size());
      executable.run_into({}, done);
      for (int64_t task = 0; task < tasks; ++task) ASSERT_EQ(done[0].get_int(task), 1) << task;
    }
  }
}

// A chain where each step overwrites what the one before wrote, by tasks cut differently: a missing barrier gives a
// wrong number sooner or later.
TEST(Executable, StepsWaitForEachOther) {
  const int64_t n = 1 << 12;
  Plan plan;
  plan.inputs = {{"x", f32, {n}}};
  plan.outputs = {{"out", f32, {1}}};
  plan.arena_bytes = 2 * n * 4;
  BufferUse buffers[2] = {{Storage::arena, 0, 0, n * 4}, {Storage::arena, 0, n * 4, n * 4}};
  plan.steps.push_back({"scale", "first", {{Storage::input, 0, 0, n * 4}, buffers[0]}, {n / 8, 1}, 8});
  for (int step = 0; step < 40; ++step) {
    // Reads x[i] from a and from a again with other task boundaries in the next step.
    int64_t tasks = step % 3 == 0 ? 1 : step % 3 == 1 ? 16 : 5;
    int64_t used = n / tasks * tasks;
    const BufferUse &from = buffers[step % 2], &to = buffers[1 - step % 2];
    plan.steps.push_back({"scale", "copy", {from, to}, {used / tasks, 1}, tasks});
    if (used < n) {
      BufferUse rest_from{Storage::arena, 0, from.offset + used * 4, (n - used) * 4};
      BufferUse rest_to{Storage::arena, 0, to.offset + used * 4, (n - used) * 4};
      plan.steps.push_back({"scale", "rest", {rest_from, rest_to}, {n - used, 1}, 1, false});
    }
  }
  plan.steps.push_back({"sum", "sum", {buffers[0], {Storage::output, 0, 0, 4}}, {n}, 1});
  Executable executable(kernel_image(), plan, {}, small_requirements());
  for (int threads : {2, 4}) {
    executable.set_threads(threads);
    for (int run = 0; run < 50; ++run) {
      NDArray x(f32, {n});
      for (int64_t i = 0; i < n; ++i) x.set_float(i, static_cast<double>((i + run) % 3));
      float expected = 0;
      for (int64_t i = 0; i < n; ++i) expected += static_cast<float>((i + run) % 3);
      ASSERT_EQ(values(executable.run({x})[0])[0], expected) << threads << " threads, run " << run;
    }
  }
}

// Random plans of slow steps, whose waits are what a planner derives from the buffers: a step waits if it conflicts
// with the last step that waited or one after it.  Any number of workers must give what one worker gives.
TEST(Executable, RandomPlansKeepTheirDependences) {
  constexpr int64_t n = 24, bytes = n * 4, pitch = 128;
  constexpr int buffers = 6, steps = 24;
  uint32_t state = 3;
  auto random = [&](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 9) % below;
  };
  for (int sample = 0; sample < 40; ++sample) {
    Plan plan;
    plan.inputs = {{"x", f32, {n}}};
    plan.outputs = {{"out", f32, {buffers, pitch / 4}}};
    auto buffer = [&](uint32_t b) { return BufferUse{Storage::output, 0, b * pitch, bytes}; };
    for (uint32_t b = 0; b < buffers; ++b) {
      plan.steps.push_back({"scale", "start", {{Storage::input, 0, 0, bytes}, buffer(b)}, {n, b + 1}, 1, b == 0});
    }
    struct Use {
      uint32_t reads[2], writes;
    };
    std::vector<Use> open;  // the last step that waited and those after it
    for (uint32_t b = 0; b < buffers; ++b) open.push_back({{b, b}, b});
    for (int i = 0; i < steps; ++i) {
      Use use{{random(buffers), random(buffers)}, random(buffers)};
      bool waits = false;
      for (const Use& other : open) {
        for (uint32_t read : use.reads) waits |= read == other.writes;
        for (uint32_t read : other.reads) waits |= read == use.writes;
        waits |= use.writes == other.writes;
      }
      if (waits) open.clear();
      open.push_back(use);
      const int64_t tasks = std::array<int64_t, 6>{1, 1, 1, 2, 3, 8}[random(6)];
      plan.steps.push_back({"slow_add",
                            "add",
                            {buffer(use.reads[0]), buffer(use.reads[1]), buffer(use.writes)},
                            {n / tasks, 20 << random(10)},
                            tasks,
                            waits});
      plan.steps.back().cycles = std::array<int64_t, 3>{0, 100, 1'000'000}[random(3)];
    }
    Executable executable(kernel_image(), plan, {}, small_requirements());
    NDArray x(f32, {n});
    for (int64_t i = 0; i < n; ++i) x.set_float(i, static_cast<double>(i));
    auto answer = [&](int threads) {
      executable.set_threads(threads);
      std::vector<NDArray> outputs = {NDArray(f32, {buffers, pitch / 4})};
      std::memset(outputs[0].data(), 0, outputs[0].byte_size());
      executable.run_into({x}, outputs);
      return values(outputs[0]);
    };
    std::vector<float> expected = answer(1);
    for (int threads : {2, 3, 2, 4})
      ASSERT_EQ(answer(threads), expected) << "sample " << sample << ", " << threads << " threads";
  }
}

TEST(Executable, TakesUnalignedArrays) {
  Executable executable = small_executable();
  executable.set_threads(2);
  std::vector<NDArray> inputs = small_inputs(), shifted, outputs;
  std::vector<std::shared_ptr<void>> storages;
  auto unaligned = [&](DType dtype, const Shape& shape) {
    storages.push_back(allocate_storage(static_cast<size_t>(element_count(shape)) * dtype.bytes() + 4));
    return NDArray(dtype, shape, static_cast<char*>(storages.back().get()) + 4, storages.back());
  };
  for (const NDArray& input : inputs) {
    shifted.push_back(unaligned(input.dtype(), input.shape()));
    std::memcpy(shifted.back().data(), input.data(), input.byte_size());
  }
  for (const TensorInfo& info : executable.plan().outputs) outputs.push_back(unaligned(info.dtype, info.shape));
  executable.run_into(shifted, outputs);
  expect_answer(outputs);
}

TEST(Executable, RunsFromManyThreads) {
  Executable executable = small_executable();
  executable.set_threads(2);
  Executable other = small_executable();
  other.set_threads(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int run = 0; run < 25; ++run) expect_answer((caller % 2 ? executable : other).run(small_inputs()));
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Executable, RefusesWrongArrays) {
  Executable executable = small_executable();
  std::vector<NDArray> inputs = small_inputs();
  auto refusal = [&](std::vector<NDArray> given) {
    Caught error = caught([&] { (void)executable.run(given); });
    EXPECT_EQ(error.code, ErrorCode::input);
    EXPECT_NE(error.text.find("help:"), std::string::npos);
    return error.text;
  };
  EXPECT_NE(refusal({inputs[0]}).find("x f32[37,24], y f32[37,24]"), std::string::npos);
  EXPECT_NE(refusal({inputs[0], NDArray(f32, {24, 37})}).find("input 'y' is f32[24,37], the model has f32[37,24]"),
            std::string::npos);
  EXPECT_NE(refusal({NDArray(f64, {37, 24}), inputs[1]}).find("f64[37,24]"), std::string::npos);
  EXPECT_NE(refusal({NDArray(), inputs[1]}).find("undefined"), std::string::npos);
  std::vector<NDArray> outputs = {NDArray(f32, {37}), NDArray(f32, {2})};
  EXPECT_EQ(caught([&] { executable.run_into(inputs, outputs); }).code, ErrorCode::input);
}

TEST(Executable, LookUpTablesAreRelocated) {
  Plan plan;
  plan.outputs = {{"small", f32, {4}}, {"large", f32, {4}}};
  plan.steps = {{"look_up", "small", {{Storage::output, 0, 0, 16}}, {0}, 4},
                {"look_up", "large", {{Storage::output, 1, 0, 16}}, {1}, 4}};
  std::vector<NDArray> outputs = Executable(kernel_image(), plan, {}, small_requirements()).run({});
  EXPECT_EQ(values(outputs[0]), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values(outputs[1]), (std::vector<float>{100, 200, 300, 400}));
}

TEST(Executable, ProfilesEveryStep) {
  Executable executable = small_executable();
  executable.set_threads(2);
  std::vector<StepProfile> profile = executable.profile(small_inputs(), 5);
  ASSERT_EQ(profile.size(), 5u);
  EXPECT_EQ(profile[2].kernel, "scale");
  EXPECT_EQ(profile[2].name, "tripled");
  EXPECT_EQ(profile[4].flops, 2.0 * rows * columns);
  for (const StepProfile& step : profile) EXPECT_GT(step.seconds, 0);
  EXPECT_EQ(caught([&] { (void)executable.profile(small_inputs(), 0); }).code, ErrorCode::limit);
}

TEST(Executable, TracesWhoRanWhatWhen) {
  Executable executable = small_executable();
  executable.set_threads(3);
  const std::vector<StepSpan> spans = executable.trace(small_inputs(), 5);
  const std::vector<Step>& steps = executable.plan().steps;
  std::vector<int64_t> workers_of(steps.size(), 0);
  for (size_t i = 0; i < spans.size(); ++i) {
    const StepSpan& span = spans[i];
    ASSERT_LT(span.step, steps.size());
    EXPECT_GE(span.start, 0);
    EXPECT_GE(span.end, span.start);
    EXPECT_TRUE(span.worker >= 0 && span.worker < 3);
    ++workers_of[span.step];
    if (i == 0 || spans[i - 1].worker != span.worker) continue;
    EXPECT_GT(span.step, spans[i - 1].step);  // a worker does one thing at a time
    EXPECT_GE(span.start, spans[i - 1].end);
  }
  for (size_t i = 0; i < steps.size(); ++i) {  // at least one: who comes late finds nothing left
    EXPECT_GE(workers_of[i], 1) << i;
    EXPECT_LE(workers_of[i], std::min<int64_t>(3, steps[i].tasks)) << i;
  }
  // What waits begins when all before it has ended.
  for (const StepSpan& later : spans) {
    if (!steps[later.step].waits) continue;
    for (const StepSpan& earlier : spans) {
      if (earlier.step < later.step) EXPECT_GE(later.start, earlier.end);
    }
  }
  EXPECT_EQ(caught([&] { (void)executable.trace(small_inputs(), 0); }).code, ErrorCode::limit);
}

// A plan whose steps have one task each needs no second worker, however many were asked for.
TEST(Executable, WorkersWithoutTasksStayAsleep) {
  Plan plan = small_plan();
  for (Step& step : plan.steps) step.tasks = std::min<int64_t>(step.tasks, 2);
  Executable executable(kernel_image(), plan, small_constants(), small_requirements());
  executable.set_threads(4);
  for (const StepSpan& span : executable.trace(small_inputs(), 1)) EXPECT_LT(span.worker, 2);
  EXPECT_EQ(executable.threads(), 4);
}

TEST(Executable, WhatIsNotWorthABarrierStaysWithOneWorker) {
  Plan plan = small_plan();
  for (Step& step : plan.steps) step.cycles = 100;
  plan.steps[2].cycles = 1'000'000;
  Executable executable(kernel_image(), plan, small_constants(), small_requirements());
  executable.set_threads(4);
  for (const StepSpan& span : executable.trace(small_inputs(), 1)) EXPECT_TRUE(span.worker == 0 || span.step == 2);
  const std::vector<NDArray> expected = small_executable().run(small_inputs()),
                             outputs = executable.run(small_inputs());
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(values(outputs[i]), values(expected[i]));
}

// …nor for so little that they would come too late, since they sleep while the first one works alone.
TEST(Executable, WorkersAreNotWokenForLittle) {
  Plan plan = small_plan();
  for (Step& step : plan.steps) step.tasks = 1, step.cycles = 10'000'000;
  plan.steps[0].tasks = rows, plan.steps[0].cycles = 10'000;
  Executable executable(kernel_image(), plan, small_constants(), small_requirements());
  executable.set_threads(4);
  for (int run = 0; run < 20; ++run)
    for (const StepSpan& span : executable.trace(small_inputs(), 1)) EXPECT_EQ(span.worker, 0);
}

TEST(Executable, NoStepsAndNoTasks) {
  Plan plan;
  plan.outputs = {{"out", f32, {0}}};
  Executable empty(kernel_image(), plan, {}, small_requirements());
  empty.set_threads(2);
  EXPECT_EQ(empty.run({})[0].size(), 0);
  EXPECT_TRUE(empty.profile({}).empty());
  EXPECT_TRUE(empty.trace({}).empty());
  plan.steps = {{"scale", "nothing", {{Storage::output, 0, 0, 0}, {Storage::output, 0, 0, 0}}, {1, 1}, 0}};
  Executable idle(kernel_image(), plan, {}, small_requirements());
  idle.set_threads(3);
  EXPECT_EQ(idle.run({})[0].size(), 0);
}

TEST(Executable, MissingKernelIsNamed) {
  Plan plan = small_plan();
  plan.steps[3].kernel = "no_such";
  Caught error = caught([&] { Executable(kernel_image(), plan, small_constants(), small_requirements()); });
  EXPECT_EQ(error.code, ErrorCode::artifact);
  EXPECT_NE(error.text.find("step 3 (added): the code has no kernel 'no_such'"), std::string::npos);
  plan.steps[3].kernel = "tables";  // data, not code
  EXPECT_EQ(caught([&] { Executable(kernel_image(), plan, small_constants(), small_requirements()); }).code,
            ErrorCode::artifact);
}

TEST(Executable, CodeForAnotherMachineCanBeHeldButNotRun) {
  MachineRequirements lacking = small_requirements();
  lacking.features = {"no-such-feature"};
  Executable executable(kernel_image(), small_plan(), small_constants(), lacking);
  Caught error = caught([&] { (void)executable.run(small_inputs()); });
  EXPECT_EQ(error.code, ErrorCode::wrong_machine);
  EXPECT_NE(error.text.find("this CPU lacks no-such-feature"), std::string::npos);
}

TEST(Plan, SurvivesTheRoundTrip) {
  Plan plan = small_plan();
  plan.outputs.push_back({"again", f32, {rows, columns}, {}, 1});
  std::vector<std::byte> bytes = write_plans(plan);
  Plan back = read_plans(bytes, "test").general;
  EXPECT_EQ(back.outputs[1].in_place, -1);
  EXPECT_EQ(back.outputs[2].in_place, 1);
  EXPECT_EQ(write_plans(back), bytes);
  EXPECT_EQ(back.steps[4].workspace_bytes, columns * 4);
  EXPECT_FALSE(back.steps[2].waits);
  EXPECT_EQ(back.metadata.at("model"), "small");
  EXPECT_EQ(find_plan_problem(back), "");
}

TEST(Plan, ReaderRefusesEveryTruncationAndSurvivesEveryFlip) {
  std::vector<std::byte> bytes = write_plans(small_plan());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(caught([&] { (void)read_plans(std::span(bytes).first(length), "test"); }).code, ErrorCode::artifact)
        << length;
  }
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << bit % 8;
    Caught error = caught([&] { (void)find_plans_problem(read_plans(flipped, "test")); });
    EXPECT_TRUE(error.code == ErrorCode{0} || error.code == ErrorCode::artifact) << error.text;
  }
}

TEST(Plan, EveryRuleIsChecked) {
  auto problem = [](auto&& edit) {
    Plan plan = small_plan();
    edit(plan);
    return find_plan_problem(plan);
  };
  EXPECT_EQ(problem([](Plan&) {}), "");
  EXPECT_NE(problem([](Plan& p) { p.inputs[0].shape[0] = -1; }), "");
  EXPECT_NE(problem([](Plan& p) { p.inputs[0].shape = {int64_t{1} << 40, int64_t{1} << 40}; }), "");
  EXPECT_NE(problem([](Plan& p) { p.outputs[0].dtype.lanes = 4; }), "");
  EXPECT_NE(problem([](Plan& p) { p.outputs[0].dtype.bits = 5; }), "");
  EXPECT_NE(problem([](Plan& p) { p.outputs[0].in_place = 0; }), "");  // of another shape
  EXPECT_NE(problem([](Plan& p) { p.outputs[0].in_place = 2; }), "");
  EXPECT_NE(problem([](Plan& p) { p.outputs[0].in_place = -2; }), "");
  EXPECT_NE(problem([](Plan& p) {
              p.outputs = {p.inputs[0], p.inputs[0]};
              p.outputs[0].in_place = p.outputs[1].in_place = 0;
            }),
            "");
  EXPECT_NE(problem([](Plan& p) { p.arena_bytes = -1; }), "");
  EXPECT_NE(problem([](Plan& p) { p.caller_alignment = 0; }), "");
  EXPECT_NE(problem([](Plan& p) { p.caller_alignment = 48; }), "");
  EXPECT_NE(problem([](Plan& p) { p.arena_bytes = INT64_MAX; }), "");
  EXPECT_NE(problem([](Plan& p) { p.workspace_bytes = -1; }), "");
  EXPECT_NE(problem([](Plan& p) { p.workspace_bytes = 4; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].tasks = -1; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].tasks = int64_t{1} << 60; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].kernel = ""; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[0].index = 2; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[2].index = 1; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[0].offset = 4; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[0].offset = -4; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[0].offset = INT64_MAX; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[0].bytes = INT64_MAX; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[0].storage = static_cast<Storage>(9); }), "");
  EXPECT_EQ(problem([](Plan& p) { p.steps[0].buffers[0] = {Storage::random, 0, 0, 16}; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[0] = {Storage::random, 1, 0, 16}; }), "");
  EXPECT_NE(problem([](Plan& p) { p.steps[0].buffers[0] = {Storage::random, 0, 8, 16}; }), "");
}

}  // namespace
}  // namespace tw
