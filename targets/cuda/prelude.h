// The device functions that emitted text may call: conversions, rounding divisions and the intrinsics of tensor_ir.
#pragma once

namespace tw::cuda {

inline constexpr const char prelude[] = R"cuda(
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
#define TW_FUNCTION static __device__ __forceinline__

// PTX: what lies between here and its end is written in C++ for machines without a GPU.
#define TW_SHARED(bytes, alignment) extern __shared__ __align__(alignment) u8 tw_shared[];
TW_FUNCTION float tw_from_f16(u16 bits) { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }
TW_FUNCTION u16 tw_to_f16(float x) { u16 bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); return bits; }
TW_FUNCTION float tw_from_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }
#if __CUDA_ARCH__ >= 800
TW_FUNCTION u16 tw_to_bf16(float x) { u16 bits; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); return bits; }
// By the conversion of two: of a zero beside it, the word is the number.
TW_FUNCTION float tw_round_bf16(float x) {
  u32 bits; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f)); return __uint_as_float(bits);
}
#else
TW_FUNCTION u16 tw_to_bf16(float x) {
  u32 bits = __float_as_uint(x);
  if (x != x) return (u16)((bits >> 16) | 0x40);
  return (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
TW_FUNCTION float tw_round_bf16(float x) { return tw_from_bf16(tw_to_bf16(x)); }
#endif
#if __CUDA_ARCH__ >= 800
TW_FUNCTION float tw_minimum(float x, float y) { float z; asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
TW_FUNCTION float tw_maximum(float x, float y) { float z; asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
#endif
#if __CUDA_ARCH__ >= 800
TW_FUNCTION u32 tw_to_tf32(u32 x) { u32 y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x))); return y; }
#else
TW_FUNCTION u32 tw_to_tf32(u32 x) { return (x & 0x7fffffff) > 0x7f800000 ? x : (x + 0x1000) & ~0x1fffu; }
#endif
// Floats of 8 bits: by way of f16, which has all of them.
#if __CUDA_ARCH__ >= 890
#define TW_DECODE(format) \
  TW_FUNCTION float tw_decode_##format(u8 code) { \
    u32 pair; asm("cvt.rn.f16x2." #format "x2 %0, %1;" : "=r"(pair) : "h"((u16)code)); return tw_from_f16((u16)pair); \
  }
TW_DECODE(e4m3) TW_DECODE(e5m2)
#define TW_ENCODE(format) \
  TW_FUNCTION u8 tw_nearest_##format(float x) { \
    u16 pair; asm("cvt.rn.satfinite." #format "x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x)); return (u8)pair; \
  }
TW_ENCODE(e4m3) TW_ENCODE(e5m2)
#else
// A number of f16 that is 2^8 times as small has the same bits.
TW_FUNCTION float tw_decode_e4m3(u8 code) {
  const float x = tw_from_f16((u16)((code & 0x80) << 8 | (code & 0x7f) << 7)) * 256;
  return (code & 0x7f) == 0x7f ? __uint_as_float(0x7fc00000u) : x;
}
TW_FUNCTION float tw_decode_e5m2(u8 code) { return tw_from_f16((u16)(code << 8)); }
// To nearest even at the last bit: of small numbers, by an addition that rounds there.
TW_FUNCTION u8 tw_nearest(float x, int mantissa, int bias, u32 largest) {
  const u32 bits = __float_as_uint(x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  if (magnitude > 0x7f800000) return (u8)(sign | 0x7f);
  const int shift = 23 - mantissa;
  const float counter = __uint_as_float((u32)(128 - bias + shift) << 23);
  const u32 small = __float_as_uint(__uint_as_float(magnitude) + counter) - __float_as_uint(counter);
  const u32 normal = (magnitude + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1) - ((u32)(127 - bias) << 23)) >> shift;
  const u32 code = magnitude < (u32)(128 - bias) << 23 ? small : normal;
  return (u8)(sign | (code < largest ? code : largest));
}
TW_FUNCTION u8 tw_nearest_e4m3(float x) { return tw_nearest(x, 3, 7, 0x7e); }
TW_FUNCTION u8 tw_nearest_e5m2(float x) { return tw_nearest(x, 2, 15, 0x7b); }
#endif
TW_FUNCTION float tw_rough_exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
TW_FUNCTION float tw_rough_reciprocal(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
TW_FUNCTION void tw_prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
TW_FUNCTION u32 tw_shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
TW_FUNCTION void tw_ldmatrix(u32* d, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(tw_shared_address(row)) : "memory");
}
TW_FUNCTION void tw_ldmatrix_transposed(u32* d, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(tw_shared_address(row)) : "memory");
}
#define TW_MMA(name, shape, types, number, kind) \
  TW_FUNCTION void name(number* c, const u32* a, const u32* b) { \
    asm volatile("mma.sync.aligned." shape ".row.col." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+" kind(c[0]), "+" kind(c[1]), "+" kind(c[2]), "+" kind(c[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
TW_MMA(tw_mma_bf16, "m16n8k16", "f32.bf16.bf16.f32", float, "f")
TW_MMA(tw_mma_f16, "m16n8k16", "f32.f16.f16.f32", float, "f")
TW_MMA(tw_mma_tf32, "m16n8k8", "f32.tf32.tf32.f32", float, "f")
TW_MMA(tw_mma_s8s8, "m16n8k32", "s32.s8.s8.s32", i32, "r")
TW_MMA(tw_mma_u8s8, "m16n8k32", "s32.u8.s8.s32", i32, "r")
TW_MMA(tw_mma_s8u8, "m16n8k32", "s32.s8.u8.s32", i32, "r")
TW_MMA(tw_mma_u8u8, "m16n8k32", "s32.u8.u8.s32", i32, "r")
#if __CUDA_ARCH__ >= 890
TW_MMA(tw_mma_e4m3e4m3, "m16n8k32", "f32.e4m3.e4m3.f32", float, "f")
TW_MMA(tw_mma_e4m3e5m2, "m16n8k32", "f32.e4m3.e5m2.f32", float, "f")
TW_MMA(tw_mma_e5m2e4m3, "m16n8k32", "f32.e5m2.e4m3.f32", float, "f")
TW_MMA(tw_mma_e5m2e5m2, "m16n8k32", "f32.e5m2.e5m2.f32", float, "f")
#endif
#if __CUDA_ARCH__ >= 800
// So many bytes, or as many zeros.
template <int bytes, bool past_first_cache> TW_FUNCTION void tw_copy(void* to, const void* from, bool is_there) {
  if constexpr (past_first_cache)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(tw_shared_address(to)), "l"(from), "r"(is_there ? 16 : 0) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(tw_shared_address(to)), "l"(from), "n"(bytes), "r"(is_there ? bytes : 0) : "memory");
}
TW_FUNCTION void tw_commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int left> TW_FUNCTION void tw_wait_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(left) : "memory"); }
#else
template <int bytes, bool past_first_cache> TW_FUNCTION void tw_copy(void* to, const void* from, bool is_there) {
  for (int i = 0; i < bytes; i += 4) *(u32*)((u8*)to + i) = is_there ? *(const u32*)((const u8*)from + i) : 0;
}
TW_FUNCTION void tw_commit_copies() {}
template <int left> TW_FUNCTION void tw_wait_copies() {}
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A matrix in shared memory for products of groups of warps ("Matrix Descriptor Format" in the PTX ISA): strides in
// bytes, between blocks of columns and between every eight rows; the pieces of 16 bytes are exchanged within 128, 64 or
// 32 bytes (1, 2, 3).
TW_FUNCTION u64 tw_matrix(const void* p, int leading, int stride, int swizzle) {
  return (u64)((tw_shared_address(p) & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)swizzle << 62;
}
// What is done to sums, in the order of the text, stays before products or behind the wait for them.
template <int count> TW_FUNCTION void tw_hold(float* sums) {
  #pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i]) :: "memory");
}
template <int count> TW_FUNCTION void tw_hold(i32* sums) {
  #pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(sums[i]) :: "memory");
}
TW_FUNCTION void tw_begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TW_FUNCTION void tw_commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int left> TW_FUNCTION void tw_wait_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(left) : "memory"); }
// What the thread has stored in shared memory is seen by products.
TW_FUNCTION void tw_publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Counters in shared memory ("mbarrier" in the PTX ISA), whose phase ends when so many arrivals are there and the bytes
// that were expected have come.
TW_FUNCTION void tw_set_up_counter(u64* counter, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(tw_shared_address(counter)), "r"(arrivals) : "memory"); }
TW_FUNCTION void tw_publish_counters() {
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}
TW_FUNCTION void tw_expect(u64* counter, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(tw_shared_address(counter)), "r"(bytes) : "memory");
}
TW_FUNCTION void tw_arrive(u64* counter) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(tw_shared_address(counter)) : "memory"); }
// Whether the phase of this parity has ended; it may wait for it a while.
TW_FUNCTION bool tw_has_ended(u64* counter, u32 parity) {
  u32 ended;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(ended) : "r"(tw_shared_address(counter)), "r"(parity) : "memory");
  return ended;
}
struct __align__(64) tw_tensor_map { u64 words[16]; };
TW_FUNCTION void tw_prefetch_map(const tw_tensor_map* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }
// The warp's number where warps lie along z, and one of its threads: the compiler knows both to be the warp's.
TW_FUNCTION int tw_warp_number() { return __shfl_sync(0xffffffff, threadIdx.z, 0); }
TW_FUNCTION bool tw_elect() {
  u32 is_elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is_elected));
  return is_elected;
}
#define TW_COPY_BOX(dimensions, parameters, places, ...) \
  TW_FUNCTION void tw_copy_box(void* to, const tw_tensor_map* map, u64* counter, parameters) { \
    asm volatile("cp.async.bulk.tensor." dimensions ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" places "}], [%2];" \
                 :: "r"(tw_shared_address(to)), "l"(map), "r"(tw_shared_address(counter)), __VA_ARGS__ : "memory"); \
  }
