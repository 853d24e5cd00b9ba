#include "autotune/measure/program/job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "autotune/measure/child.h"
#include "autotune/measure/message.h"
#include "autotune/measure/program/contest.h"
#include "runtime/artifact/artifact.h"
#include "runtime/machine/cpu_features.h"
#include "runtime/machine/facts.h"

namespace tw::autotune {
namespace {

void read_all(void* data, size_t bytes) {
  for (auto* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t count = read(STDIN_FILENO, at, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw Error(ErrorCode::artifact, "the request ends in its middle");
    at += count;
    bytes -= static_cast<size_t>(count);
  }
}

void write_all(const void* data, size_t bytes) {
  for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t count = write(STDOUT_FILENO, at, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody listens any more
    at += count;
    bytes -= static_cast<size_t>(count);
  }
}

// A part of the request in memory, under a name that can be opened: a board may have no place for files.
class Part {
 public:
  explicit Part(uint64_t bytes) : bytes_(bytes), descriptor_(new_file()) {
    void* memory = MAP_FAILED;
    if (descriptor_ >= 0 && ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0)
      memory = mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);  // + 1: none is empty
    if (memory == MAP_FAILED) throw Error(ErrorCode::limit, "no memory for " + std::to_string(bytes) + " bytes");
    memory_ = static_cast<std::byte*>(memory);
    read_all(memory_, bytes);
  }
  std::span<const std::byte> data() const { return {memory_, static_cast<size_t>(bytes_)}; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:  // for as long as the process lives
  // Above the descriptors that the child has.
  static int new_file() {
    const int descriptor = memfd_create("tilewright-part", MFD_CLOEXEC);
    const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, 16);
    close(descriptor);
    return moved;
  }
  uint64_t bytes_;
  int descriptor_;
  std::byte* memory_ = nullptr;
};

pid_t fork_child(const std::string& candidate, const std::string& incumbent, int exchange, int report) {
  const pid_t process = fork();
  if (process < 0) throw Error(ErrorCode::file, std::string("no process: ") + std::strerror(errno));
  if (process > 0) {
    setpgid(process, process);
    return process;
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, descriptor);
  dup2(exchange, exchange_descriptor);
  dup2(report, report_descriptor);
  _exit(run_contest(candidate.c_str(), incumbent.c_str()));
}

ChildResult measure_request() {
  uint64_t sizes[request_parts];
  read_all(sizes, sizeof sizes);
  for (const uint64_t size : sizes)
    if (size > static_cast<uint64_t>(most_part_bytes) || size > SIZE_MAX / 2)
      throw Error(ErrorCode::limit, "a part of absurd size");
  const Part header_part(sizes[0]), candidate(sizes[1]), incumbent(sizes[2]), inputs(sizes[3]);
  const RequestHeader header = read_header(header_part.data());
  const Plan plan = Artifact::open(candidate.path()).plans.general;
  const ExchangeLayout layout(plan);
  if (static_cast<int64_t>(inputs.data().size()) != layout.all_inputs())
    throw Error(ErrorCode::artifact, "the inputs are not the candidate's");

  ChildRequest request;
  request.plan = &plan;
  request.fill = [&](std::span<std::byte> memory) {
    if (!memory.empty()) std::memcpy(memory.data(), inputs.data().data(), memory.size());
  };
  request.threads = header.threads;
  request.seconds = header.seconds, request.worst_ratio = header.worst_ratio;
  request.limit_seconds = header.limit_seconds;
  request.memory_bytes = address_space(plan, header.threads, header.memory_bytes,
                                       static_cast<int64_t>(candidate.data().size() + incumbent.data().size()));
  request.wants_profile = header.wants_profile;
  ChildResult result = run_child(request, [&](int exchange, int report) {
    return fork_child(candidate.path(), incumbent.path(), exchange, report);
  });
  if (!header.wants_incumbent) keep_candidate_outputs(layout, result.outputs);
  return result;
}

}  // namespace

int serve_job() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // with the worker
  Answer answer;
  try {
    answer.result = measure_request();
  } catch (const std::exception& error) {
    answer.problem = error.what();
  }
  const std::vector<std::byte> bytes = write_answer(answer);
  write_all(bytes.data(), bytes.size());
  return 0;
}

int print_facts() {
  MachineFacts facts = this_machine();
  facts.gpu = this_gpu();
  const std::string text = to_text(facts);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  return 0;
}

}  // namespace tw::autotune
