// Random bits.
//
// All words are in lanes of 64 bits, whose upper halves are 0: so the products are those of an instruction (vpmuludq,
// umull), and no lane moves.
#include "tensor_ir/passes/math_builder.h"
#include "tensor_ir/scalar_meaning.h"

namespace tw::math {

Expr philox(Builder& b, const Expr& key, const Expr& low, const Expr& high) {
  const auto number = [&](uint32_t value) { return int_imm(b.dtype, value); };
  const auto lower = [&](const Expr& x) { return binary(BinaryOp::bit_and, x, number(UINT32_MAX)); };
  const auto upper = [&](const Expr& x) { return Builder::shift_right(x, 32); };
  const auto mixed = [&](const Expr& product, const Expr& word, const Expr& key_word) {
    return binary(BinaryOp::bit_xor, binary(BinaryOp::bit_xor, upper(product), word), key_word);
  };
  Expr k0 = b.name("k0", lower(key)), k1 = b.name("k1", upper(key));
  Expr c0 = lower(low), c1 = upper(low), c2 = lower(high), c3 = upper(high);
  for (int round = 0; round < meaning::philox_rounds; ++round) {
    const Expr p0 = b.name("p0", c0 * number(meaning::philox_factors[0]));
    const Expr p1 = b.name("p1", c2 * number(meaning::philox_factors[1]));
    c0 = mixed(p1, c1, k0), c1 = lower(p1), c2 = mixed(p0, c3, k1), c3 = lower(p0);
    k0 = b.name("k0", lower(k0 + number(meaning::philox_weyl[0])));
    k1 = b.name("k1", lower(k1 + number(meaning::philox_weyl[1])));
  }
  return binary(BinaryOp::bit_or, c0, Builder::shift_left(c1, 32));
}

}  // namespace tw::math
