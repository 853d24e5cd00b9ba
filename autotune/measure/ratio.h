// What samples of two side by side say of them.
#pragma once

#include <vector>

#include "autotune/measure/measurement.h"

namespace tw::autotune {

// Median of candidate / incumbent with its 95 % confidence interval, by the order of the samples' ratios.
struct Ratio {
  double median = 0, low = 0, high = 0;
};
Ratio ratio_of(const std::vector<Sample>& samples);

}  // namespace tw::autotune
