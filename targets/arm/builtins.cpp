// Run-time ABI for the Arm Architecture (IHI 0043), sections 4.1.2 and 4.2: names, and the base procedure call standard
// whatever the code around uses.  Nothing in here may need one of these functions itself.
#include "targets/arm/builtins.h"

namespace tw::arm {

const char* const builtins_ir = R"(
; Quotient and remainder, bit by bit unless both numbers have 32 bits, as indices do.
define hidden arm_aapcscc {i64, i64} @__aeabi_uldivmod(i64 %n, i64 %d) noinline nounwind {
entry:
  %both = or i64 %n, %d
  %high = lshr i64 %both, 32
  %is_small = icmp eq i64 %high, 0
  br i1 %is_small, label %small, label %loop
small:
  %n32 = trunc i64 %n to i32
  %d32 = trunc i64 %d to i32
  %q32 = udiv i32 %n32, %d32
  %product = mul i32 %q32, %d32
  %r32 = sub i32 %n32, %product
  %qs = zext i32 %q32 to i64
  %rs = zext i32 %r32 to i64
  %s0 = insertvalue {i64, i64} poison, i64 %qs, 0
  %s1 = insertvalue {i64, i64} %s0, i64 %rs, 1
  ret {i64, i64} %s1
loop:
  %i = phi i32 [64, %entry], [%i.next, %loop]
  %rest = phi i64 [%n, %entry], [%rest.next, %loop]
  %r = phi i64 [0, %entry], [%r.next, %loop]
  %q = phi i64 [0, %entry], [%q.next, %loop]
  %carry = icmp slt i64 %r, 0
  %top = lshr i64 %rest, 63
  %r.shifted = shl i64 %r, 1
  %r.new = or i64 %r.shifted, %top
  %is_ge = icmp uge i64 %r.new, %d
  %fits = or i1 %carry, %is_ge
  %r.less = sub i64 %r.new, %d
  %r.next = select i1 %fits, i64 %r.less, i64 %r.new
  %bit = zext i1 %fits to i64
  %q.shifted = shl i64 %q, 1
  %q.next = or i64 %q.shifted, %bit
  %rest.next = shl i64 %rest, 1
  %i.next = sub i32 %i, 1
  %done = icmp eq i32 %i.next, 0
  br i1 %done, label %end, label %loop
end:
  %p0 = insertvalue {i64, i64} poison, i64 %q.next, 0
  %p1 = insertvalue {i64, i64} %p0, i64 %r.next, 1
  ret {i64, i64} %p1
}

define hidden arm_aapcscc {i64, i64} @__aeabi_ldivmod(i64 %n, i64 %d) nounwind {
  %sn = ashr i64 %n, 63
  %sd = ashr i64 %d, 63
  %nx = xor i64 %n, %sn
  %na = sub i64 %nx, %sn
  %dx = xor i64 %d, %sd
  %da = sub i64 %dx, %sd
  %u = call arm_aapcscc {i64, i64} @__aeabi_uldivmod(i64 %na, i64 %da)
  %q = extractvalue {i64, i64} %u, 0
  %r = extractvalue {i64, i64} %u, 1
  %sq = xor i64 %sn, %sd
  %qx = xor i64 %q, %sq
  %qs = sub i64 %qx, %sq
  %rx = xor i64 %r, %sn
  %rs = sub i64 %rx, %sn
  %p0 = insertvalue {i64, i64} poison, i64 %qs, 0
  %p1 = insertvalue {i64, i64} %p0, i64 %rs, 1
  ret {i64, i64} %p1
}

; high and low word in f64, which holds each exactly.
define hidden arm_aapcscc i64 @__aeabi_d2ulz(double %x) noinline nounwind {
  %scaled = fmul double %x, 0x3DF0000000000000
  %high = fptoui double %scaled to i32
  %high.f = uitofp i32 %high to double
  %high.x = fmul double %high.f, 0x41F0000000000000
  %low.f = fsub double %x, %high.x
  %low = fptoui double %low.f to i32
  %h = zext i32 %high to i64
  %l = zext i32 %low to i64
  %hs = shl i64 %h, 32
  %result = or i64 %hs, %l
  ret i64 %result
}

define hidden arm_aapcscc i64 @__aeabi_d2lz(double %x) noinline nounwind {
  %is_negative = fcmp olt double %x, 0.0
  %minus = fneg double %x
  %magnitude = select i1 %is_negative, double %minus, double %x
  %u = call arm_aapcscc i64 @__aeabi_d2ulz(double %magnitude)
  %n = sub i64 0, %u
  %result = select i1 %is_negative, i64 %n, i64 %u
  ret i64 %result
}

define hidden arm_aapcscc i64 @__aeabi_f2ulz(float %x) nounwind {
  %d = fpext float %x to double
  %result = call arm_aapcscc i64 @__aeabi_d2ulz(double %d)
  ret i64 %result
}

define hidden arm_aapcscc i64 @__aeabi_f2lz(float %x) nounwind {
  %d = fpext float %x to double
  %result = call arm_aapcscc i64 @__aeabi_d2lz(double %d)
  ret i64 %result
}

define hidden arm_aapcscc double @__aeabi_ul2d(i64 %x) noinline nounwind {
  %h = lshr i64 %x, 32
  %high = trunc i64 %h to i32
  %low = trunc i64 %x to i32
  %high.f = uitofp i32 %high to double
  %low.f = uitofp i32 %low to double
  %high.x = fmul double %high.f, 0x41F0000000000000
  %result = fadd double %high.x, %low.f
  ret double %result
}

define hidden arm_aapcscc double @__aeabi_l2d(i64 %x) noinline nounwind {
  %h = lshr i64 %x, 32
  %high = trunc i64 %h to i32
  %low = trunc i64 %x to i32
  %high.f = sitofp i32 %high to double
  %low.f = uitofp i32 %low to double
  %high.x = fmul double %high.f, 0x41F0000000000000
  %result = fadd double %high.x, %low.f
  ret double %result
}

; What f64 cannot hold is first rounded to odd there, so that the rounding to f32 is the only one.
define hidden arm_aapcscc float @__aeabi_ul2f(i64 %x) noinline nounwind {
  %top = lshr i64 %x, 53
  %is_large = icmp ne i64 %top, 0
  %low = and i64 %x, 2047
  %sticky = add i64 %low, 2047
  %joined = or i64 %x, %sticky
  %odd = and i64 %joined, -2048
  %value = select i1 %is_large, i64 %odd, i64 %x
  %d = call arm_aapcscc double @__aeabi_ul2d(i64 %value)
  %result = fptrunc double %d to float
  ret float %result
}

define hidden arm_aapcscc float @__aeabi_l2f(i64 %x) noinline nounwind {
  %sign = ashr i64 %x, 63
  %flipped = xor i64 %x, %sign
  %magnitude = sub i64 %flipped, %sign
  %f = call arm_aapcscc float @__aeabi_ul2f(i64 %magnitude)
  %minus = fneg float %f
  %is_negative = icmp slt i64 %x, 0
  %result = select i1 %is_negative, float %minus, float %f
  ret float %result
}
)";

}  // namespace tw::arm
