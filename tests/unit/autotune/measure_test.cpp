// Whatever a candidate does, it ends in its own process, within its limits, as a row.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/unit/autotune/hostile.h"

namespace tw::autotune {
namespace {

using test::caught;

class Measuring : public testing::Test {
 protected:
  Measuring() : request_(requests_.of("right")) {}
  Measurement measure_kernel(const std::string& candidate, const std::string& incumbent = "right") {
    const MeasureRequest written = requests_.of(candidate, incumbent);
    request_.candidate = written.candidate, request_.incumbent = written.incumbent, request_.plan = written.plan;
    return measure(request_);
  }

  test::HostileRequest requests_;
  MeasureRequest request_;
};

TEST_F(Measuring, gives_outputs_and_times_side_by_side) {
  const Measurement measured = measure_kernel("right");
  EXPECT_EQ(measured.status, Status::ok) << measured.detail;
  ASSERT_EQ(measured.outputs.size(), size_t{input_sets});
  EXPECT_EQ(measured.outputs[2][0].get_float(0), 6);
  EXPECT_GE(measured.samples.size(), size_t{least_rounds});
  for (const Sample& sample : measured.samples) EXPECT_GT(std::min(sample.incumbent, sample.candidate), 0);
}

// Often enough for the caller to come to other CPUs, which its workers then keep off.
TEST_F(Measuring, runs_on_several_workers) {
  request_.threads = 2;
  for (int run = 0; run < 20; ++run) {
    const Measurement measured = measure_kernel("right");
    ASSERT_EQ(measured.status, Status::ok) << measured.detail;
  }
}

TEST_F(Measuring, wrong_results_are_found) {
  const Measurement measured = measure_kernel("wrong");
  EXPECT_EQ(measured.status, Status::wrong);
  EXPECT_NE(measured.detail.find("3.0"), std::string::npos) << measured.detail;
}

TEST_F(Measuring, results_that_are_not_written_are_found) {
  EXPECT_EQ(measure_kernel("silent").status, Status::wrong);
}

TEST_F(Measuring, what_was_expected_beats_the_incumbent) {
  NDArray other(f32, {1});
  other.set_float(0, 17);
  request_.expected.assign(input_sets, {other});
  EXPECT_EQ(measure_kernel("right").status, Status::wrong);
}

TEST_F(Measuring, a_crash_is_a_row) {
  const Measurement measured = measure_kernel("crash");
  EXPECT_EQ(measured.status, Status::crash) << measured.detail;
}

TEST_F(Measuring, an_endless_loop_ends_by_the_clock) {
  request_.limit_seconds = 4;
  const Measurement measured = measure_kernel("endless");
  EXPECT_EQ(measured.status, Status::timeout) << measured.detail;
}

TEST_F(Measuring, a_job_can_be_ended_while_a_candidate_runs) {
  int asked = 0;
  request_.is_cancelled = [&] { return ++asked > 3; };
  EXPECT_EQ(caught([&] { measure_kernel("endless"); }).code, ErrorCode::input);
}

#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)  // whose memory cannot be limited
TEST_F(Measuring, memory_without_end_is_refused) {
  request_.memory_bytes = int64_t{128} << 20;
  const Measurement measured = measure_kernel("greedy");
  EXPECT_EQ(measured.status, Status::crash) << measured.detail;
}
#endif

// Where the kernel filters system calls; elsewhere only the limits hold, and a flood goes nowhere until the clock ends
// it.
TEST_F(Measuring, system_calls_end_it) {
  if (!measure_kernel("right").filters_calls) GTEST_SKIP() << "this kernel does not filter system calls";
  std::filesystem::remove("/tmp/tilewright-hostile");
  for (const char* kernel : {"fork_bomb", "write_file", "flood", "kill_parent", "move_others"}) {
    const Measurement measured = measure_kernel(kernel);
    EXPECT_EQ(measured.status, Status::crash) << kernel;
    EXPECT_NE(measured.detail.find("system call"), std::string::npos) << kernel << ": " << measured.detail;
  }
  EXPECT_FALSE(std::filesystem::exists("/tmp/tilewright-hostile"));
}

TEST_F(Measuring, the_job_goes_on_after_all_of_them) {
  measure_kernel("crash");
  EXPECT_EQ(measure_kernel("right").status, Status::ok);
}

TEST_F(Measuring, a_program_that_is_not_there_is_an_error_of_the_job) {
  request_.program = "/no-such-program";
  EXPECT_EQ(caught([&] { measure(request_); }).code, ErrorCode::file);
  request_.program = TW_MEASURE;
  test::write_bytes(request_.candidate, {});
  EXPECT_EQ(caught([&] { measure(request_); }).code, ErrorCode::file);
  request_.program = "/bin/true";
  EXPECT_EQ(caught([&] { measure(request_); }).code, ErrorCode::file);
}

TEST_F(Measuring, limits_are_told_apart) {
  request_.limit_seconds = 4;
  const Measurement by_clock = measure_kernel("sleepy");
  EXPECT_EQ(by_clock.status, Status::timeout);
  EXPECT_EQ(by_clock.detail, "it took longer than 4 s");
}

// As the system does where memory runs out: that is no matter of time.
TEST_F(Measuring, what_is_killed_from_outside_did_not_take_too_long) {
  request_.limit_seconds = 60;
  for (int pause = 50;; pause *= 2) {
    int asked = 0;
    request_.is_cancelled = [&] {
      if (++asked == pause) {
        std::ifstream children("/proc/thread-self/children");
        for (pid_t child; children >> child;) kill(child, SIGKILL);
      }
      return false;
    };
    try {
      const Measurement measured = measure_kernel("sleepy");
      EXPECT_EQ(measured.status, Status::crash);
      EXPECT_NE(measured.detail.find("killed from outside"), std::string::npos) << measured.detail;
      return;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::file);  // it had not loaded the candidate yet
      ASSERT_LT(pause, 10000);
    }
  }
}

TEST(Ratios, are_medians_between_their_confidence_bounds) {
  std::vector<Sample> samples;
  for (int i = 1; i <= 101; ++i) samples.push_back({1.0, i / 100.0});
  const Ratio ratio = ratio_of(samples);
  EXPECT_DOUBLE_EQ(ratio.median, 0.51);
  EXPECT_GT(ratio.low, 0.35);
  EXPECT_LT(ratio.low, 0.45);
  EXPECT_GT(ratio.high, 0.57);
  EXPECT_LT(ratio.high, 0.67);
  EXPECT_EQ(ratio_of({}).median, 0);
  EXPECT_EQ(ratio_of({{2.0, 1.0}}).high, 0.5);
}

// After how many rounds of 10 ms each there are enough, where the candidate takes ratios[i % size] of the incumbent's
// time.
size_t rounds_until_enough(const std::vector<double>& ratios, double seconds, double worst_ratio) {
  std::vector<Sample> samples;
  while (!is_enough(samples, 0.01 * static_cast<double>(samples.size()), seconds, worst_ratio))
    samples.push_back({1.0, ratios[samples.size() % ratios.size()]});
  return samples.size();
}

TEST(Rounds, end_with_their_time) {
  EXPECT_EQ(rounds_until_enough({1.0}, 0.195, 1.3), 20u);
  EXPECT_EQ(rounds_until_enough({1.0}, 1e-6, 1.3), size_t{least_rounds}) << "a median needs some";
  EXPECT_EQ(rounds_until_enough({1.0}, 1e6, 1.3), size_t{most_rounds}) << "there is no room for more";
}

TEST(Rounds, end_where_the_candidate_is_slower_beyond_doubt) {
  EXPECT_EQ(rounds_until_enough({1.4}, 1e6, 1.3), size_t{least_rounds});
  EXPECT_EQ(rounds_until_enough({1.2}, 1e6, 1.3), size_t{most_rounds}) << "that is allowed";
  // Slower in the median alone: the more rounds say so, the less is luck.
  const size_t rounds = rounds_until_enough({1.4, 1.4, 1.0}, 1e6, 1.3);
  EXPECT_GT(rounds, size_t{least_rounds});
  EXPECT_LT(rounds, size_t{most_rounds});
}

}  // namespace
}  // namespace tw::autotune
