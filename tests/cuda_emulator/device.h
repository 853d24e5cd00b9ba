// What CUDA C++ adds to C++, for the host: kernels become functions, shared memory becomes the module's own, and what
// only hardware has comes from the emulator (driver.cpp) through `tw_module`.
#pragma once

#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)
#define __shared__ static __attribute__((section("tw_shared")))

namespace tw::cuda_emulator {

struct Index {
  unsigned x, y, z;
};

// One a module; the driver finds it by name and fills in `wait`.
struct Module {
  Index thread, block;
  void (*wait)();
  char *shared_begin, *shared_end;
};

// How the driver starts a kernel: "tw_kernel_" and its name.
struct KernelEntry {
  void (*call)(void** arguments);
  bool waits;  // has a barrier
};

}  // namespace tw::cuda_emulator

#define threadIdx tw_module.thread
#define blockIdx tw_module.block
#define __syncthreads() tw_module.wait()

#ifdef TW_CUDA_MODULE
extern "C" {
extern char __start_tw_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_tw_shared[] __attribute__((weak, visibility("hidden")));
tw::cuda_emulator::Module tw_module = {{}, {}, nullptr, __start_tw_shared, __stop_tw_shared};

// clang-format off
#define TW_HOST_MATH1(name) double name(double); float name##f(float);
#define TW_HOST_MATH2(name) double name(double, double); float name##f(float, float);
TW_HOST_MATH1(exp) TW_HOST_MATH1(exp2) TW_HOST_MATH1(log) TW_HOST_MATH1(log2) TW_HOST_MATH1(sqrt) TW_HOST_MATH1(tanh)
TW_HOST_MATH1(erf) TW_HOST_MATH1(erfc) TW_HOST_MATH1(sin) TW_HOST_MATH1(cos) TW_HOST_MATH1(tan) TW_HOST_MATH1(asin) TW_HOST_MATH1(acos)
TW_HOST_MATH1(atan) TW_HOST_MATH1(sinh) TW_HOST_MATH1(cosh) TW_HOST_MATH1(asinh) TW_HOST_MATH1(acosh)
TW_HOST_MATH1(atanh) TW_HOST_MATH1(floor) TW_HOST_MATH1(ceil) TW_HOST_MATH1(trunc) TW_HOST_MATH1(rint)
TW_HOST_MATH1(fabs) TW_HOST_MATH2(pow) TW_HOST_MATH2(fmod) TW_HOST_MATH2(copysign) TW_HOST_MATH2(fmin)
TW_HOST_MATH2(fmax)
double fma(double, double, double);
// clang-format on
float fmaf(float, float, float);
}

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float __uint_as_float(unsigned x) {
  return __builtin_bit_cast(float, x);
}
inline unsigned __float_as_uint(float x) {
  return __builtin_bit_cast(unsigned, x);
}
inline double __longlong_as_double(long long x) {
  return __builtin_bit_cast(double, x);
}
inline long long __double_as_longlong(double x) {
  return __builtin_bit_cast(long long, x);
}
inline int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}
inline float rsqrtf(float x) {
  return 1 / sqrtf(x);
}
inline double rsqrt(double x) {
  return 1 / sqrt(x);
}
#endif