#define TW_COMMA ,
TW_COPY_BOX("2d", int x TW_COMMA int y, "%3, %4", "r"(x), "r"(y))
TW_COPY_BOX("3d", int x TW_COMMA int y TW_COMMA int z, "%3, %4, %5", "r"(x), "r"(y), "r"(z))
TW_COPY_BOX("4d", int x TW_COMMA int y TW_COMMA int z TW_COMMA int u, "%3, %4, %5, %6", "r"(x), "r"(y), "r"(z), "r"(u))
TW_COPY_BOX("5d", int x TW_COMMA int y TW_COMMA int z TW_COMMA int u TW_COMMA int v, "%3, %4, %5, %6, %7", "r"(x), "r"(y), "r"(z), "r"(u), "r"(v))
#define TW_8(k, c, i) k(c[i]), k(c[i + 1]), k(c[i + 2]), k(c[i + 3]), k(c[i + 4]), k(c[i + 5]), k(c[i + 6]), k(c[i + 7])
#define TW_32(k, c, i) TW_8(k, c, i), TW_8(k, c, i + 8), TW_8(k, c, i + 16), TW_8(k, c, i + 24)
#define TW_128(k, c) TW_32(k, c, 0), TW_32(k, c, 32), TW_32(k, c, 64), TW_32(k, c, 96)
#define TW_REGISTERS_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TW_REGISTERS_1 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TW_REGISTERS_2 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TW_REGISTERS_3 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TW_WGMMA(element, columns, registers, a, b, a_turned, b_turned, ...) \
  template <bool is_a_transposed, bool is_b_transposed> \
  TW_FUNCTION void tw_wgmma_##element##_##columns(float* c, u64 a_matrix, u64 b_matrix) { \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #element "." #element \
                 " {" registers "}, " a ", " b ", p, 1, 1, " a_turned ", " b_turned "; }" \
                 : __VA_ARGS__ : "l"(a_matrix), "l"(b_matrix), "n"((int)is_a_transposed), "n"((int)is_b_transposed)); \
  }
