// Before each timed run, all workers sweep through memory of the size of their caches: in a network, what a kernel
// reads was pushed out since it was last used.  A GPU does so itself, and has its own clock; its kernels can make no
// system calls, which its driver needs, so this process has no filter of them then.
#include "autotune/measure/program/contest.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "autotune/measure/exchange.h"
#include "autotune/measure/program/confine.h"
#include "autotune/measure/ratio.h"
#include "runtime/artifact/artifact.h"
#include "runtime/executable.h"
#include "runtime/machine/machine.h"
#include "runtime/team.h"

namespace tw::autotune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int profile_repetitions = 5;
constexpr int gpu_repetitions = 3;  // of a run, for one sample

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The workers that a run of the plan wakes.
int useful_threads(const Plan& plan, int threads) {
  int64_t most_tasks = 1;
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::kernel && step.tasks.is_known()) most_tasks = std::max<int64_t>(most_tasks, step.tasks);
  return static_cast<int>(std::min<int64_t>(threads, most_tasks));
}

class Sweep {
 public:
  explicit Sweep(int threads) : team_(threads), memory_(static_cast<size_t>(threads)) {
    const int64_t cache = cache_sizes().l2;
    for (auto& memory : memory_) memory.assign(static_cast<size_t>(cache > 0 ? cache + cache / 2 : 2 << 20), 0);
  }
  void run() {
    team_->run([&](int w) {
      volatile char* memory = memory_[static_cast<size_t>(w)].data();
      for (size_t i = 0; i < memory_[static_cast<size_t>(w)].size(); i += 64) memory[i] = memory[i] + 1;
    });
  }

 private:
  TeamLease team_;
  std::vector<std::vector<char>> memory_;
};

class Contender {
 public:
  Contender(const char* path, char* memory, int threads, bool is_incumbent)
      : executable_(Executable::load(path)), memory_(memory), layout_(executable_.plan()), is_incumbent_(is_incumbent) {
    executable_.set_threads(threads);
  }
  const Plan& plan() const { return executable_.plan(); }
  std::vector<StepProfile> profile() { return executable_.profile(inputs_, profile_repetitions); }
  const ExchangeLayout& layout() const { return layout_; }

  void prepare(int set) {
    const auto views = [&](const std::vector<TensorInfo>& tensors, const auto& place) {
      std::vector<NDArray> arrays;
      for (size_t i = 0; i < tensors.size(); ++i)
        arrays.push_back(NDArray(tensors[i].dtype, tensors[i].shape, memory_ + place(i), nullptr));
      return arrays;
    };
    inputs_ = views(plan().inputs, [&](size_t i) { return layout_.input(i, set); });
    outputs_ = views(plan().outputs, [&](size_t i) { return layout_.output(i, set, is_incumbent_); });
  }
  // What a candidate does not write differs from what the incumbent writes.
  void poison() {
    const std::byte poison = is_incumbent_ ? incumbent_poison : candidate_poison;
    for (NDArray& output : outputs_) std::memset(output.data(), std::to_integer<int>(poison), output.byte_size());
    if (executable_.is_of_gpu()) executable_.fill_scratch(poison);  // outputs are there first
  }
  // Fresh memory is zero, which may be just what a kernel that forgets to write it needs.
  void poison_scratch() { executable_.fill_scratch(candidate_poison); }
  // Both draw the same random numbers in the next run.
  void reseed() { executable_.set_seed(0); }
  double run() {
    const Clock::time_point start = Clock::now();
    executable_.run_into(inputs_, outputs_);
    return seconds_since(start);
  }
  // By the clock of the device, where it has one, and with its caches swept.
  double time() { return executable_.is_of_gpu() ? executable_.time_run(inputs_, gpu_repetitions) : run(); }

 private:
  Executable executable_;
  char* memory_;
  ExchangeLayout layout_;
  bool is_incumbent_;
  std::vector<NDArray> inputs_, outputs_;
};

void set_progress(Exchange& exchange, Progress progress) {
  exchange.progress = static_cast<uint32_t>(progress);
}

