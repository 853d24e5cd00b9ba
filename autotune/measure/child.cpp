#include "autotune/measure/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "runtime/error.h"

namespace tw::autotune {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& action, int error) {
  throw Error(ErrorCode::file, "measuring: " + action + ": " + std::strerror(error));
}

// Above those that a child has, so that handing them over never closes one of the two.
int moved_up(int descriptor) {
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, 16);
  const int error = errno;
  close(descriptor);
  if (moved < 0) fail("a descriptor", error);
  return moved;
}

// The exchange: memory that the child cannot make smaller under our feet.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    descriptor_ = memfd_create("tilewright-exchange", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor_ < 0) fail("memory to share", errno);
    descriptor_ = moved_up(descriptor_);
    void* memory = MAP_FAILED;
    if (ftruncate(descriptor_, bytes) == 0 &&
        fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
      memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (memory == MAP_FAILED) {
      const int error = errno;
      close(descriptor_);
      fail("memory to share", error);
    }
    memory_ = static_cast<std::byte*>(memory);
  }
  ~SharedMemory() {
    munmap(memory_, bytes_);
    close(descriptor_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  int descriptor() const { return descriptor_; }
  std::byte* data() { return memory_; }

 private:
  size_t bytes_;
  int descriptor_ = -1;
  std::byte* memory_ = nullptr;
};

// What the child says of itself before it runs anything that is measured: less than a pipe holds.
class Report {
 public:
  Report() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) fail("a pipe", errno);
    read_ = ends[0];
    write_ = moved_up(ends[1]);
  }
  ~Report() {
    close(read_);
    if (write_ >= 0) close(write_);
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;
  int descriptor() const { return write_; }
  void has_been_handed_over() { close(std::exchange(write_, -1)); }
  std::string text() const {
    char buffer[1024];
    const ssize_t bytes = read(read_, buffer, sizeof buffer);
    return {buffer, static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }

 private:
  int read_ = -1, write_ = -1;
};

class Child {
 public:
  explicit Child(pid_t process) : process_(process) {}
  ~Child() {
    if (process_ > 0) end();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Whether it has ended by itself, within what is left of the time.
  bool wait(Clock::time_point deadline, const std::function<bool()>& is_cancelled) {
    auto pause = std::chrono::microseconds(200);
    for (;;) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
        end();
        return true;
      }
      if (Clock::now() > deadline) return end(), false;
      if (is_cancelled && is_cancelled())
        throw Error(ErrorCode::input, "the job was ended\n  help: the same command goes on where it stopped");
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(5000));
    }
  }
  int status() const { return status_; }
  double processor_seconds() const {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage_.ru_utime) + seconds(usage_.ru_stime);
  }

 private:
  // With all that it may have started.
  void end() {
    kill(-process_, SIGKILL);
    kill(process_, SIGKILL);
    wait4(process_, &status_, 0, &usage_);
    process_ = -1;
  }
  pid_t process_;
  int status_ = 0;
  rusage usage_{};
};

// Anything may stand in what a candidate could write to.
std::string printable(const char* text, size_t most) {
  std::string result(text, strnlen(text, most));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = ' ';
  return result;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGSYS) return "it made a system call that kernels have no use for";
    if (signal == SIGKILL) return "killed from outside, as systems do that run out of memory";
    return std::string("ended by ") + strsignal(signal);
  }
  return "ended with status " + std::to_string(WEXITSTATUS(status)) + " before it was measured";
}

std::string in_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

// Times as far as they are some; false: they cannot be what the child measures.
bool read_times(const Exchange& exchange, bool is_timed, const std::byte* steps, size_t step_count,
                ChildResult& result) {
  const auto is_time = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
  const uint32_t rounds = exchange.rounds.load();
  if (rounds > most_rounds || (is_timed && rounds < least_rounds)) return false;
  for (uint32_t round = 0; round < rounds; ++round) {
    const Sample sample{exchange.incumbent[round], exchange.candidate[round]};
    if (!is_time(sample.incumbent) || !is_time(sample.candidate)) return false;
    result.samples.push_back(sample);
  }
  result.step_seconds.resize(step_count);
  if (step_count > 0) std::memcpy(result.step_seconds.data(), steps, step_count * sizeof(double));
  return std::all_of(result.step_seconds.begin(), result.step_seconds.end(),
                     [](double seconds) { return std::isfinite(seconds) && seconds >= 0; });
}

}  // namespace

int64_t address_space(const Plan& plan, int threads, int64_t most, int64_t artifact_bytes) {
  // A thread's stack and allocator reserve far more addresses than they use.
  return most + threads * (int64_t{128} << 20) + 2 * ExchangeLayout(plan).bytes + 3 * artifact_bytes +
         2 * plan.arena_bytes;
}

ChildResult run_child(const ChildRequest& request, const StartChild& start) {
  const size_t steps = request.wants_profile ? request.plan->steps.size() : 0;
  const ExchangeLayout layout(*request.plan, steps);
  SharedMemory memory(layout.bytes);
  auto& exchange = *new (memory.data()) Exchange;
  exchange.threads = static_cast<uint32_t>(request.threads);
  exchange.seconds = request.seconds;
  exchange.worst_ratio = request.worst_ratio;
  exchange.limit_seconds = request.limit_seconds;
  exchange.memory_bytes = request.memory_bytes;
  exchange.wants_profile = request.wants_profile;
  request.fill({memory.data() + layout.first_input(), static_cast<size_t>(layout.all_inputs())});

  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.limit_seconds));
  Report report;
  Child child(start(memory.descriptor(), report.descriptor()));
  report.has_been_handed_over();
  const bool has_ended = child.wait(deadline, request.is_cancelled);
  const int status = child.status();
  const std::string said = report.text();
  if (said.empty() || said[0] != is_loaded) {
    // Nothing of the candidate has run.
    if (!said.empty()) throw Error(ErrorCode::file, "measuring: " + printable(said.data(), said.size()));
    const std::string how = has_ended ? how_it_ended(status) : "nothing for " + in_seconds(request.limit_seconds);
    throw Error(ErrorCode::file, "measuring: tw-measure: " + how +
                                     ", and nothing was loaded\n  help: it is built and installed with this version");
  }

  ChildResult result;
  result.filters_calls = exchange.filters_calls != 0;
  const auto end_as = [&](Status how, std::string detail) {
    result.status = how, result.detail = std::move(detail);
    return result;
  };
  if (!has_ended) return end_as(Status::timeout, "it took longer than " + in_seconds(request.limit_seconds));
  const double processor_limit = request.limit_seconds * request.threads;
  const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if ((WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) ||
      (is_killed && child.processor_seconds() >= processor_limit))
    return end_as(Status::timeout, "it took more than " + in_seconds(processor_limit) + " of the processors' time");
  const auto progress = static_cast<Progress>(exchange.progress.load());
  if (progress == Progress::failed && WIFEXITED(status))
    return end_as(Status::crash, "it failed: " + printable(exchange.message, sizeof exchange.message));
  if (progress != Progress::measured || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return end_as(Status::crash, how_it_ended(status));
  if (!read_times(exchange, request.seconds > 0, memory.data() + layout.step_seconds, steps, result)) {
    result.samples.clear();
    result.step_seconds.clear();
    return end_as(Status::crash, "it left times that are none");
  }
  const std::byte* outputs = memory.data() + layout.first_output;
  result.outputs.assign(outputs, outputs + layout.all_outputs());
  return result;
}

}  // namespace tw::autotune
