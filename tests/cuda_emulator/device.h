// What CUDA C++ adds to C++, for the host: kernels become functions, shared memory becomes the module's own, and what
// only hardware has comes from the emulator (driver.cpp) through `tw_module`.
#pragma once

#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static __attribute__((section("tw_shared")))

namespace tw::cuda_emulator {

struct Index {
  unsigned x, y, z;
};

// What the emulator's cuTensorMapEncodeTiled makes.
struct alignas(64) TensorMap {
  unsigned long long begin;
  unsigned element_bytes, rank, swizzle_bytes, is_made;  // is_made: map_mark
  unsigned box[5];
  unsigned extents[5];
  unsigned long long strides[4];  // bytes
};
inline constexpr unsigned map_mark = 0x7e4502;

// What the driver gives modules for the thread that runs.
struct Services {
  void (*wait)();
  void (*wait_for_warp)();
  // Asynchronous copies: they land at once, or when they are waited for.
  void (*copy)(void* to, const void* from, unsigned bytes, bool is_there);
  void (*commit_copies)();
  void (*wait_copies)(unsigned left);
  // Products that are made when they are waited for, or any time earlier, of what all threads had published of shared
  // memory at the last barrier that all of them had passed: it lies `published` bytes from where it was written.
  using Make = void (*)(void* sums, unsigned long long a, unsigned long long b, long published);
  void (*begin_products)();
  void (*multiply)(Make make, void* sums, unsigned long long a, unsigned long long b);
  void (*commit_products)();
  void (*wait_products)(unsigned left);
  void (*publish_shared)();
  // Counters of bytes that copies of boxes bring, which land when somebody waits for them, or any time earlier.
  void (*set_up_counter)(void* counter, int arrivals);
  void (*expect)(void* counter, int bytes);
  void (*arrive)(void* counter);
  bool (*has_ended)(void* counter, unsigned parity);  // waits for it
  void (*copy_box)(void* to, const TensorMap* map, void* counter, const int* coordinates, unsigned count);
};

// One a module; the driver finds it by name and fills in the services.
struct Module {
  Index thread, block;
  unsigned warp, lane;  // of the thread: its warp's number in the block, and its own in the warp
  const Services* services;
  char *shared_begin, *shared_end;
  int compute_capability;  // of the GPUs that it is for; 0: of any
};

// How the driver starts a kernel: "tw_kernel_" and its name.
struct KernelEntry {
  void (*call)(void** arguments);
  bool waits;  // has a barrier
  int arguments;
  int maps = 0;  // behind them
};

}  // namespace tw::cuda_emulator

#define threadIdx tw_module.thread
#define blockIdx tw_module.block
#define __syncthreads() tw_module.services->wait()

#ifndef TW_CUDA_CAPABILITY
#define TW_CUDA_CAPABILITY 0
#endif

