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

#if defined(__x86_64__)
enum { call_write = 1, call_mmap = 9, call_clone = 56, call_kill = 62, call_openat = 257, call_getppid = 110 };
#else
enum { call_write = 64, call_mmap = 222, call_clone = 220, call_kill = 129, call_openat = 56, call_getppid = 173 };
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
