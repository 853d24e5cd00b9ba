#include "runtime/machine/machine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "runtime/machine/cpu_features.h"
#include "runtime/memory.h"
#include "runtime/team.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The loops that are timed, for one instruction set.  `fma` runs ACCUMULATORS independent chains, at least latency
// times ports of any such CPU; `read` loads a whole array and asks for what is `ahead` bytes on, unless that is 0;
// `copy` stores past the caches, so that lines are not read before they are written.
struct Loops {
  double flops_per_iteration;
  void (*fma)(int64_t iterations);
  void (*read)(const void* data, size_t bytes, size_t ahead);
  void (*copy)(void* to, const void* from, size_t bytes);
};

// MULTIPLY_ADD(x, y) is x = x·y + y as an instruction in assembly: left to itself the compiler may spill or reorder,
// and then the peak would be the compiler's.
#define TW_DEFINE_LOOPS(NAME, ATTRIBUTE, BYTES, ACCUMULATORS, MULTIPLY_ADD)                                      \
  ATTRIBUTE void NAME##_fma(int64_t iterations) {                                                                \
    typedef float V __attribute__((vector_size(BYTES)));                                                         \
    V factor = V{} + 0.5f, accumulators[ACCUMULATORS] = {};                                                      \
    _Pragma("clang loop unroll(disable)") for (int64_t iteration = 0; iteration < iterations; ++iteration) {     \
      _Pragma("clang loop unroll(full)") for (int i = 0; i < ACCUMULATORS; ++i) {                                \
        MULTIPLY_ADD(accumulators[i], factor);                                                                   \
      }                                                                                                          \
    }                                                                                                            \
  }                                                                                                              \
  ATTRIBUTE void NAME##_read(const void* data, size_t bytes, size_t ahead) {                                     \
    typedef uint64_t V __attribute__((vector_size(BYTES)));                                                      \
    constexpr int vectors = 256 / BYTES;                                                                         \
    const char* at = static_cast<const char*>(data);                                                             \
    V sums[vectors] = {};                                                                                        \
    for (const char* end = at + bytes / 256 * 256; at != end; at += 256) {                                       \
      if (ahead != 0) {                                                                                          \
        _Pragma("clang loop unroll(full)") for (int i = 0; i < 256; i += 64) __builtin_prefetch(at + ahead + i); \
      }                                                                                                          \
      const V* here = reinterpret_cast<const V*>(at);                                                            \
      _Pragma("clang loop unroll(full)") for (int i = 0; i < vectors; ++i) sums[i] ^= here[i];                   \
    }                                                                                                            \
    asm volatile("" ::"m"(sums));                                                                                \
  }                                                                                                              \
  ATTRIBUTE void NAME##_copy(void* to, const void* from, size_t bytes) {                                         \
    typedef uint64_t V __attribute__((vector_size(BYTES)));                                                      \
    V* target = static_cast<V*>(to);                                                                             \
    const V* source = static_cast<const V*>(from);                                                               \
    for (size_t at = 0; at < bytes / sizeof(V); ++at) __builtin_nontemporal_store(source[at], target + at);      \
    std::atomic_thread_fence(std::memory_order_seq_cst);                                                         \
  }                                                                                                              \
  constexpr Loops NAME##_loops() {                                                                               \
    return {2.0 * ACCUMULATORS * BYTES / sizeof(float), NAME##_fma, NAME##_read, NAME##_copy};                   \
  }

#if defined(__x86_64__)
#define TW_FMA_X86(x, y) asm volatile("vfmadd213ps %1, %1, %0" : "+v"(x) : "v"(y))
#define TW_MUL_ADD_X86(x, y) asm volatile("mulps %1, %0\n\taddps %1, %0" : "+x"(x) : "x"(y))
TW_DEFINE_LOOPS(avx512, __attribute__((target("avx512f"), noinline)), 64, 16, TW_FMA_X86)
TW_DEFINE_LOOPS(avx2, __attribute__((target("avx2,fma"), noinline)), 32, 12, TW_FMA_X86)
TW_DEFINE_LOOPS(sse2, __attribute__((noinline)), 16, 12, TW_MUL_ADD_X86)

Loops best_loops() {
  const HostCpu& cpu = host_cpu();
  if (cpu.has("avx512f")) return avx512_loops();
  if (cpu.has("avx2") && cpu.has("fma")) return avx2_loops();
  return sse2_loops();
}
#elif defined(__aarch64__)
#define TW_FMA_NEON(x, y) asm volatile("fmla %0.4s, %1.4s, %1.4s" : "+w"(x) : "w"(y))
TW_DEFINE_LOOPS(neon, __attribute__((noinline)), 16, 20, TW_FMA_NEON)
Loops best_loops() {
  return neon_loops();
}
#else
// The program itself needs NEON only, so that it lives to say what else is lacking.
#define TW_FMA_NEON(x, y) asm volatile(".fpu neon-vfpv4\n\tvfma.f32 %q0, %q1, %q1" : "+w"(x) : "w"(y))
TW_DEFINE_LOOPS(neon, __attribute__((noinline)), 16, 12, TW_FMA_NEON)
Loops best_loops() {
  return neon_loops();
}
#endif