#ifdef TW_CUDA_MODULE
extern "C" {
extern char __start_tw_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_tw_shared[] __attribute__((weak, visibility("hidden")));
tw::cuda_emulator::Module tw_module = {{}, {}, 0, 0, nullptr, __start_tw_shared, __stop_tw_shared, TW_CUDA_CAPABILITY};

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
inline float tw_round_bf16(float x) {
  return tw_from_bf16(tw_to_bf16(x));
}
inline float tw_minimum(float x, float y) {
  return x != x || y != y ? x + y : fminf(x, y);
}
inline float tw_maximum(float x, float y) {
  return x != x || y != y ? x + y : fmaxf(x, y);
}
inline unsigned tw_to_tf32(unsigned x) {
  return (x & 0x7fffffff) > 0x7f800000 ? x : (x + 0x1000) & ~0x1fffu;
}
// Floats of 8 bits, by their definitions: mantissa bits, bias, and the largest number's code.
template <int mantissa, int bias, unsigned largest>
struct Float8 {
  static float magnitude_of(unsigned code) {
    const unsigned exponent = code >> mantissa, fraction = code & ((1u << mantissa) - 1);
    const int whole = exponent ? 1 << mantissa : 0, power = static_cast<int>(exponent ? exponent : 1) - bias - mantissa;
    return ldexpf(static_cast<float>(whole + static_cast<int>(fraction)), power);
  }
  static float decode(unsigned char code) {
    const unsigned magnitude = code & 0x7f;
    const bool is_infinite = mantissa == 2 && magnitude == largest + 1;
    const float x =
        magnitude <= largest ? magnitude_of(magnitude) : __uint_as_float(is_infinite ? 0x7f800000 : 0x7fc00000);
    return code & 0x80 ? -x : x;
  }
  // The largest number for what is beyond it, and a NaN without a sign.
  static unsigned char nearest(float x) {
    if (x != x) return 0x7f;
    const float magnitude = fabsf(x);
    unsigned below = 0;
    while (below < largest && magnitude_of(below + 1) <= magnitude) ++below;
    if (below < largest) {
      const float down = magnitude - magnitude_of(below), up = magnitude_of(below + 1) - magnitude;
      if (up < down || (up == down && below % 2 == 1)) ++below;
    }
    return static_cast<unsigned char>(below | (__float_as_uint(x) >> 24 & 0x80));
  }
};
using E4m3 = Float8<3, 7, 0x7e>;
using E5m2 = Float8<2, 15, 0x7b>;
inline float tw_decode_e4m3(unsigned char code) {
  return E4m3::decode(code);
}
inline float tw_decode_e5m2(unsigned char code) {
  return E5m2::decode(code);
}
inline unsigned char tw_nearest_e4m3(float x) {
  return E4m3::nearest(x);
}
inline unsigned char tw_nearest_e5m2(float x) {
  return E5m2::nearest(x);
}
inline float tw_rough_exp2(float x) {
  return exp2f(x);
}
inline float tw_rough_reciprocal(float x) {
  return 1 / x;
}
#define TW_SHARED(bytes, alignment) \
  __shared__ __align__(alignment)   \
  unsigned char tw_shared[bytes];
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

// mma.m16n8k16, m16n8k32 of bytes and m16n8k8 of tf32: which thread holds what is in "Matrix Fragments for
// mma.m16n8k16" of the PTX ISA. A word has as many elements as its k is longer; `Sum` has room for all of a sum.
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
inline void tw_mma_tf32(float* c, const unsigned* a, const unsigned* b) {
  constexpr auto tf32 = [](unsigned bits) {
    if ((bits & 0x1fff) != 0 && (bits & 0x7fffffff) <= 0x7f800000) __builtin_trap();  // what such bits do is not said
    return __uint_as_float(bits);
  };
  tw_multiply_fragments<double, unsigned, tf32, tf32>(c, a, b);
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

#define TW_MMA_OF_FLOAT8(a_name, b_name)                                                           \
  inline void tw_mma_##a_name##b_name(float* c, const unsigned* a, const unsigned* b) {            \
    tw_multiply_fragments<double, unsigned char, tw_decode_##a_name, tw_decode_##b_name>(c, a, b); \
  }
TW_MMA_OF_FLOAT8(e4m3, e4m3)
TW_MMA_OF_FLOAT8(e4m3, e5m2)
TW_MMA_OF_FLOAT8(e5m2, e4m3)
TW_MMA_OF_FLOAT8(e5m2, e5m2)

// wgmma.m64nNk16, and m64nNk32 of bytes: each of a group's 128 threads finds its sums by itself, for both operands lie
// in shared memory.  Of a matrix's description the address has more bits than on a GPU, for the shared memory of all
// kernels is one.
template <class Bits>
struct Matrix {
  unsigned long long description;
  bool is_transposed;
  long published;
  // Element k of row i, its pieces of 16 bytes exchanged as "Strides" and "Swizzling modes" of the PTX ISA have it.
  Bits at(unsigned i, unsigned k) const {
    const auto field = [&](int from, int bits) { return description >> from & ((1ull << bits) - 1); };
    const unsigned long long width = 256ull >> field(62, 2), leading = field(28, 14) * 16, stride = field(42, 14) * 16;
    const unsigned along = (is_transposed ? i : k) * sizeof(Bits), across = is_transposed ? k : i;
    if (is_transposed ? sizeof(Bits) == 1 : along >= width) __builtin_trap();
    unsigned long long place = reinterpret_cast<unsigned long long>(tw_module.shared_begin) + field(0, 28) * 16 +
                               along / width * leading + along % width + across / 8 * stride + across % 8 * width;
    place ^= (place >> 7 & (width / 16 - 1)) << 4;
    return *reinterpret_cast<const Bits*>(place + published);
  }
};
inline unsigned long long tw_matrix(const void* p, int leading, int stride, int swizzle) {
  const auto address = static_cast<unsigned long long>(static_cast<const char*>(p) - tw_module.shared_begin);
  if (address % 16 != 0) __builtin_trap();
  return address >> 4 | static_cast<unsigned long long>(leading >> 4) << 28 |
         static_cast<unsigned long long>(stride >> 4) << 42 | static_cast<unsigned long long>(swizzle) << 62;
}
// `Sum` has room for all of a sum.
template <class Sum, class Bits, auto of_a, auto of_b, int n, bool is_a_transposed, bool is_b_transposed, class C>
inline void tw_multiply_group(C* c, unsigned long long a, unsigned long long b) {
  tw_module.services->multiply(
      [](void* all, unsigned long long a_matrix, unsigned long long b_matrix, long published) {
        constexpr unsigned terms = 32 / sizeof(Bits);
        C* sums = static_cast<C*>(all);
        const Matrix<Bits> rows = {a_matrix, is_a_transposed, published};
        const Matrix<Bits> columns = {b_matrix, is_b_transposed, published};
        const unsigned row = tw_module.warp % 4 * 16 + tw_module.lane / 4;
        Sum x[2][terms];
        for (unsigned h = 0; h < 2; ++h)
          for (unsigned k = 0; k < terms; ++k) x[h][k] = of_a(rows.at(row + 8 * h, k));
        for (unsigned j = 0; j < n / 4; ++j) {
          const unsigned column = j / 2 * 8 + tw_module.lane % 4 * 2 + j % 2;
          Sum sum[2] = {sums[j / 2 * 4 + j % 2], sums[j / 2 * 4 + 2 + j % 2]};
          for (unsigned k = 0; k < terms; ++k) {
            const Sum y = of_b(columns.at(column, k));
            for (unsigned h = 0; h < 2; ++h) sum[h] += x[h][k] * y;
          }
          for (unsigned h = 0; h < 2; ++h) sums[j / 2 * 4 + 2 * h + j % 2] = static_cast<C>(sum[h]);
        }
      },
      c, a, b);
}
#define TW_WGMMA(name, n)                                                                                           \
  template <bool is_a_transposed, bool is_b_transposed>                                                             \
  inline void tw_wgmma_##name##_##n(float* c, unsigned long long a, unsigned long long b) {                         \
    tw_multiply_group<double, unsigned short, tw_from_##name, tw_from_##name, n, is_a_transposed, is_b_transposed>( \
        c, a, b);                                                                                                   \
  }
