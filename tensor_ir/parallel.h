// Independent pieces of the compiler's work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tw {

// Runs f(0) … f(count - 1) on `jobs` threads; 0: one a core that this process may use.  All of them run; then the first
// exception, by index, is thrown on.
void for_each_in_parallel(size_t count, int jobs, const std::function<void(size_t)>& f);

}  // namespace tw
