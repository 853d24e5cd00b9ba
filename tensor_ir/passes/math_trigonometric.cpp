// sin, cos, tan and their inverses.
//
// Arguments are reduced as Payne and Hanek do (SIGNUM 18, 1983), for every finite x alike: x = m·2^E is multiplied by
// the bits of 2/π that decide its quadrant and fraction; the bits before them only add whole turns.  The window of bits
// is chosen by the exponent: a barrel shift of words by selects, then a shift of bits.  The products are exact; with a
// window of 96 bits (f32) or 192 bits (f64) the fraction of the nearest multiple (2^-30, 2^-62) keeps more than p + 3
// bits.
#include <algorithm>
#include <cstdint>

#include "tensor_ir/passes/math_builder.h"
#include "tensor_ir/passes/math_coefficients.h"

namespace tw::math {
namespace {

struct Quadrant {
  Expr n;          // i32: which quadrant, modulo 4
  Expr high, low;  // |x| = n·π/2 + high + low, |high| ≤ π/4
};

Expr bit(const Expr& flags, int64_t mask) {
  return not_equal(binary(BinaryOp::bit_and, flags, int_imm(flags.dtype(), mask)), int_imm(flags.dtype(), 0));
}

// words[index + 0 … index + count), by selects on the bits of the index.
std::vector<Expr> window_of(Builder& b, std::vector<Expr> words, const Expr& index, int largest, int count) {
  int step = 1;
  while (step * 2 <= largest) step *= 2;
  for (; step > 0; step /= 2) {
    const Expr moves = b.name("moves", bit(index, step));
    // After this step the index is below `step`.
    const int needed = std::min<int>(static_cast<int>(words.size()), step - 1 + count);
    std::vector<Expr> shifted;
    for (int i = 0; i < needed; ++i) {
      const size_t from = static_cast<size_t>(i) + static_cast<size_t>(step);
      const size_t here = static_cast<size_t>(i);
      shifted.push_back(from < words.size() ? b.name("word", select(moves, words[from], words[here])) : words[here]);
    }
    words = std::move(shifted);
  }
  return words;
}

Quadrant reduce(Builder& b, const Expr& a) {
  const DType word = u32.with_lanes(b.dtype.lanes), wide = u64.with_lanes(b.dtype.lanes);
  const DType real = f64.with_lanes(b.dtype.lanes), number = i32.with_lanes(b.dtype.lanes);
  const int fraction = b.fraction_bits(), limbs = b.is_single() ? 3 : 6;
  const int zero_words = b.is_single() ? 1 : 2;
  const Expr bits = b.name("bits", b.bits_of(a));
  const Expr exponent = cast(number, Builder::shift_right(bits, fraction));
  // The window begins after the bit of weight 2^-(E − fraction − 2); zero words stand before 2/π.
  const int offset = b.bias() + fraction + 2 - 32 * zero_words;
  const Expr position = b.name("position", max(exponent - int_imm(number, offset), int_imm(number, 0)));
  const int largest = ((b.is_single() ? 128 : 1024) + b.bias() - offset) / 32;
  std::vector<Expr> words;
  for (int i = 0; i < zero_words; ++i) words.push_back(int_imm(word, 0));
  for (int i = 0; static_cast<int>(words.size()) < largest + limbs + 1; ++i)
    words.push_back(int_imm(word, two_over_pi[i]));
  words = window_of(b, std::move(words), b.name("index", Builder::shift_right(position, 5)), largest, limbs + 1);

  const Expr by = b.name("by", cast(word, binary(BinaryOp::bit_and, position, int_imm(number, 31))));
  const Expr rest = b.name("rest", int_imm(word, 31) - by);
  std::vector<Expr> window;  // most significant first, 32 bits each, in 64
  for (int i = 0; i < limbs; ++i) {
    const Expr upper = binary(BinaryOp::shift_left, words[i], by);
    const Expr lower = binary(BinaryOp::shift_right, Builder::shift_right(words[i + 1], 1), rest);
    window.push_back(b.name("window", cast(wide, binary(BinaryOp::bit_or, upper, lower))));
  }
  const int64_t fraction_mask = (int64_t{1} << fraction) - 1;
  const Expr mantissa =
      b.name("mantissa", cast(wide, binary(BinaryOp::bit_or, binary(BinaryOp::bit_and, bits, b.integer(fraction_mask)),
                                           b.integer(fraction_mask + 1))));
  const Expr mask = int_imm(wide, 0xffffffff);
  std::vector<Expr> factors{mantissa};
  if (!b.is_single()) {
    factors = {b.name("low", binary(BinaryOp::bit_and, mantissa, mask)),
               b.name("high", Builder::shift_right(mantissa, 32))};
  }
  // mantissa × window modulo 2^(32·limbs), limb by limb from the lowest.
  std::vector<Expr> sums(static_cast<size_t>(limbs));
  auto add_to = [&](int limb, const Expr& part) {
    if (limb >= limbs) return;
    Expr& sum = sums[static_cast<size_t>(limb)];
    sum = sum.is_defined() ? sum + part : part;
  };
  for (int f = 0; f < static_cast<int>(factors.size()); ++f) {
    for (int w = 0; w < limbs; ++w) {
      if (f + w >= limbs) continue;
      const Expr product =
          b.name("product", factors[static_cast<size_t>(f)] * window[static_cast<size_t>(limbs - 1 - w)]);
      add_to(f + w, binary(BinaryOp::bit_and, product, mask));
      add_to(f + w + 1, Builder::shift_right(product, 32));
    }
  }
  std::vector<Expr> result;  // lowest first
  Expr carry;
  for (const Expr& sum : sums) {
    const Expr total = b.name("total", carry.is_defined() ? sum + carry : sum);
    result.push_back(b.name("limb", binary(BinaryOp::bit_and, total, mask)));
    carry = Builder::shift_right(total, 32);
  }
  // The two highest bits are the quadrant; the rest, rounded to the nearest, is a signed fraction of one.
  const Expr top = b.name("top", cast(word, result.back()));
  const Expr n = b.name("n", Builder::shift_right(top + int_imm(word, 0x20000000), 30));
  const Expr head = Builder::reinterpret(number, top - Builder::shift_left(n, 30));
  auto limb = [&](int from_top, double weight) {
    return cast(real, result[static_cast<size_t>(limbs - 1 - from_top)]) * float_imm(real, weight);
  };
  const Expr is_small = b.name("is_small", a < b.real(0.785398));
  const Expr quadrant = select(is_small, int_imm(number, 0), Builder::reinterpret(number, n));
  const Expr half_pi = float_imm(real, half_pi_f64[0]);
  if (b.is_single()) {
    const Expr turned = b.name("turned", (cast(real, head) * float_imm(real, 0x1p-30) + limb(1, 0x1p-62)) * half_pi);
    const Expr high = b.name("high", cast(b.dtype, turned));
    const Expr low = cast(b.dtype, turned - cast(real, high));
    return {b.name("n", quadrant), b.name("r", select(is_small, a, high)),
            b.name("low", select(is_small, b.real(0), low))};
  }
  // In two doubles: head and the next limb add without error, and what follows is kept beside them.
  auto two_sum = [&](const Expr& x, const Expr& y) {
    const Expr sum = b.name("sum", x + y), part = b.name("part", sum - x);
    return std::pair{sum, b.name("error", (x - (sum - part)) + (y - part))};
  };
  const auto [first, error] =
      two_sum(b.name("x", cast(real, head) * float_imm(real, 0x1p-30)), b.name("y", limb(1, 0x1p-62)));
  const auto [high, low] = two_sum(first, b.name("y", error + (limb(2, 0x1p-94) + limb(3, 0x1p-126))));
  const Expr product = b.name("product", high * half_pi);
  const Expr lost = b.exact_residue(high, half_pi, -product);
  const Expr rest_low = b.name("low", lost + (low * half_pi + high * float_imm(real, half_pi_f64[1])));
  return {b.name("n", quadrant), b.name("r", select(is_small, a, product)),
          b.name("low", select(is_small, b.real(0), rest_low))};
}

struct SinCos {
  Expr n, sine, cosine;
};

SinCos sin_cos(Builder& b, const Expr& x) {
  const auto [n, r, low] = reduce(b, b.name("a", Builder::absolute(x)));
  const Expr z = b.name("z", r * r);
  const Expr sine = r + (r * z * b.polynomial(z, b.pick(sin_f32, sin_f64)) + low);
  const Expr half = b.name("half", z * b.real(0.5));
  const Expr w = b.name("w", b.real(1) - half);
  const Expr cosine = w + (((b.real(1) - w) - half) + (z * z * b.polynomial(z, b.pick(cos_f32, cos_f64)) - r * low));
  return {n, b.name("sine", sine), b.name("cosine", cosine)};
}

// Not a number for what is infinite.
Expr if_finite(const Builder& b, const Expr& x, Expr value) {
  return select(Builder::absolute(x) < b.real(b.infinity()), std::move(value), x - x);
}

}  // namespace

Expr sin(Builder& b, const Expr& x) {
  const auto [n, sine, cosine] = sin_cos(b, x);
  const Expr value = b.name("value", select(bit(n, 1), cosine, sine));
  const Expr turned = b.name("value", select(bit(n, 2), -value, value));
  const Expr is_negative = b.bits_of(x) < b.integer(0);
  return if_finite(b, x, select(is_negative, -turned, turned));
}

Expr cos(Builder& b, const Expr& x) {
  const auto [n, sine, cosine] = sin_cos(b, x);
  const Expr value = b.name("value", select(bit(n, 1), sine, cosine));
  return if_finite(b, x, select(bit(n + int_imm(n.dtype(), 1), 2), -value, value));
}

Expr tan(Builder& b, const Expr& x) {
  const auto [n, r, low] = reduce(b, b.name("a", Builder::absolute(x)));
  const Expr z = b.name("z", r * r);
  const Expr t = b.name("t", r + (r * z * b.polynomial(z, b.pick(tan_f32, tan_f64)) + low * (z + b.real(1))));
  const Expr value = b.name("value", select(bit(n, 1), b.real(-1) / t, t));
  return if_finite(b, x, select(b.bits_of(x) < b.integer(0), -value, value));
}

// π/2 − atan(1/a) above 1
Expr atan(Builder& b, const Expr& x) {
  const auto half_pi = b.pick(half_pi_f32, half_pi_f64);
  const Expr a = b.name("a", Builder::absolute(x));
  const Expr is_large = b.name("is_large", b.real(1) < a);
  const Expr y = b.name("y", select(is_large, b.real(1) / a, a));
  const Expr z = b.name("z", y * y);
  const Expr p = b.name("p", y * z * b.polynomial(z, b.pick(atan_f32, atan_f64)) + y);
  return Builder::with_sign_of(select(is_large, b.real(half_pi[0]) - (p - b.real(half_pi[1])), p), x);
}

namespace {

// asin of y = |x| up to 1/2, and above of √((1 − |x|)/2), of which it is π/2 minus twice.
struct ArcSine {
  Expr is_large, y, rest;  // asin(y) = y + rest
};

ArcSine arc_sine(Builder& b, const Expr& x) {
  const Expr a = b.name("a", Builder::absolute(x));
  const Expr is_large = b.name("is_large", b.real(0.5) < a);
  const Expr z = b.name("z", select(is_large, (b.real(1) - a) * b.real(0.5), a * a));
  const Expr y = b.name("y", select(is_large, call(Intrinsic::sqrt, {z}), a));
  return {is_large, y, b.name("rest", y * z * b.polynomial(z, b.pick(asin_f32, asin_f64)))};
}

}  // namespace

Expr asin(Builder& b, const Expr& x) {
  const auto half_pi = b.pick(half_pi_f32, half_pi_f64);
  const auto [is_large, y, rest] = arc_sine(b, x);
  // From 3/2, not from π/2: the difference is then exact wherever the result is below 1.
  const Expr large = (b.real(1.5) - (y + y)) - ((rest + rest) - b.real(half_pi[0] - 1.5 + half_pi[1]));
  return Builder::with_sign_of(select(is_large, large, y + rest), x);
}

Expr acos(Builder& b, const Expr& x) {
  const auto half_pi = b.pick(half_pi_f32, half_pi_f64);
  const auto [is_large, y, rest] = arc_sine(b, x);
  const Expr p = b.name("p", y + rest);
  const Expr twice = b.name("twice", p + p);
  const Expr large = select(x < b.real(0), b.real(2 * half_pi[0]) - (twice - b.real(2 * half_pi[1])), twice);
  const Expr small = b.real(half_pi[0]) - (Builder::with_sign_of(p, x) - b.real(half_pi[1]));
  return select(is_large, large, small);
}

}  // namespace tw::math
