// The clock that jobs go by.
#pragma once

#include <chrono>

namespace tw::autotune {

// Since some moment; never goes back.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tw::autotune
