#include "autotune/measure/ratio.h"

#include <algorithm>
#include <cmath>

#include "autotune/measure/exchange.h"

namespace tw::autotune {

Ratio ratio_of(const std::vector<Sample>& samples) {
  std::vector<double> ratios;
  for (const Sample& sample : samples) ratios.push_back(sample.candidate / sample.incumbent);
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  // The ranks between which the median lies with 95 % confidence, by the normal approximation of the binomial.
  const auto at = [&](double rank) { return ratios[static_cast<size_t>(std::clamp(rank, 0.0, n - 1))]; };
  const double half = 0.98 * std::sqrt(n);
  return {(at(std::floor((n - 1) / 2)) + at(std::ceil((n - 1) / 2))) / 2, at(std::floor(n / 2 - half)),
          at(std::ceil(n / 2 + half))};
}

bool is_enough(const std::vector<Sample>& samples, double elapsed, double seconds, double worst_ratio) {
  if (samples.size() < least_rounds) return false;
  return samples.size() >= most_rounds || elapsed > seconds || ratio_of(samples).low > worst_ratio;
}

}  // namespace tw::autotune