void time_in_turn(Exchange& exchange, Contender& candidate, Contender& incumbent, std::optional<Sweep>& sweep) {
  const Clock::time_point start = Clock::now();
  std::vector<Sample> samples;
  const auto time = [&](Contender& contender) {
    if (sweep) sweep->run();
    return contender.time();
  };
  while (!is_enough(samples, seconds_since(start), exchange.seconds, exchange.worst_ratio)) {
    const size_t round = samples.size();
    double ours, theirs;
    if (round % 2 == 0) {
      theirs = time(incumbent), ours = time(candidate);
    } else {
      ours = time(candidate), theirs = time(incumbent);
    }
    exchange.candidate[round] = ours, exchange.incumbent[round] = theirs;
    samples.push_back({theirs, ours});
    exchange.rounds = static_cast<uint32_t>(samples.size());
  }
}

void report(std::string_view text) {
  const ssize_t ignored = write(report_descriptor, text.data(), std::min<size_t>(text.size(), 512));
  (void)ignored;
  close(report_descriptor);
}

bool is_for_gpu(const char* path) {
  return Artifact::open(path).requirements.architecture == "cuda";
}

// Reports that both are loaded, before anything of them runs.
void measure(Exchange& exchange, char* memory, int64_t bytes, const char* candidate_path, const char* incumbent_path,
             bool on_gpu, bool& is_reported) {
  const int threads = static_cast<int>(exchange.threads);
  // A GPU that takes the incumbent is a good one: what it does not take of the candidate is the candidate's doing.
  std::optional<Executable> taken;
  if (on_gpu) {
    taken.emplace(Executable::load(incumbent_path));
    report({&is_loaded, 1});
    is_reported = true;
  }
  Contender candidate(candidate_path, memory, threads, false), incumbent(incumbent_path, memory, threads, true);
  const size_t steps = exchange.wants_profile ? candidate.plan().steps.size() : 0;
  const ExchangeLayout layout(candidate.plan(), steps);
  check(layout.bytes == bytes && ExchangeLayout(incumbent.plan(), steps).bytes == bytes, "the exchange fits");
  taken.reset();
  std::optional<Sweep> sweep;
  if (!on_gpu) {
    sweep.emplace(threads);
    // Every team that a run asks for is there, and every worker of it has done what a thread begins with, before
    // neither is possible any more.
    const std::set<int> sizes = {useful_threads(candidate.plan(), threads), useful_threads(incumbent.plan(), threads)};
    for (const int size : sizes) TeamLease(size)->run([](int) {});
    // The sweep's own, too.
    sweep->run();
    report({&is_loaded, 1});
    is_reported = true;
    exchange.filters_calls = confine();
  }
  for (Contender* contender : {&incumbent, &candidate}) {
    contender->prepare(0);
    contender->run();  // each worker has touched its memory
    contender->poison_scratch();
  }
  for (int set = input_sets; set-- > 0;) {
    for (Contender* contender : {&incumbent, &candidate}) {
      contender->prepare(set);
      contender->poison();
      contender->reseed();
      contender->run();
    }
  }
  if (steps > 0) {
    auto* seconds = reinterpret_cast<double*>(memory + layout.step_seconds);
    for (const StepProfile& step : candidate.profile()) *seconds++ = step.seconds;
  }
  if (exchange.seconds > 0) time_in_turn(exchange, candidate, incumbent, sweep);
  set_progress(exchange, Progress::measured);
}

}  // namespace

int run_contest(const char* candidate, const char* incumbent) {
  bool is_reported = false;
  struct stat status;
  if (fstat(exchange_descriptor, &status) != 0 || status.st_size < static_cast<off_t>(sizeof(Exchange))) return 2;
  void* memory =
      mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, exchange_descriptor, 0);
  if (memory == MAP_FAILED) return 2;
  close(exchange_descriptor);
  Exchange& exchange = *static_cast<Exchange*>(memory);
  try {
    // Code for the host is confined whatever it is measured beside.
    const bool on_gpu = is_for_gpu(candidate) && is_for_gpu(incumbent);
    limit_resources(exchange.memory_bytes, exchange.limit_seconds * exchange.threads, on_gpu);
    measure(exchange, static_cast<char*>(memory), status.st_size, candidate, incumbent, on_gpu, is_reported);
    return 0;
  } catch (const std::exception& error) {
    if (!is_reported) report(error.what());
    std::strncpy(exchange.message, error.what(), sizeof exchange.message - 1);
    set_progress(exchange, Progress::failed);
    return 1;
  }
}

}  // namespace tw::autotune
