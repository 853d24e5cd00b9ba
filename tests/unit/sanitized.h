// Whether the sanitizers watch: the oracle then takes ten times as long, and tests with many cases of one kind take
// some of them.  The ordinary build has tried them all.
#pragma once

namespace tw::test {

#if __has_feature(address_sanitizer)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

}  // namespace tw::test
