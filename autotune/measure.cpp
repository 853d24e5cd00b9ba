#include "autotune/measure.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <thread>

#include "autotune/candidate.h"
#include "autotune/exchange.h"
#include "runtime/error.h"

extern char** environ;

namespace tw::autotune {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& action, int error) {
  throw Error(ErrorCode::file, "measuring: " + action + ": " + std::strerror(error) +
                                   "\n  help: tw-measure is built and installed beside the Python module");
}

// The exchange: memory that the child cannot make smaller under our feet.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    descriptor_ = memfd_create("tilewright-exchange", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor_ < 0) fail("memory to share", errno);
    if (ftruncate(descriptor_, bytes) != 0 ||
        fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
      const int error = errno;
      close(descriptor_);
      fail("memory to share", error);
    }
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (memory == MAP_FAILED) {
      const int error = errno;
      close(descriptor_);
      fail("memory to share", error);
    }
    memory_ = static_cast<char*>(memory);
  }
  ~SharedMemory() {
    munmap(memory_, bytes_);
    close(descriptor_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  int descriptor() const { return descriptor_; }
  char* data() { return memory_; }

 private:
  size_t bytes_;
  int descriptor_ = -1;
  char* memory_ = nullptr;
};

// In a process group of its own, so that Ctrl-C reaches the job and not the child; it ends with its owner.
class Child {
 public:
  Child(const MeasureRequest& request, int exchange) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, exchange, 3);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    const std::string program = request.program, candidate = request.candidate, incumbent = request.incumbent;
    const char* arguments[] = {program.c_str(), candidate.c_str(), incumbent.c_str(), nullptr};
    const int error =
        posix_spawn(&process_, program.c_str(), &actions, &attributes, const_cast<char* const*>(arguments), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) fail(program + " cannot be started", error);
  }
  ~Child() {
    if (process_ > 0) end();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Whether it has ended by itself, within what is left of the time.
  bool wait(Clock::time_point deadline, const std::function<bool()>& is_cancelled) {
    auto pause = std::chrono::microseconds(200);
    for (;;) {
      const pid_t ended = waitpid(process_, &status_, WNOHANG);
      if (ended == process_) {
        process_ = -1;
        return true;
      }
      if (Clock::now() > deadline) return false;
      if (is_cancelled && is_cancelled())
        throw Error(ErrorCode::input, "the job was ended\n  help: the same command goes on where it stopped");
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(5000));
    }
  }
  void end() {
    kill(-process_, SIGKILL);
    kill(process_, SIGKILL);
    waitpid(process_, &status_, 0);
    process_ = -1;
  }
  int status() const { return status_; }

 private:
  pid_t process_ = -1;
  int status_ = 0;
};

NDArray copy_of(const char* memory, const TensorInfo& tensor) {
  NDArray array(tensor.dtype, tensor.shape);
  std::memcpy(array.data(), memory, array.byte_size());
  return array;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGSYS) return "it made a system call that kernels have no use for";
    return std::string("ended by ") + strsignal(signal);
  }
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

const char* word_of(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::timeout:
      return "timeout";
    case Status::crash:
      return "crash";
    case Status::wrong:
      return "wrong";
    case Status::spill:
      return "spill";
    case Status::refused:
      return "refused";
  }
  return "";
}

Measurement measure(const MeasureRequest& request) {
  const Plan& plan = *request.plan;
  const ExchangeLayout layout(plan);
  SharedMemory memory(layout.bytes);
  auto& exchange = *new (memory.data()) Exchange;
  exchange.threads = static_cast<uint32_t>(request.threads);
  exchange.seconds = request.seconds;
  exchange.worst_ratio = request.worst_ratio;
  exchange.limit_seconds = request.limit_seconds;
  // A thread's stack and allocator reserve far more addresses than they use.
  exchange.memory_bytes = request.memory_bytes + request.threads * (int64_t{128} << 20) + 2 * layout.bytes;
  for (const auto& path : {request.candidate, request.incumbent})
    exchange.memory_bytes += 3 * static_cast<int64_t>(std::filesystem::file_size(path));
  exchange.memory_bytes += 2 * plan.arena_bytes;
  check(request.inputs.size() == input_sets, "measure: as many sets of inputs as an exchange holds");
  for (int set = 0; set < input_sets; ++set) {
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      const NDArray& array = request.inputs[static_cast<size_t>(set)].at(i);
      std::memcpy(memory.data() + layout.input(i, set), array.data(), array.byte_size());
    }
  }

  Measurement result;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.limit_seconds));
  Child child(request, memory.descriptor());
  const bool has_ended = child.wait(deadline, request.is_cancelled);
  if (!has_ended) child.end();
  result.filters_calls = exchange.filters_calls != 0;
  const auto progress = static_cast<Progress>(exchange.progress.load());
  if (has_ended && progress == Progress::failed) {
    exchange.message[sizeof exchange.message - 1] = 0;
    throw Error(ErrorCode::file, std::string("measuring: ") + exchange.message);
  }
  const bool is_loaded = progress >= Progress::confined;
  if (!is_loaded && has_ended) {
    throw Error(ErrorCode::file, "measuring: " + request.program.string() + " " + how_it_ended(child.status()) +
                                     " before it ran anything\n  help: it is built and installed with this version");
  }
  const bool is_cpu_limit = has_ended && WIFSIGNALED(child.status()) &&
                            (WTERMSIG(child.status()) == SIGXCPU || WTERMSIG(child.status()) == SIGKILL);
  if (!has_ended || is_cpu_limit) {
    result.status = Status::timeout;
    result.detail = "it took longer than " + std::to_string(request.limit_seconds) + " s";
    return result;
  }
  if (progress != Progress::measured || !WIFEXITED(child.status()) || WEXITSTATUS(child.status()) != 0) {
    result.status = Status::crash;
    result.detail = how_it_ended(child.status());
    return result;
  }

  for (int set = 0; set < input_sets; ++set) {
    std::vector<NDArray> ours, theirs;
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      ours.push_back(copy_of(memory.data() + layout.output(i, set, false), plan.outputs[i]));
      theirs.push_back(copy_of(memory.data() + layout.output(i, set, true), plan.outputs[i]));
    }
    const std::vector<NDArray>& right = request.expected.empty() ? theirs : request.expected[static_cast<size_t>(set)];
    if (const std::string difference = find_difference(ours, right); !difference.empty()) {
      result.status = Status::wrong;
      result.detail = "inputs " + std::to_string(set) + ", " + difference;
      return result;
    }
    result.outputs.push_back(std::move(ours));
  }
  const uint32_t rounds = std::min(exchange.rounds.load(), most_rounds);
  for (uint32_t round = 0; round < rounds; ++round) {
    const Sample sample{exchange.incumbent[round], exchange.candidate[round]};
    if (sample.incumbent > 0 && sample.candidate > 0 && std::isfinite(sample.incumbent + sample.candidate))
      result.samples.push_back(sample);
  }
  return result;
}

Ratio ratio_of(const std::vector<Sample>& samples) {
  std::vector<double> ratios;
  for (const Sample& sample : samples) ratios.push_back(sample.candidate / sample.incumbent);
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  // The ranks between which the median lies with 95 % confidence, by the normal approximation of the binomial.
  const auto at = [&](double rank) { return ratios[static_cast<size_t>(std::clamp(rank, 0.0, n - 1))]; };
  const double half = 0.98 * std::sqrt(n);
  return {(at(std::floor((n - 1) / 2)) + at(std::ceil((n - 1) / 2))) / 2, at(std::floor(n / 2 - half)),
          at(std::ceil(n / 2 + half))};
}

}  // namespace tw::autotune
