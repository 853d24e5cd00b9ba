#include "relay_ir/ops/narrow.h"

#include "tensor_ir/minifloat.h"

namespace tw::relay {
namespace {

Expr masked(const Expr& x, int64_t mask) {
  return binary(BinaryOp::bit_and, x, int_imm(x.dtype(), mask));
}

Expr decoded(const Expr& code, DType from) {
  return from == f8e4m3fn ? call(Intrinsic::decode_e4m3, {code})
         : from == f8e5m2 ? call(Intrinsic::decode_e5m2, {code})
                          : decoded_minifloat(code, from);
}

Expr encoded(const Expr& x, DType to) {
  return to == f8e4m3fn ? call(Intrinsic::encode_e4m3, {x})
         : to == f8e5m2 ? call(Intrinsic::encode_e5m2, {x})
                        : encoded_minifloat(x, to);
}

// The low bits of an integer, as a value of the narrow type.
Expr narrowed(const Expr& x, DType to) {
  const DType byte = to.stored();
  const Expr low = cast(byte, x);
  if (to.is_unsigned_integer()) return masked(low, (1 << to.bits) - 1);
  const Expr unused = int_imm(byte, 8 - to.bits);
  return binary(BinaryOp::shift_right, binary(BinaryOp::shift_left, low, unused), unused);
}

}  // namespace

Expr converted(const Expr& x, DType from, DType to) {
  if (from == to) return x;
  Expr value = x;
  if (from.is_minifloat())
    value = decoded(x, from);
  else if (from.is_narrow())
    value = narrowed(x, from);
  const DType own = value.dtype();
  if (to.is_minifloat()) return encoded(cast(f32, value), to);
  if (to.is_narrow()) return narrowed(own.is_float() ? cast(i32, value) : value, to);
  if (to.is_bool() && !own.is_bool()) return not_equal(value, zero_of(own));
  return cast(to, value);
}

Expr with_same_bits(const Expr& x, DType to) {
  const Expr bits =
      x.dtype() == to.stored() ? x : make_expr<Call>(to.stored(), Intrinsic::reinterpret, std::vector<Expr>{x});
  if (to.bits >= 8 || to.is_bool()) return bits;
  return to.is_minifloat() ? masked(bits, (1 << to.bits) - 1) : narrowed(bits, to);
}

}  // namespace tw::relay
