#include "autotune/measure/program/confine.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace tw::autotune {
namespace {

#if defined(__x86_64__)
constexpr uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t architecture = AUDIT_ARCH_ARM;
#endif

// `margin`: until what cannot be survived.
void limit(__rlimit_resource_t resource, rlim_t most, rlim_t margin = 0) {
  const rlimit both{most, most + margin};
  setrlimit(resource, &both);  // the job waits by the clock, too
}

// Memory, waiting for each other, the time, and the end.
const std::vector<int>& calls_of_kernels() {
  static const std::vector<int> list = {
      SYS_futex,
      SYS_munmap,
      SYS_mprotect,
      SYS_madvise,
      SYS_mremap,
      SYS_brk,
      SYS_clock_gettime,
      SYS_clock_nanosleep,
      SYS_nanosleep,
      SYS_sched_yield,
      SYS_getcpu,
      SYS_sched_getaffinity,
      SYS_restart_syscall,
      SYS_exit,
      SYS_exit_group,
      SYS_rt_sigreturn,
      SYS_rt_sigprocmask,
      SYS_sigaltstack,  // of a thread that ends under AddressSanitizer
#if defined(SYS_mmap)
      SYS_mmap,
#endif
#if defined(SYS_mmap2)
      SYS_mmap2,
#endif
#if defined(SYS_clock_gettime64)
      SYS_clock_gettime64,
#endif
#if defined(SYS_futex_time64)
      SYS_futex_time64,
#endif
  };
  return list;
}

// Of all threads that this process has.
std::vector<uint32_t> own_threads() {
  std::vector<uint32_t> numbers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error))
    numbers.push_back(static_cast<uint32_t>(std::stoul(entry.path().filename())));
  return numbers;
}

}  // namespace

void limit_resources(int64_t memory_bytes, double cpu_seconds, bool has_driver) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, static_cast<rlim_t>(std::ceil(cpu_seconds)), 1);  // SIGXCPU tells it from other ends
  if (has_driver) return;
  prctl(PR_SET_DUMPABLE, 0);
  limit(RLIMIT_FSIZE, 0);
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)  // whose shadow takes terabytes
  limit(RLIMIT_AS, static_cast<rlim_t>(memory_bytes));
#else
  (void)memory_bytes;
#endif
}

bool confine() {
  limit(RLIMIT_NPROC, 0);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  const auto allow = [&](uint32_t number) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  };
  for (const int call : calls_of_kernels()) allow(static_cast<uint32_t>(call));
  // A team moves its workers, but nobody else's.
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 1, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)));
  for (const uint32_t thread : own_threads()) allow(thread);
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  // Of all threads: the team has started.
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

}  // namespace tw::autotune
