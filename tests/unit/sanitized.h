// Whether the sanitizers watch: the oracle then takes ten times as long, and tests with many cases of one kind take
// some of them.  The ordinary build has tried them all.
#pragma once

#include <gtest/gtest.h>

namespace tw::test {

#if __has_feature(address_sanitizer)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

// A family of tests on emulated GPUs, of which the sanitizers watch a third.
template <class Case>
class LargeFamily : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    static int count = 0;
    if (is_sanitized && count++ % 3 != 0) GTEST_SKIP() << "the ordinary build tries all of them";
  }
};

}  // namespace tw::test
