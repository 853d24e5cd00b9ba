// What samples of two side by side say of them, and whether to take more.
#pragma once

#include <vector>

#include "autotune/measure/measurement.h"

namespace tw::autotune {

// Median of candidate / incumbent with its 95 % confidence interval, by the order of the samples' ratios.
struct Ratio {
  double median = 0, low = 0, high = 0;
};
Ratio ratio_of(const std::vector<Sample>& samples);

// Whether these rounds, which took `elapsed` seconds, are enough: there are as many as a median needs, and then their
// time is over, there is no room for more, or the candidate takes more than `worst_ratio` of the incumbent's time
// beyond doubt.
bool is_enough(const std::vector<Sample>& samples, double elapsed, double seconds, double worst_ratio);

}  // namespace tw::autotune