#define TW_WGMMAS(element) \
  TW_WGMMA(element, 64, TW_REGISTERS_0, "%32", "%33", "%34", "%35", TW_32("+f", c, 0)) \
  TW_WGMMA(element, 128, TW_REGISTERS_0 ", " TW_REGISTERS_1, "%64", "%65", "%66", "%67", TW_32("+f", c, 0), TW_32("+f", c, 32)) \
  TW_WGMMA(element, 256, TW_REGISTERS_0 ", " TW_REGISTERS_1 ", " TW_REGISTERS_2 ", " TW_REGISTERS_3, \
           "%128", "%129", "%130", "%131", TW_128("+f", c))
TW_WGMMAS(bf16)
TW_WGMMAS(f16)
// Of bytes, both along k.
#define TW_WGMMA_OF_BYTES(name, number, types, scales, columns, registers, a, b, ...) \
  TW_FUNCTION void tw_wgmma_##name##_##columns(number* c, u64 a_matrix, u64 b_matrix) { \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #columns "k32." types \
                 " {" registers "}, " a ", " b ", p" scales "; }" : __VA_ARGS__ : "l"(a_matrix), "l"(b_matrix)); \
  }
#define TW_WGMMAS_OF_BYTES(name, number, k, types, scales) \
  TW_WGMMA_OF_BYTES(name, number, types, scales, 64, TW_REGISTERS_0, "%32", "%33", TW_32(k, c, 0)) \
  TW_WGMMA_OF_BYTES(name, number, types, scales, 128, TW_REGISTERS_0 ", " TW_REGISTERS_1, "%64", "%65", TW_32(k, c, 0), TW_32(k, c, 32)) \
  TW_WGMMA_OF_BYTES(name, number, types, scales, 256, TW_REGISTERS_0 ", " TW_REGISTERS_1 ", " TW_REGISTERS_2 ", " TW_REGISTERS_3, \
                    "%128", "%129", TW_128(k, c))
