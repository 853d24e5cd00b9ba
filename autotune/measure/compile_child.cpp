// The copy has this thread alone.  The compiler needs no other, starts its own, and holds no lock between two
// compilations, so there is none that nobody would open; a lock that another thread of the program holds just now, in a
// compilation of its own, costs the candidate after the time limit.  A program of its own instead would have to hold
// the compiler once more, which is most of what is installed.
#include "autotune/measure/compile_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "runtime/error.h"

namespace tw::autotune {
namespace {

using Clock = std::chrono::steady_clock;

void tell(int descriptor, char kind, const std::string& text) {
  const std::string message = kind + text;
  for (size_t at = 0; at < message.size();) {
    const ssize_t count = write(descriptor, message.data() + at, message.size() - at);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) at += static_cast<size_t>(count);
  }
}

[[noreturn]] void run_copy(const std::function<int()>& compile, int report) {
  setpgid(0, 0);  // Ctrl-C is for the job
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTERM, SIGINT}) ::signal(signal, SIG_DFL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDERR_FILENO);  // LLVM's last words
  try {
    tell(report, 'v', std::to_string(compile()));
  } catch (const std::exception& error) {
    tell(report, 'e', error.what());
  }
  _exit(0);
}

}  // namespace

CompiledInChild compile_in_child(const std::function<int()>& compile, double limit_seconds,
                                 const std::function<bool()>& is_cancelled) {
  // One after the other, so that no copy holds the pipe of another open.
  static std::mutex starting;
  std::unique_lock one_starts(starting);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorCode::file, std::string("no pipe: ") + std::strerror(errno));
  const pid_t process = fork();
  if (process == 0) run_copy(compile, ends[1]);
  const int fork_error = errno;
  close(ends[1]);
  one_starts.unlock();
  // Whatever happens, the child ends and the descriptor is closed.
  struct Owned {
    pid_t process;
    int descriptor, status = 0;
    ~Owned() { end(); }
    void end() {
      if (process <= 0) return;
      kill(process, SIGKILL);
      while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
      }
      close(descriptor);
      process = -1;
    }
  } child{process, ends[0]};
  if (process < 0) {
    close(ends[0]);
    throw Error(ErrorCode::file, std::string("no process to compile in: ") + std::strerror(fork_error));
  }

  std::string said;
  const auto deadline = Clock::now() + std::chrono::duration<double>(limit_seconds);
  bool has_ended = false;
  while (!has_ended && Clock::now() < deadline) {
    if (is_cancelled && is_cancelled())
      throw Error(ErrorCode::input, "the job was ended\n  help: the same command goes on where it stopped");
    pollfd wait{child.descriptor, POLLIN, 0};
    if (poll(&wait, 1, 50) <= 0) continue;
    char buffer[4096];
    const ssize_t count = read(child.descriptor, buffer, sizeof buffer);
    if (count > 0) said.append(buffer, static_cast<size_t>(count));
    has_ended = count == 0;
  }
  if (has_ended) {  // it has closed the pipe, and ends by itself
    siginfo_t info;
    while (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
  }
  child.end();
  CompiledInChild result;
  if (!has_ended) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g s", limit_seconds);
    result.problem = std::string("the compiler took longer than ") + seconds;
  } else if (said.empty()) {
    result.problem = WIFSIGNALED(child.status)
                         ? std::string("the compiler was ended by ") + strsignal(WTERMSIG(child.status))
                         : "the compiler ended with status " + std::to_string(WEXITSTATUS(child.status));
  } else if (said[0] == 'e') {
    result.problem = said.substr(1);
  } else {
    result.value = std::stoi(said.substr(1));
  }
  return result;
}

}  // namespace tw::autotune
