// Whole units: how many hold so many, and where the last one ends.
#pragma once

#include <concepts>
#include <type_traits>

namespace tw {

// ⌈count / unit⌉, of count ≥ 0 and unit > 0.
template <std::integral Count, std::integral Unit>
constexpr std::common_type_t<Count, Unit> divide_up(Count count, Unit unit) {
  return (count + unit - 1) / unit;
}

// The least multiple of the unit that is no less.
template <std::integral Count, std::integral Unit>
constexpr std::common_type_t<Count, Unit> round_up(Count count, Unit unit) {
  return divide_up(count, unit) * unit;
}

}  // namespace tw
