// Rows of two and three inputs, broadcast against one another.
#include "relay_ir/ops/elementwise_rows.h"

namespace tw::relay {
namespace {

template <BinaryOp op>
Expr plain(const OpCall&, const Args& a) {
  return binary(op, a[0], a[1]);
}

// Integers truncate.  Division by zero gives 0, and the lowest number by -1 wraps: neither may stop the program.
Expr divide(const OpCall&, const Args& a) {
  if (a[0].dtype().is_float()) return a[0] / a[1];
  const Expr zero = number(a[0], 0);
  if (const auto divisor = as_int(a[1])) {
    return *divisor == 0 ? zero : *divisor == -1 && a[0].dtype().is_signed_integer() ? zero - a[0] : a[0] / a[1];
  }
  const Expr is_zero = equal(a[1], zero);
  if (!a[0].dtype().is_signed_integer()) return select(is_zero, zero, a[0] / select(is_zero, number(a[1], 1), a[1]));
  const Expr is_minus_one = equal(a[1], number(a[1], -1));
  const Expr safe = select(is_zero || is_minus_one, number(a[1], 1), a[1]);
  return select(is_zero, zero, select(is_minus_one, zero - a[0], a[0] / safe));
}

Expr modulo_by(const Args& a, BinaryOp op) {
  const Expr zero = number(a[0], 0);
  const Expr is_zero = equal(a[1], zero);
  Expr is_trivial = is_zero;
  if (a[0].dtype().is_signed_integer()) is_trivial = is_trivial || equal(a[1], number(a[1], -1));
  return select(is_trivial, zero, binary(op, a[0], select(is_trivial, number(a[1], 1), a[1])));
}

// The sign of the divisor, as in Python.
Expr modulo(const OpCall&, const Args& a) {
  if (!a[0].dtype().is_float()) return modulo_by(a, BinaryOp::floor_mod);
  const Expr rest = call(Intrinsic::fmod, {a[0], a[1]});
  const Expr zero = number(a[0], 0);
  return select(not_equal(rest, zero) && not_equal(rest < zero, a[1] < zero), rest + a[1], rest);
}

// The sign of the dividend, as in C.
Expr remainder(const OpCall&, const Args& a) {
  return a[0].dtype().is_float() ? call(Intrinsic::fmod, {a[0], a[1]}) : modulo_by(a, BinaryOp::mod);
}

// Integers by repeated squaring.  Exponents of 64 and more matter only for -1, 0 and 1 (all else has overflowed), where
// only their parity does; negative ones give 1 / base, truncated.
Expr power(const OpCall&, const Args& a) {
  const Expr &base = a[0], &exponent = a[1];
  if (base.dtype().is_float()) return call(Intrinsic::pow, {base, exponent});
  const Expr one = number(base, 1), zero = number(base, 0);
  const Expr odd = binary(BinaryOp::bit_and, exponent, number(exponent, 1));
  Expr bounded = min(exponent, number(exponent, 62) + odd);
  if (exponent.dtype().is_signed_integer()) bounded = max(bounded, number(exponent, 0));
  Expr result = one, square = base;
  for (int bit = 0; bit < 6; ++bit) {
    const Expr is_set = not_equal(binary(BinaryOp::bit_and, bounded, number(exponent, int64_t{1} << bit)), 0);
    result = select(is_set, result * square, result);
    square = square * square;
  }
  if (!exponent.dtype().is_signed_integer()) return result;
  const Expr inverse = select(equal(base, one), one,
                              base.dtype().is_signed_integer()
                                  ? select(equal(base, number(base, -1)), select(equal(odd, 0), one, base), zero)
                                  : zero);
  return select(exponent < 0, inverse, result);
}

// Shifts by the width or more, or by negative counts, leave what sign extension leaves.
Expr shift(const OpCall& c, const Args& a) {
  const bool is_left = c.attributes.get_int("left") != 0;
  const Expr width = number(a[1], a[0].dtype().bits);
  Expr is_out = a[1] >= width;
  if (a[1].dtype().is_signed_integer()) is_out = is_out || a[1] < 0;
  const Expr count = select(is_out, number(a[1], 0), a[1]);
  Expr rest = number(a[0], 0);
  if (!is_left && a[0].dtype().is_signed_integer()) rest = select(a[0] < 0, number(a[0], -1), rest);
  return select(is_out, rest, binary(is_left ? BinaryOp::shift_left : BinaryOp::shift_right, a[0], count));
}

Expr minimum(const OpCall&, const Args& a) {
  return minimum_of(a[0], a[1]);
}

Expr maximum(const OpCall&, const Args& a) {
  return maximum_of(a[0], a[1]);
}

Expr prelu(const OpCall&, const Args& a) {
  return select(a[0] < 0, a[0] * a[1], a[0]);
}

}  // namespace

std::vector<ElementwiseRow> binary_rows() {
  using enum Takes;
  using enum Gives;
  using enum Rounding;
  using Op = BinaryOp;
  const std::vector<std::string> ab{"a", "b"};
  return {
      {"add", ab, numbers, same, keeps, "a + b", plain<Op::add>},
      {"subtract", ab, numbers, same, keeps, "a - b", plain<Op::sub>},
      {"multiply", ab, numbers, same, keeps, "a · b", plain<Op::mul>},
      {"divide", ab, numbers, same, keeps, "a / b; integers truncate to zero", divide, {}, 0.5, 2},
      {"modulo", ab, numbers, same, exact, "a modulo b, with the sign of b", modulo, {}, 0.5, 2},
      {"remainder", ab, numbers, same, exact, "the rest of a / b, with the sign of a", remainder, {}, 0.5, 2},
      {"power", ab, numbers, same, exact, "a to the b", power, {}, 0.5, 2},
      {"minimum", ab, numbers, same, keeps, "the smaller one; NaN when either is", minimum},
      {"maximum", ab, numbers, same, keeps, "the larger one; NaN when either is", maximum},
      {"equal", ab, numbers_and_bool, truth, exact, "a = b", plain<Op::eq>},
      {"less", ab, numbers, truth, exact, "a < b", plain<Op::lt>},
      {"less_equal", ab, numbers, truth, exact, "a ≤ b", plain<Op::le>},
      {"logical_and", ab, bools, truth, exact, "a and b", plain<Op::logical_and>},
      {"logical_or", ab, bools, truth, exact, "a or b", plain<Op::logical_or>},
      {"logical_xor", ab, bools, truth, exact, "either a or b", plain<Op::ne>},
      {"bit_and", ab, integers, same, exact, "bits set in both", plain<Op::bit_and>},
      {"bit_or", ab, integers, same, exact, "bits set in either", plain<Op::bit_or>},
      {"bit_xor", ab, integers, same, exact, "bits set in one only", plain<Op::bit_xor>},
      {"shift", ab, integers, same, exact, "a shifted by b bits; right shifts of signed numbers keep the sign", shift,
       Attributes{{"left", 0, false, "1: to the left"}}},
      {"prelu", {"x", "slope"}, numbers, same, keeps, "x, or slope·x where x < 0", prelu},
  };
}

}  // namespace tw::relay
