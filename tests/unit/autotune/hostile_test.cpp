// Hostile candidates of every kind, through the real measuring path, one after the other.
#include "tests/unit/autotune/hostile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "autotune/clock.h"
#include "tests/unit/autotune/job.h"

namespace tw::autotune {
namespace {

using Campaign = test::TuningJob;

// Each ends as it should, and one that is right is measured after it.  Only what may end by the clock has little time.
TEST_F(Campaign, hostile) {
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "AddressSanitizer ends such candidates in its own way";
#endif
  const char* text = std::getenv("TW_CASES");
  const auto& kernels = test::hostile_kernels();
  const int count = text ? std::atoi(text) : static_cast<int>(kernels.size());
  test::HostileRequest requests;
  std::mt19937_64 random(1);
  double longest_over = 0;
  std::map<std::string, int> ends;
  std::filesystem::remove("/tmp/tilewright-hostile");
  for (int i = 0; i < count; ++i) {
    const test::Hostile& hostile = kernels[static_cast<size_t>(i) % kernels.size()];
    MeasureRequest request = requests.of(hostile.kernel);
    request.threads = 1 + static_cast<int>(random() % 2);
    if (hostile.ends.count(Status::timeout))
      request.limit_seconds = (text ? 0.6 : 4.0) + 0.1 * static_cast<double>(random() % 5);
    else
      request.limit_seconds = 60;
    request.memory_bytes = int64_t{128} << 20;
    const double start = seconds_now();
    const Measurement measured = autotune::measure(request);
    longest_over = std::max(longest_over, seconds_now() - start - request.limit_seconds);
    EXPECT_TRUE(hostile.ends.count(measured.status))
        << hostile.kernel << ": " << word_of(measured.status) << ", " << measured.detail;
    EXPECT_TRUE(measured.status == Status::ok || measured.samples.empty());
    if (measured.filters_calls) EXPECT_NE(measured.status, Status::ok) << hostile.kernel;
    ++ends[std::string(hostile.kernel) + " " + word_of(measured.status)];
    if (i % 8 == 0) {
      MeasureRequest after = requests.of("right");
      const Measurement fine = autotune::measure(after);
      EXPECT_EQ(fine.status, Status::ok) << fine.detail;
      if (fine.filters_calls) EXPECT_FALSE(std::filesystem::exists("/tmp/tilewright-hostile"));
    }
  }
  if (!text) return;
  for (const auto& [end, times] : ends) std::printf("%-32s %d\n", end.c_str(), times);
  std::printf("%d hostile candidates; the longest went on for %.3f s after its limit\n", count, longest_over);
}

}  // namespace
}  // namespace tw::autotune