TW_WGMMAS_OF_BYTES(s8s8, i32, "+r", "s32.s8.s8", "")
TW_WGMMAS_OF_BYTES(u8s8, i32, "+r", "s32.u8.s8", "")
TW_WGMMAS_OF_BYTES(s8u8, i32, "+r", "s32.s8.u8", "")
TW_WGMMAS_OF_BYTES(u8u8, i32, "+r", "s32.u8.u8", "")
TW_WGMMAS_OF_BYTES(e4m3e4m3, float, "+f", "f32.e4m3.e4m3", ", 1, 1")
TW_WGMMAS_OF_BYTES(e4m3e5m2, float, "+f", "f32.e4m3.e5m2", ", 1, 1")
TW_WGMMAS_OF_BYTES(e5m2e4m3, float, "+f", "f32.e5m2.e4m3", ", 1, 1")
TW_WGMMAS_OF_BYTES(e5m2e5m2, float, "+f", "f32.e5m2.e5m2", ", 1, 1")
#endif
// End of PTX.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
template <int bytes, class... Coordinates> TW_FUNCTION void tw_copy_counted(void* to, const tw_tensor_map* map, u64* counter, Coordinates... coordinates) {
  tw_expect(counter, bytes);
  tw_copy_box(to, map, counter, coordinates...);
}
// Groups of copies of tiles, which take turns with so many counters.  All threads count them; one asks for the copies.
template <int count> struct tw_tile_groups {
  u64* counters;
  int begun = 0, waited = 0;  // which one's turn it is
  u32 parity = 0;             // of the phase of the group that is waited for
  bool is_open = false;       // something is copied between begin_copies and commit_copies
  __device__ __forceinline__ void set_up() {
    for (int i = 0; i < count; ++i) tw_set_up_counter(counters + i, 1);
    tw_publish_counters();
  }
  __device__ __forceinline__ void begin() { is_open = true; }
  template <int bytes, class... Coordinates> __device__ __forceinline__ void copy(void* to, const tw_tensor_map* map, Coordinates... coordinates) {
    tw_copy_counted<bytes>(to, map, counters + begun, coordinates...);
  }
  __device__ __forceinline__ void commit(bool is_first_thread) {
    if (is_open && is_first_thread) tw_arrive(counters + begun);
    if (is_open) begun = begun + 1 == count ? 0 : begun + 1;
    is_open = false;
  }
  __device__ __forceinline__ void wait() {
    while (!tw_has_ended(counters + waited, parity)) {}
    if (++waited == count) waited = 0, parity ^= 1;
  }
};
// Groups of copies that a warp of its own asks for, as long as one of so many places is free.  Of each place a counter
// has the bytes that come, another one the warps that have used them.
template <int count> struct tw_tile_ring {
  u64* counters;
  int at = 0;      // whose turn it is, for who copies or waits…
  u32 parity = 0;  // …in the phase of this parity
  int used = 0;    // whose turn it is to become free
  int in_use = 0;  // by products that may not have ended
  bool is_open = false;
  __device__ __forceinline__ void set_up(int warps) {
    for (int i = 0; i < count; ++i) tw_set_up_counter(counters + i, 1), tw_set_up_counter(counters + count + i, warps);
    tw_publish_counters();
  }
  __device__ __forceinline__ void begin() {
    while (!tw_has_ended(counters + count + at, parity ^ 1)) {}
    is_open = true;
  }
  template <int bytes, class... Coordinates> __device__ __forceinline__ void copy(void* to, const tw_tensor_map* map, Coordinates... coordinates) {
    tw_copy_counted<bytes>(to, map, counters + at, coordinates...);
  }
  __device__ __forceinline__ void go_on() { if (++at == count) at = 0, parity ^= 1; }
  __device__ __forceinline__ void commit() {
    if (!is_open) return;
    tw_arrive(counters + at);
    go_on();
    is_open = false;
  }
  __device__ __forceinline__ void wait() {
    while (!tw_has_ended(counters + at, parity)) {}
    go_on();
  }
  __device__ __forceinline__ void use() { ++in_use; }
  // All places but those of the last products, for whose end the warp has waited: of one more at most.
  template <int left> __device__ __forceinline__ void release() {
    if (in_use <= left) return;
    __syncwarp();
    if (tw_elect()) tw_arrive(counters + count + used);
    used = used + 1 == count ? 0 : used + 1;
    --in_use;
  }
};
#endif
// What is copied in the place of zeros.
template <i32 word> __align__(16) __device__ const i32 tw_filled[4] = {word, word, word, word};
TW_FUNCTION float tw_round_tf32(float x) { return __uint_as_float(tw_to_tf32(__float_as_uint(x))); }
// What is beyond the largest number becomes the largest one above: here what the format has for it; NaN has a sign.
TW_FUNCTION u8 tw_encode_e4m3(float x) {
  return (u8)(tw_nearest_e4m3(x) | (fabsf(x) <= 464.0f ? 0 : __float_as_uint(x) >> 24 & 0x80 | 0x7f));
}
TW_FUNCTION u8 tw_encode_e5m2(float x) {
  const u32 sign = __float_as_uint(x) >> 24 & 0x80;
  return (u8)(fabsf(x) < 61440.0f ? tw_nearest_e5m2(x) : sign | (x == x ? 0x7c : 0x7e));
}
TW_FUNCTION float tw_round_f16(float x) { return tw_from_f16(tw_to_f16(x)); }
// Of lanes side by side, which lie in words.
TW_FUNCTION float tw_from_bf16(const u16* lanes, int l) {
  const u32 word = ((const u32*)lanes)[l / 2];
  return __uint_as_float(l % 2 ? word & 0xffff0000u : word << 16);
}

