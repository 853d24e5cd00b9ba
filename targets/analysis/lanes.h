// How well vectors are filled.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/rounding.h"

namespace tw::analysis {

// The share of their lanes that so many elements fill of vectors.
inline double share_of_lanes(int64_t elements, int lanes) {
  const int64_t vectors = std::max<int64_t>(1, divide_up(elements, lanes));
  return static_cast<double>(elements) / static_cast<double>(vectors * lanes);
}

}  // namespace tw::analysis
