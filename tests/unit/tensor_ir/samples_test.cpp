// What expressions are at points: what simplification keeps, and what follows where they differ.
#include "tensor_ir/arith/samples.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tensor_ir/dimension.h"
#include "tensor_ir/te.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

const Samples unknown{};

TEST(Samples, SimplifiedExpressionsAreTheSameEverywhere) {
  const Var n = dimension("n", {1, 4096}), m = dimension("m", {8, 64});
  std::mt19937_64 random(3);
  const auto pick = [&](int limit) { return static_cast<int>(random() % static_cast<uint64_t>(limit)); };
  const auto make = [&](auto& self, int depth) -> Expr {
    if (depth == 0) return pick(3) == 0 ? Expr(pick(9) + 1) : pick(2) ? Expr(n) : Expr(m);
    const Expr a = self(self, depth - 1), b = self(self, depth - 1);
    const Expr divisor = pick(3) == 0 ? Expr(m) : Expr(pick(9) + 1);
    const Expr all[] = {a + b, a - b, a * b, min(a, b), max(a, b), floor_div(a, divisor), floor_mod(a, divisor)};
    return all[pick(7)];
  };
  int known = 0;
  for (int i = 0; i < 2000; ++i) {
    const Expr e = make(make, 4), simple = simplify(e);
    known += samples_of(e) != unknown;
    EXPECT_TRUE(may_be_equal(samples_of(e), samples_of(simple))) << to_text(e) << " => " << to_text(simple);
  }
  EXPECT_GT(known, 1900);
}

TEST(Samples, AreWithinWhatIsKnown) {
  const Var n = dimension("n", {5, 7}), i("i");
  for (const auto& value : samples_of(n)) EXPECT_TRUE(value >= 5 && value <= 7);
  Assumptions known;
  known.bind(i, {3, 4});
  for (const auto& value : samples_of(i, known)) EXPECT_TRUE(value >= 3 && value <= 4);
  known.assume(i < Expr(4));
  for (const auto& value : samples_of(i, known)) EXPECT_TRUE(!value || value == 3);
  known.assume(Expr(4) < i);  // no point is left
  EXPECT_EQ(samples_of(i, known), unknown);
}

TEST(Samples, OfWhatIsNoPlainNumberAreUnknown) {
  const Var n = dimension("n", {1}), x("x", f32);
  const te::Tensor memory = te::placeholder("memory", {n}, i64);
  EXPECT_EQ(samples_of(x), unknown);
  EXPECT_EQ(samples_of(memory(te::Indices{Expr(0)}) + n), unknown);
  EXPECT_EQ(samples_of(floor_div(n, n - n)), unknown);
  EXPECT_EQ(samples_of(Expr(std::numeric_limits<int64_t>::max()) + n), unknown);
}

TEST(Samples, TellWhatCannotBeProved) {
  const Var n = dimension("n", {1}), m = dimension("m", {1});
  EXPECT_FALSE(may_be_equal(samples_of(floor_div(n + 7, 8)), samples_of(floor_div(n, 8) + 1)));
  EXPECT_FALSE(may_be_equal(product_of(samples_of(n), samples_of(m)), product_of(samples_of(n), samples_of(n))));
  EXPECT_TRUE(may_be_equal(product_of(samples_of(n), samples_of(m)), samples_of(m * n)));
  EXPECT_TRUE(may_be_equal(samples_of(n), unknown));
  EXPECT_FALSE(can_prove(n <= m));
  EXPECT_TRUE(can_prove(n <= n + m));
  EXPECT_TRUE(is_known_equal(floor_div(n * 8 + 3, 8), n));
}

}  // namespace
}  // namespace tw
