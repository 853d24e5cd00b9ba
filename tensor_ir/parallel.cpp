#include "tensor_ir/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "runtime/team.h"

namespace tw {

void for_each_in_parallel(size_t count, int jobs, const std::function<void(size_t)>& f) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        f(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  const auto wanted = static_cast<size_t>(jobs > 0 ? jobs : default_team_size());
  for (size_t i = 1; i < std::min(wanted, count); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace tw