template <class T> TW_FUNCTION T tw_floor_div(T a, T b) {
  T q = a / b;
  return (T)(q - ((a % b != 0) & ((a % b < 0) != (b < 0))));
}
template <class T> TW_FUNCTION T tw_floor_mod(T a, T b) {
  T r = a % b;
  return (T)((r != 0) & ((r < 0) != (b < 0)) ? r + b : r);
}
TW_FUNCTION float tw_floor_div(float a, float b) { return floorf(a / b); }
TW_FUNCTION double tw_floor_div(double a, double b) { return floor(a / b); }
TW_FUNCTION float tw_floor_mod(float a, float b) { float r = fmodf(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
TW_FUNCTION double tw_floor_mod(double a, double b) { double r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
template <class T> TW_FUNCTION T tw_mod(T a, T b) { return (T)(a % b); }
TW_FUNCTION float tw_mod(float a, float b) { return fmodf(a, b); }
TW_FUNCTION double tw_mod(double a, double b) { return fmod(a, b); }

// Towards zero; what does not fit becomes the nearest integer that there is, and NaN 0.
template <class T, class F> TW_FUNCTION T tw_to_integer(F x) {
  constexpr bool is_signed = (T)-1 < (T)0;
  constexpr T most = is_signed ? (T)(((u64)1 << (8 * sizeof(T) - 1)) - 1) : (T)~(T)0, least = is_signed ? (T)(-most - 1) : (T)0;
  return x >= (F)most ? most : x <= (F)least ? least : x == x ? (T)x : (T)0;
}

template <class T> TW_FUNCTION T tw_min(T a, T b) { return b < a ? b : a; }
template <class T> TW_FUNCTION T tw_max(T a, T b) { return a < b ? b : a; }
TW_FUNCTION float tw_min(float a, float b) { return fminf(a, b); }
TW_FUNCTION float tw_max(float a, float b) { return fmaxf(a, b); }
TW_FUNCTION double tw_min(double a, double b) { return fmin(a, b); }
TW_FUNCTION double tw_max(double a, double b) { return fmax(a, b); }
template <class T> TW_FUNCTION T tw_minimum(T a, T b) { return a != a || b != b ? a + b : tw_min(a, b); }
template <class T> TW_FUNCTION T tw_maximum(T a, T b) { return a != a || b != b ? a + b : tw_max(a, b); }

// round_even(sum * factor) + zero point within limits, of f64.  Below 2^10 the product of f32 is less than 2^-12 away from
// that, and what is not below is beyond the limits either way: f64 has to tell only what is so near to a half.
template <class T> TW_FUNCTION T tw_requantise(i32 sum, double factor, float zero_point, float low, float high) {
  const float product = (float)sum * (float)factor;
  float whole = rintf(product);
  if (!(fabsf(fabsf(product - whole) - 0.5f) > 0x1p-12f || fabsf(product) >= 1024)) whole = (float)rint((double)sum * factor);
  const float y = tw_minimum(tw_maximum(whole + zero_point, low), high);
  return y == y ? (T)(i32)y : (T)0;
}

// round_even(x) + zero point within limits, of which none is larger than 256.  A sum with 1.5 · 2^23 is rounded to an
// integer, which its lowest bits are.
template <class T> TW_FUNCTION T tw_quantise(float x, i32 zero_point, i32 low, i32 high) {
  const float near = fminf(fmaxf(x, (float)(low - zero_point)), (float)(high - zero_point));
  return x == x ? (T)((i32)__float_as_uint(near + 0x1.8p23f) + zero_point) : (T)0;
}

#define TW_MATH1(name) \
  TW_FUNCTION float tw_##name(float x) { return name##f(x); } \
  TW_FUNCTION double tw_##name(double x) { return name(x); }
#define TW_MATH2(name) \
  TW_FUNCTION float tw_##name(float x, float y) { return name##f(x, y); } \
  TW_FUNCTION double tw_##name(double x, double y) { return name(x, y); }
TW_MATH1(exp) TW_MATH1(exp2) TW_MATH1(log) TW_MATH1(log2) TW_MATH1(sqrt) TW_MATH1(rsqrt) TW_MATH1(tanh) TW_MATH1(erf)
TW_MATH1(erfc)
TW_MATH1(sin) TW_MATH1(cos) TW_MATH1(tan) TW_MATH1(asin) TW_MATH1(acos) TW_MATH1(atan) TW_MATH1(sinh) TW_MATH1(cosh)
TW_MATH1(asinh) TW_MATH1(acosh) TW_MATH1(atanh) TW_MATH1(floor) TW_MATH1(ceil) TW_MATH1(trunc)
TW_MATH2(pow) TW_MATH2(fmod) TW_MATH2(copysign)
TW_FUNCTION float tw_scale_by_power(float x, float n) { return ldexpf(x, (int)n); }
TW_FUNCTION double tw_scale_by_power(double x, double n) { return ldexp(x, (int)n); }
TW_FUNCTION float tw_round_even(float x) { return rintf(x); }
TW_FUNCTION double tw_round_even(double x) { return rint(x); }
template <class T> TW_FUNCTION T tw_exp_nonpositive(T x) { return tw_exp(x); }
TW_FUNCTION float tw_sigmoid(float x) { return tw_rough_reciprocal(1 + tw_exp(-x)); }
TW_FUNCTION double tw_sigmoid(double x) { return 1 / (1 + tw_exp(-x)); }
TW_FUNCTION double tw_normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
// As on CPUs (normal_tail_f32 of math_coefficients.h): above 0 it is 1 - q, below q, with q = 2^(|x| P(|x|) - 1).
TW_FUNCTION float tw_normal_cdf(float x) {
  const float a = tw_minimum(fabsf(x), 15.0f);
  const float p[] = {-0x1.26af04p+0f, -0x1.d63204p-2f, -0x1.af159ep-5f, 0x1.dd62b2p-8f,
                     -0x1.5fea8ep-12f, -0x1.7ffe7ep-14f, 0x1.1a61bep-16f, -0x1.887fd8p-21f};
  float y = p[7];
  #pragma unroll
  for (int k = 7; k-- > 0;) y = fmaf(y, a, p[k]);
  const float q = tw_rough_exp2(fmaf(y, a, -1.0f));
  return x < 0 ? q : 1 - q;
}
template <class T> TW_FUNCTION T tw_abs(T x) { return x < 0 ? (T)(0 - x) : x; }
TW_FUNCTION float tw_abs(float x) { return fabsf(x); }
TW_FUNCTION double tw_abs(double x) { return fabs(x); }
template <class T> TW_FUNCTION T tw_sign(T x) { return x != x ? x : (T)((x > (T)0) - (x < (T)0)); }
TW_FUNCTION float tw_fma(float a, float b, float c) { return fmaf(a, b, c); }
TW_FUNCTION double tw_fma(double a, double b, double c) { return fma(a, b, c); }
template <class T> TW_FUNCTION bool tw_is_nan(T x) { return x != x; }
TW_FUNCTION bool tw_is_inf(float x) { return fabsf(x) == __uint_as_float(0x7f800000u); }
TW_FUNCTION bool tw_is_inf(double x) { return fabs(x) == __longlong_as_double(0x7ff0000000000000ll); }
TW_FUNCTION u64 tw_philox(u64 key, u64 low, u64 high) {
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  unsigned c0 = (unsigned)low, c1 = (unsigned)(low >> 32), c2 = (unsigned)high, c3 = (unsigned)(high >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    c0 = (unsigned)(p1 >> 32) ^ c1 ^ k0, c1 = (unsigned)p1, c2 = (unsigned)(p0 >> 32) ^ c3 ^ k1, c3 = (unsigned)p0;
  }
  return (u64)c1 << 32 | c0;
}
// Rows of 2^line elements, of which there are 2^rows, as blocks of 64 columns.
template <int line, int rows> TW_FUNCTION int tw_columns(int e) {
  constexpr int block = 6, columns = (1 << (line - block)) - 1, all = (1 << rows) - 1;
  return (e & ~((1 << (line + rows)) - 64)) | ((e >> block) & columns) << (block + rows) | ((e >> line) & all) << block;
}
// Rows of 2^line elements, of which there are 2^rows: of each eight the first two, then of each eight the next two, …
template <int line, int rows> TW_FUNCTION int tw_turn(int e) {
  constexpr int eights = (1 << (rows - 3)) - 1, inside = (2 << line) - 1, all = (1 << (line + rows)) - 1;
  return (e & ~all) | (e >> (line + 1) & 3) << (line + rows - 2) | (e >> (line + 3) & eights) << (line + 1) | (e & inside);
}
template <int from, int mask, int to> TW_FUNCTION int tw_swizzle(int e) { return e ^ (((e >> from) & mask) << to); }
template <class T> TW_FUNCTION T tw_popcount(T x) { return (T)__popcll((u64)x & (~0ull >> (64 - 8 * sizeof(T)))); }
)cuda";

}  // namespace tw::cuda