#define TW_WGMMA_OF_BYTES(name, number, sum, of_a, of_b, n)                                  \
  inline void tw_wgmma_##name##_##n(number* c, unsigned long long a, unsigned long long b) { \
    tw_multiply_group<sum, unsigned char, of_a, of_b, n, false, false>(c, a, b);             \
  }
inline long long tw_of_s8(unsigned char bits) {
  return static_cast<signed char>(bits);
}
inline long long tw_of_u8(unsigned char bits) {
  return bits;
}
// clang-format off
#define TW_WGMMAS_OF_BYTES(name, number, sum, of_a, of_b) \
  TW_WGMMA_OF_BYTES(name, number, sum, of_a, of_b, 64)    \
  TW_WGMMA_OF_BYTES(name, number, sum, of_a, of_b, 128)   \
  TW_WGMMA_OF_BYTES(name, number, sum, of_a, of_b, 256)
TW_WGMMA(bf16, 64) TW_WGMMA(bf16, 128) TW_WGMMA(bf16, 256)
TW_WGMMA(f16, 64) TW_WGMMA(f16, 128) TW_WGMMA(f16, 256)
TW_WGMMAS_OF_BYTES(s8s8, int, long long, tw_of_s8, tw_of_s8)
TW_WGMMAS_OF_BYTES(u8s8, int, long long, tw_of_u8, tw_of_s8)
TW_WGMMAS_OF_BYTES(s8u8, int, long long, tw_of_s8, tw_of_u8)
TW_WGMMAS_OF_BYTES(u8u8, int, long long, tw_of_u8, tw_of_u8)
TW_WGMMAS_OF_BYTES(e4m3e4m3, float, double, tw_decode_e4m3, tw_decode_e4m3)
TW_WGMMAS_OF_BYTES(e4m3e5m2, float, double, tw_decode_e4m3, tw_decode_e5m2)
TW_WGMMAS_OF_BYTES(e5m2e4m3, float, double, tw_decode_e5m2, tw_decode_e4m3)
TW_WGMMAS_OF_BYTES(e5m2e5m2, float, double, tw_decode_e5m2, tw_decode_e5m2)
    // clang-format on

    template <int count, class C>
    inline void tw_hold(C*) {}
inline void tw_begin_products() {
  tw_module.services->begin_products();
}
inline void tw_commit_products() {
  tw_module.services->commit_products();
}
template <int left>
inline void tw_wait_products() {
  tw_module.services->wait_products(left);
}
inline void tw_publish_shared() {
  tw_module.services->publish_shared();
}

inline void __syncwarp() {
  tw_module.services->wait_for_warp();
}
using tw_tensor_map = tw::cuda_emulator::TensorMap;
inline void tw_prefetch_map(const tw_tensor_map*) {}
inline int tw_warp_number() {
  return static_cast<int>(tw_module.warp);
}
inline bool tw_elect() {
  return tw_module.lane == 0;
}
inline void tw_set_up_counter(unsigned long long* counter, int arrivals) {
  tw_module.services->set_up_counter(counter, arrivals);
}
inline void tw_publish_counters() {}
inline void tw_expect(unsigned long long* counter, int bytes) {
  tw_module.services->expect(counter, bytes);
}
inline void tw_arrive(unsigned long long* counter) {
  tw_module.services->arrive(counter);
}
inline bool tw_has_ended(unsigned long long* counter, unsigned parity) {
  return tw_module.services->has_ended(counter, parity);
}
template <class... Coordinates>
inline void tw_copy_box(void* to, const tw_tensor_map* map, unsigned long long* counter, Coordinates... coordinates) {
  const int places[] = {coordinates...};
  tw_module.services->copy_box(to, map, counter, places, sizeof...(coordinates));
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
