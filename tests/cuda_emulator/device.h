// What CUDA C++ adds to C++, for the host: kernels become functions, shared memory becomes the module's own, and what
// only hardware has comes from the emulator (driver.cpp) through `tw_module`.
#pragma once

#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("tw_shared")))

namespace tw::cuda_emulator {

struct Index {
  unsigned x, y, z;
};

// What the driver gives modules for the thread that runs.
struct Services {
  void (*wait)();
  void (*wait_for_warp)();
  // Asynchronous copies: they land at once, or when they are waited for.
  void (*copy)(void* to, const void* from, unsigned bytes, bool is_there);
  void (*commit_copies)();
  void (*wait_copies)(unsigned left);
};

// One a module; the driver finds it by name and fills in the services.
struct Module {
  Index thread, block;
  unsigned warp, lane;  // of the thread: its warp's number in the block, and its own in the warp
  const Services* services;
  char *shared_begin, *shared_end;
};

// How the driver starts a kernel: "tw_kernel_" and its name.
struct KernelEntry {
  void (*call)(void** arguments);
  bool waits;  // has a barrier
  int arguments;
};

}  // namespace tw::cuda_emulator

#define threadIdx tw_module.thread
#define blockIdx tw_module.block
#define __syncthreads() tw_module.services->wait()

#ifdef TW_CUDA_MODULE
extern "C" {
extern char __start_tw_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_tw_shared[] __attribute__((weak, visibility("hidden")));
tw::cuda_emulator::Module tw_module = {{}, {}, 0, 0, nullptr, __start_tw_shared, __stop_tw_shared};

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
double ldexp(double, int);
float ldexpf(float, int);
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

inline float tw_from_f16(unsigned short bits) {
  return __builtin_bit_cast(_Float16, bits);
}
inline unsigned short tw_to_f16(float x) {
  return __builtin_bit_cast(unsigned short, static_cast<_Float16>(x));
}
inline float tw_from_bf16(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
inline unsigned short tw_to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  if (x != x) return static_cast<unsigned short>(bits >> 16 | 0x40);
  return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float tw_minimum(float x, float y) {
  return x != x || y != y ? x + y : fminf(x, y);
}
inline float tw_maximum(float x, float y) {
  return x != x || y != y ? x + y : fmaxf(x, y);
}
inline float tw_rough_exp2(float x) {
  return exp2f(x);
}
inline float tw_rough_reciprocal(float x) {
  return 1 / x;
}
#define TW_SHARED(bytes) __shared__ __align__(128) unsigned char tw_shared[bytes];
inline void tw_prefetch(const void*) {}

// What a warp does as one: each thread leaves what it brings, and takes its part when all have done so.
struct WarpExchange {
  const unsigned short* rows[32];
  unsigned a[32][4], b[32][2];
};
static WarpExchange tw_exchanges[32];  // by warp

template <bool is_transposed>
inline void tw_load_matrices(unsigned* d, const void* row) {
  const unsigned lane = tw_module.lane;
  WarpExchange& exchange = tw_exchanges[tw_module.warp];
  if (reinterpret_cast<unsigned long long>(row) % 16 != 0) __builtin_trap();
  exchange.rows[lane] = static_cast<const unsigned short*>(row);
  tw_module.services->wait_for_warp();
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    unsigned halves[2];
    for (unsigned h = 0; h < 2; ++h) {
      const unsigned row_number = lane / 4, column = lane % 4 * 2 + h;
      halves[h] = is_transposed ? exchange.rows[matrix * 8 + column][row_number]
                                : exchange.rows[matrix * 8 + row_number][column];
    }
    d[matrix] = halves[0] | halves[1] << 16;
  }
  tw_module.services->wait_for_warp();
}
inline void tw_ldmatrix(unsigned* d, const void* row) {
  tw_load_matrices<false>(d, row);
}
inline void tw_ldmatrix_transposed(unsigned* d, const void* row) {
  tw_load_matrices<true>(d, row);
}

// mma.m16n8k16, and m16n8k32 of bytes: which thread holds what is in "Matrix Fragments for mma.m16n8k16" of the PTX
// ISA. A word has as many elements as its k is longer; `Sum` has room for all of a sum.
template <class Sum, class Bits, auto of_a, auto of_b, class C>
inline void tw_multiply_fragments(C* c, const unsigned* a, const unsigned* b) {
  constexpr unsigned elements = 4 / sizeof(Bits);  // of a word
  const unsigned lane = tw_module.lane;
  WarpExchange& exchange = tw_exchanges[tw_module.warp];
  for (int i = 0; i < 4; ++i) exchange.a[lane][i] = a[i];
  for (int i = 0; i < 2; ++i) exchange.b[lane][i] = b[i];
  tw_module.services->wait_for_warp();
  const auto bits = [](unsigned word, unsigned at) { return static_cast<Bits>(word >> 8 * sizeof(Bits) * at); };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    Sum sum = c[i];
    for (unsigned k = 0; k < 8 * elements; ++k) {
      const unsigned owner = k / elements % 4, at = k % elements, half = k / elements / 4;
      sum += static_cast<Sum>(of_a(bits(exchange.a[row % 8 * 4 + owner][row / 8 + half * 2], at))) *
             of_b(bits(exchange.b[column * 4 + owner][half], at));
    }
    c[i] = static_cast<C>(sum);
  }
  tw_module.services->wait_for_warp();
}
inline void tw_mma_bf16(float* c, const unsigned* a, const unsigned* b) {
  tw_multiply_fragments<double, unsigned short, tw_from_bf16, tw_from_bf16>(c, a, b);
}
inline void tw_mma_f16(float* c, const unsigned* a, const unsigned* b) {
  tw_multiply_fragments<double, unsigned short, tw_from_f16, tw_from_f16>(c, a, b);
}
template <class A, class B>
inline void tw_multiply_bytes(int* c, const unsigned* a, const unsigned* b) {
  constexpr auto of_a = [](unsigned char bits) { return static_cast<A>(bits); };
  constexpr auto of_b = [](unsigned char bits) { return static_cast<B>(bits); };
  tw_multiply_fragments<long long, unsigned char, of_a, of_b>(c, a, b);
}
inline void tw_mma_s8s8(int* c, const unsigned* a, const unsigned* b) {
  tw_multiply_bytes<signed char, signed char>(c, a, b);
}
inline void tw_mma_u8s8(int* c, const unsigned* a, const unsigned* b) {
  tw_multiply_bytes<unsigned char, signed char>(c, a, b);
}
inline void tw_mma_s8u8(int* c, const unsigned* a, const unsigned* b) {
  tw_multiply_bytes<signed char, unsigned char>(c, a, b);
}
inline void tw_mma_u8u8(int* c, const unsigned* a, const unsigned* b) {
  tw_multiply_bytes<unsigned char, unsigned char>(c, a, b);
}

template <int bytes, bool past_first_cache>
inline void tw_copy(void* to, const void* from, bool is_there) {
  if (reinterpret_cast<unsigned long long>(to) % bytes != 0 || reinterpret_cast<unsigned long long>(from) % bytes != 0)
    __builtin_trap();
  tw_module.services->copy(to, from, bytes, is_there);
}
inline void tw_commit_copies() {
  tw_module.services->commit_copies();
}
template <int left>
inline void tw_wait_copies() {
  tw_module.services->wait_copies(left);
}
#endif
