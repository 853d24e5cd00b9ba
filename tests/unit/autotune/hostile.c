// Kernels that do what no candidate should: freestanding, x → out, one f32 each.  Built by autotune.cmake.
typedef long long int64_t_;
typedef void* const* Buffers;

static long call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__arm__)
  long arguments[7] = {a, b, c, d, e, f, number};
  register long* r0 asm("r0") = arguments;
  asm volatile(
      "push {r7}\n\tldr r7, [r0, #24]\n\tldr r1, [r0, #4]\n\tldr r2, [r0, #8]\n\tldr r3, [r0, #12]\n\t"
      "ldr r4, [r0, #16]\n\tldr r5, [r0, #20]\n\tldr r0, [r0]\n\tsvc 0\n\tpop {r7}"
      : "+r"(r0)
      :
      : "r1", "r2", "r3", "r4", "r5", "memory");
  return (long)r0;
#else
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  register long x8 asm("x8") = number;
  asm volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8) : "memory");
  return x0;
#endif
}

// As autotune/measure/exchange.h has it; autotune_hostile.h compares.  The inputs lie in the page behind its first.
struct Exchange {
  unsigned threads;
  double seconds, worst_ratio;
  int64_t_ memory_bytes;
  double limit_seconds;
  unsigned wants_profile;
  unsigned progress, filters_calls, rounds;
  double incumbent[256], candidate[256];
  char message[512];
};
#define EXCHANGE ((volatile struct Exchange*)(((unsigned long)buffers[0] & ~4095ul) - 4096))

#if defined(__x86_64__)
enum {
  call_write = 1,
  call_mmap = 9,
  call_clone = 56,
  call_kill = 62,
  call_openat = 257,
  call_getppid = 110,
  call_exit = 231,
  call_sleep = 35,
  call_munmap = 11,
  call_mprotect = 10,
  call_setaffinity = 203
};
#elif defined(__arm__)
enum {
  call_write = 4,
  call_mmap = 192,
  call_clone = 120,
  call_kill = 37,
  call_openat = 322,
  call_getppid = 64,
  call_exit = 248,
  call_sleep = 162,
  call_munmap = 91,
  call_mprotect = 125,
  call_setaffinity = 241
};
#else
enum {
  call_write = 64,
  call_mmap = 222,
  call_clone = 220,
  call_kill = 129,
  call_openat = 56,
  call_getppid = 173,
  call_exit = 94,
  call_sleep = 101,
  call_munmap = 215,
  call_mprotect = 226,
  call_setaffinity = 122
};
#endif

#define KERNEL(name) void name(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last)
#define X (*(const float*)buffers[0])
#define OUT (*(float*)buffers[1])

KERNEL(right) {
  OUT = 2 * X;
}
KERNEL(wrong) {
  OUT = 2 * X + 1;
}
KERNEL(silent) {}
KERNEL(crash) {
  *(volatile float*)16 = X;
}
KERNEL(endless) {
  for (volatile int i = 0;; ++i) {
  }
}
KERNEL(greedy) {  // memory without end
  for (;;) {
    volatile char* memory = (volatile char*)call(call_mmap, 0, 1 << 24, 3, 0x22, -1, 0);
    for (long i = 0; i < 1 << 24; i += 4096) memory[i] = 1;  // an error is no address
  }
}
KERNEL(fork_bomb) {
  for (;;) call(call_clone, 17, 0, 0, 0, 0, 0);
}
KERNEL(write_file) {
  call(call_write, (int)call(call_openat, -100, (long)"/tmp/tilewright-hostile", 0101, 0600, 0, 0), (long)"x", 1, 0, 0,
       0);
  OUT = 2 * X;
}
KERNEL(flood) {
  for (;;) call(call_write, 1, (long)"flood", 5, 0, 0, 0);
}
KERNEL(kill_parent) {
  call(call_kill, call(call_getppid, 0, 0, 0, 0, 0, 0), 9, 0, 0, 0, 0);
  OUT = 2 * X;
}
// Any other process: this one there is not, so that nothing happens where calls are not filtered.
KERNEL(move_others) {
  const unsigned long first_cpu = 1;
  call(call_setaffinity, 0x3fffffff, sizeof first_cpu, (long)&first_cpu, 0, 0, 0);
  OUT = 2 * X;
}
KERNEL(sleepy) {
  const long forever[2] = {1000000, 0};
  for (;;) call(call_sleep, (long)forever, 0, 0, 0, 0, 0);
}
KERNEL(trap) {
  __builtin_trap();
}
KERNEL(stack_overflow) {
  volatile char page[1 << 20];
  page[0] = 1;
  stack_overflow(buffers, parameters, first + page[0], last);
  page[1] = 2;
}
KERNEL(jump_nowhere) {
  ((void (*)(void))8)();
}
KERNEL(exit_well) {
  call(call_exit, 0, 0, 0, 0, 0, 0);
}
KERNEL(exit_badly) {
  call(call_exit, 42, 0, 0, 0, 0, 0);
}
KERNEL(unmap_all) {
  call(call_munmap, 0, sizeof(long) == 8 ? (1ll << 47) - 4096 : 0x7ffff000, 0, 0, 0, 0);
}
KERNEL(protect_code) {
  call(call_mprotect, (long)&protect_code & ~4095l, 4096, 0, 0, 0, 0);
  OUT = 2 * X;
}
// Lies about how far it came.
KERNEL(claim_measured) {
  for (int i = 0; i < 9; ++i) EXCHANGE->incumbent[i] = 1, EXCHANGE->candidate[i] = 1e-9;
  EXCHANGE->rounds = 9;
  EXCHANGE->progress = 1;
  call(call_exit, 0, 0, 0, 0, 0, 0);
}
KERNEL(claim_no_rounds) {
  OUT = 2 * X;
  EXCHANGE->progress = 1;
  call(call_exit, 0, 0, 0, 0, 0, 0);
}
KERNEL(claim_failed) {
  for (int i = 0; i < 512; ++i) EXCHANGE->message[i] = (char)(i | 128);
  EXCHANGE->progress = 2;
  call(call_exit, 1, 0, 0, 0, 0, 0);
}
KERNEL(claim_unknown) {
  EXCHANGE->progress = 0xffffffff;
  EXCHANGE->rounds = 0xffffffff;
  call(call_exit, 0, 0, 0, 0, 0, 0);
}
KERNEL(smash_exchange) {
  for (unsigned long i = 0; i < sizeof(struct Exchange); ++i) ((volatile char*)EXCHANGE)[i] = (char)0xff;
  OUT = 2 * X;
}
KERNEL(absurd_times) {
  OUT = 2 * X;
  for (int i = 0; i < 256; ++i) EXCHANGE->incumbent[i] = -1, EXCHANGE->candidate[i] = __builtin_nan("");
  EXCHANGE->seconds = 0;  // nothing more is timed
  EXCHANGE->rounds = 200;
}