// Calls part(worker) on all workers again and again for about `seconds`; the shortest time that one round took.
template <class Part>
double best_round(Team& team, double seconds, Part&& part) {
  double best = 1e9;
  Clock::time_point begin = Clock::now();
  std::atomic<bool> go_on{true};  // worker 0 alone looks at the clock
  team.run([&](int w) {
    for (int round = 0;; ++round) {
      if (w == 0) go_on = round < 3 || seconds_since(begin) < seconds;
      team.barrier(w);
      if (!go_on) break;
      Clock::time_point start = Clock::now();
      part(w);
      team.barrier(w);
      if (w == 0 && round > 0) best = std::min(best, seconds_since(start));
    }
  });
  return best;
}

// Four times the last cache, within 64 to 512 MB and an eighth of the memory; each worker has a part and touches it
// first.
struct Array {
  std::shared_ptr<void> storage;
  size_t part;

  explicit Array(Team& team) {
    const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    const CacheSizes caches = cache_sizes();
    const int64_t wanted = std::min(
        std::clamp<int64_t>(4 * std::max(caches.l2, caches.l3), int64_t{64} << 20, int64_t{512} << 20), memory / 8);
    part = static_cast<size_t>(wanted / team.size()) / 8192 * 8192;
    storage = allocate_storage(part * team.size());
    team.run([&](int w) { std::memset(of_worker(w), 1, part); });
  }
  char* of_worker(int w) const { return static_cast<char*>(storage.get()) + w * part; }
};

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void place(CacheSizes& caches, int level, int64_t bytes, int ways) {
  if (level == 1) caches.l1_data = bytes, caches.l1_ways = ways;
  if (level == 2) caches.l2 = bytes;
  if (level == 3) caches.l3 = bytes;
}

}  // namespace

CacheSizes cache_sizes() {
  CacheSizes caches;
  for (int index = 0; index < 16; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string size = read_line(folder + "size"), type = read_line(folder + "type");
    if (size.empty()) break;
    if (type == "Instruction") continue;
    char unit = 0;
    long long bytes = 0;
    std::sscanf(size.c_str(), "%lld%c", &bytes, &unit);
    bytes *= unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1;
    const int level = std::atoi(read_line(folder + "level").c_str()),
              ways = std::atoi(read_line(folder + "ways_of_associativity").c_str());
    place(caches, level, bytes, ways);
  }
#if defined(__x86_64__)
  // Intel's leaf 4 and AMD's 0x8000001d describe caches alike.
  for (unsigned leaf : {4u, 0x8000001du}) {
    if (caches.l1_data != 0 || __get_cpuid_max(leaf & 0x80000000u, nullptr) < leaf) continue;
    for (unsigned index = 0; index < 16; ++index) {
      unsigned eax, ebx, ecx, edx;
      __cpuid_count(leaf, index, eax, ebx, ecx, edx);
      unsigned type = eax & 31;
      if (type == 0) break;
      const int ways = static_cast<int>((ebx >> 22) + 1);
      const int64_t bytes = int64_t{ways} * ((ebx >> 12 & 1023) + 1) * ((ebx & 4095) + 1) * (int64_t{ecx} + 1);
      if (type != 2) place(caches, eax >> 5 & 7, bytes, ways);
    }
  }
#endif
  return caches;
}

double measure_peak_flops(int threads, double seconds) {
  const Loops loops = best_loops();
  TeamLease team(threads);
  // Rounds of about two milliseconds: long beside a barrier, short beside what disturbs a machine.
  int64_t iterations = 1000;
  for (double time = 0; time < 2e-3; iterations *= 2) {
    Clock::time_point start = Clock::now();
    loops.fma(iterations);
    time = seconds_since(start);
  }
  double time = best_round(*team, seconds, [&](int) { loops.fma(iterations); });
  return threads * loops.flops_per_iteration * static_cast<double>(iterations) / time;
}

double measure_read_bandwidth(int threads, double seconds) {
  const Loops loops = best_loops();
  TeamLease team(threads);
  const Array array(*team);
  // What hardware prefetchers keep in flight is often less than what a core can wait for.
  double time = 1e9;
  for (const size_t ahead : {0, 1024}) {
    const auto part = [&](int w) { loops.read(array.of_worker(w), array.part, ahead); };
    time = std::min(time, best_round(*team, seconds / 2, part));
  }
  return threads * static_cast<double>(array.part) / time;
}

double measure_copy_bandwidth(int threads, double seconds) {
  const Loops loops = best_loops();
  TeamLease team(threads);
  const Array array(*team);
  const size_t half = array.part / 2;
  // The C library's way, or past the caches: whichever is faster here.
  const double usual =
      best_round(*team, seconds / 2, [&](int w) { std::memcpy(array.of_worker(w), array.of_worker(w) + half, half); });
  const double streaming =
      best_round(*team, seconds / 2, [&](int w) { loops.copy(array.of_worker(w), array.of_worker(w) + half, half); });
  return threads * 2.0 * static_cast<double>(half) / std::min(usual, streaming);
}

}  // namespace tw
