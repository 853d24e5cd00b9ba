#include "runtime/machine_speed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/error.h"
#include "runtime/memory.h"

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

volatile float unknown_factor = 0.5f, unknown_summand = 0.25f;

// `count` independent chains of multiply-adds hide the latency.  The factors are unknown to the compiler and the
// results are given out at the end, so that nothing folds; in between everything stays in registers.
template <class Vector, int count>
[[gnu::always_inline]] inline void multiply_add_chains(int64_t repetitions) {
  const Vector factor = Vector{} + unknown_factor, summand = Vector{} + unknown_summand;
  Vector chains[count];
#pragma clang loop unroll(full)
  for (int i = 0; i < count; ++i) chains[i] = factor * static_cast<float>(i);
  for (int64_t r = 0; r < repetitions; ++r) {
#pragma clang loop unroll(full)
    for (int i = 0; i < count; ++i) chains[i] = chains[i] * factor + summand;
  }
  asm volatile("" : : "m"(chains));
}

// A kernel and how many operations one repetition of it is.
struct PeakKernel {
  void (*run)(int64_t repetitions);
  double operations;
};

#if defined(__x86_64__)
using Vector16 = float __attribute__((vector_size(64)));
using Vector8 = float __attribute__((vector_size(32)));
using Vector4 = float __attribute__((vector_size(16)));
[[gnu::target("avx512f")]] void chains_avx512(int64_t n) {
  multiply_add_chains<Vector16, 24>(n);
}
[[gnu::target("avx2,fma")]] void chains_avx2(int64_t n) {
  multiply_add_chains<Vector8, 12>(n);
}
void chains_sse(int64_t n) {
  multiply_add_chains<Vector4, 12>(n);
}
PeakKernel peak_kernel() {
  if (__builtin_cpu_supports("avx512f")) return {chains_avx512, 24 * 16 * 2};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {chains_avx2, 12 * 8 * 2};
  return {chains_sse, 12 * 4 * 2};
}
#elif defined(__aarch64__)
using Vector4 = float __attribute__((vector_size(16)));
void chains_neon(int64_t n) {
  multiply_add_chains<Vector4, 24>(n);
}
PeakKernel peak_kernel() {
  return {chains_neon, 24 * 4 * 2};
}
#else
using Vector4 = float __attribute__((vector_size(16)));
void chains_neon(int64_t n) {
  multiply_add_chains<Vector4, 12>(n);
}
PeakKernel peak_kernel() {
  return {chains_neon, 12 * 4 * 2};
}
#endif

// Runs `body(thread)` on each thread from a common start; the sum of work over the common time.
double rate_of_all(int threads, const std::function<double(int thread)>& body) {
  check(threads >= 1, "measuring takes at least one thread");
  std::atomic<int> waiting{threads};
  std::vector<double> work(threads);
  Clock::time_point start;
  const auto one = [&](int thread) {
    if (waiting.fetch_sub(1) == 1) start = Clock::now();
    while (waiting.load() > 0) {
    }
    work[thread] = body(thread);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(one, t);
  one(0);
  for (std::thread& other : others) other.join();
  const double elapsed = seconds_since(start);
  double total = 0;
  for (const double amount : work) total += amount;
  return total / elapsed;
}

}  // namespace

double measure_peak_flops(int threads, double seconds) {
  const PeakKernel kernel = peak_kernel();
  constexpr int64_t chunk = 100'000;
  double best = 0;  // a neighbour can only slow a round down
  for (int round = 0; round < 4; ++round) {
    best = std::max(best, rate_of_all(threads, [&](int) {
                      double operations = 0;
                      for (const auto start = Clock::now(); seconds_since(start) < seconds / 4;) {
                        kernel.run(chunk);
                        operations += kernel.operations * chunk;
                      }
                      return operations;
                    }));
  }
  return best;
}

double measure_read_bandwidth(int threads, double seconds) {
  using Line = uint64_t __attribute__((vector_size(64)));
  constexpr size_t total_bytes = size_t{512} << 20;
  const size_t lines = total_bytes / sizeof(Line) / threads;
  std::vector<std::shared_ptr<void>> streams(threads);
  for (auto& stream : streams) {
    stream = allocate_storage(lines * sizeof(Line));
    std::fill_n(static_cast<uint8_t*>(stream.get()), lines * sizeof(Line), uint8_t{1});
  }
  double best = 0;
  for (const auto begin = Clock::now(); best == 0 || seconds_since(begin) < seconds;) {
    best = std::max(best, rate_of_all(threads, [&](int thread) {
                      const Line* data = static_cast<const Line*>(streams[thread].get());
                      Line sums[4] = {};
                      for (size_t i = 0; i + 4 <= lines; i += 4) {
#pragma clang loop unroll(full)
                        for (int j = 0; j < 4; ++j) sums[j] ^= data[i + j];
                      }
                      for (Line& sum : sums) asm volatile("" : : "m"(sum));
                      return static_cast<double>(lines * sizeof(Line));
                    }));
  }
  return best;
}

}  // namespace tw
