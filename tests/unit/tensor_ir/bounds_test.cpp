// Bounds of expressions and their affine form.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

class BoundsTest : public ::testing::Test {
 protected:
  BoundsTest() {
    known.bind(i, {0, 15});
    known.bind(j, {-8, 7});
    known.bind(k, {3, 3});
    known.bind_range(t, n);
  }
  void expect(const Expr& e, std::optional<int64_t> low, std::optional<int64_t> high) {
    const Interval bounds = bounds_of(e, known);
    EXPECT_EQ(bounds.low, low) << to_text(e);
    EXPECT_EQ(bounds.high, high) << to_text(e);
  }

  Var i{"i"}, j{"j"}, k{"k"}, n{"n"}, t{"t"}, free{"free"};
  Assumptions known;
};

TEST_F(BoundsTest, FollowsArithmetic) {
  expect(i + j, -8, 22);
  expect(i - j, -7, 23);
  expect(i * j, -120, 105);
  expect(i * 4 - 2, -2, 58);
  expect(-j, -7, 8);
  expect(k * 5, 15, 15);
  expect(min(i, j), -8, 7);
  expect(max(i, 4), 4, 15);
  expect(select(i < j, i, j + 100), 0, 107);
  expect(i - i, 0, 0);
}

TEST_F(BoundsTest, FollowsDivision) {
  expect(floor_div(i, 4), 0, 3);
  expect(floor_div(j, 4), -2, 1);
  expect(floor_mod(j, 4), 0, 3);
  expect(floor_mod(i, 32), 0, 15);
  expect(floor_mod(free, 7), 0, 6);
  expect(floor_div(floor_mod(free, 64), 16), 0, 3);
  expect(floor_div(i, k), 0, 5);
}

TEST_F(BoundsTest, KnowsTypesAndSymbols) {
  expect(t, 0, std::nullopt);
  expect(n, 1, std::nullopt);  // for t to exist
  expect(t * 16 + i, 0, std::nullopt);
  expect(free, std::nullopt, std::nullopt);
  const Buffer bytes("B", u8, {Expr(4)}), shorts("S", i16, {Expr(4)}), words("W", i64, {Expr(4)});
  expect(cast(i64, load(bytes, {k})), 0, 255);
  expect(cast(i64, load(shorts, {k})) * 2, -65536, 65534);
  expect(load(words, {k}), std::nullopt, std::nullopt);
  expect(load(words, {k}) + 1, std::nullopt, std::nullopt);
  expect(cast(i64, i < j), 0, 1);
}

TEST_F(BoundsTest, CoversAllLanes) {
  expect(ramp(i, 2, 8), 0, 29);
  expect(ramp(i, -1, 4), -3, 15);
  expect(broadcast(j, 4), -8, 7);
}

TEST_F(BoundsTest, TakesFacts) {
  known.assume(free < 10 && Expr(2) < free);
  expect(free, 3, 9);
  expect(free * 2 + i, 6, 33);
  known.assume(floor_div(n, 16) < 5);
  expect(floor_div(n, 16), 0, 4);
}

// Blocks of several images: i is the number of a block, two of them an image's.
TEST_F(BoundsTest, TakesFactsThroughDivisions) {
  const Var blocks{"blocks"}, row{"row"}, images{"images"};
  known.bind(images, {1, std::nullopt});
  known.bind_range(blocks, images * 2);
  known.bind(row, {0, 24});
  const Expr image = floor_div(blocks, 2), first = floor_mod(blocks, 2) * 25;
  EXPECT_TRUE(can_prove(image < images, known));
  EXPECT_TRUE(can_prove(image * 50 + first + row < images * 50, known));
  EXPECT_FALSE(can_prove(image * 49 + first + row < images * 49, known));
  EXPECT_FALSE(can_prove(image * 50 + first + row + 1 < images * 50, known));
  EXPECT_FALSE(can_prove(floor_div(blocks, 3) * 50 + first + row < images * 33, known));
}

// i // c + rest ≥ 0 exactly where i + rest·c ≥ 0: the tile of an element that is there is one of the tiles.
TEST_F(BoundsTest, ProvesQuotientsToBeLarger) {
  const Var rows("rows"), tile("tile"), element("element");
  known.bind(rows, {1, std::nullopt});
  known.bind(tile, {0, std::nullopt});
  known.bind_range(element, 8);
  known.assume(tile * 8 + element < rows);
  EXPECT_TRUE(can_prove(tile < floor_div(rows + 7, 8), known));
  EXPECT_TRUE(can_prove(tile * 3 < floor_div(rows + 7, 8) * 3, known));
  EXPECT_FALSE(can_prove(tile + 1 < floor_div(rows + 7, 8), known));
  EXPECT_FALSE(can_prove(tile < floor_div(rows, 8), known));
}

// Tiles of 6 rows in blocks of 6 cover all rows, also where simplifying has taken whole tiles out of the quotient.
TEST_F(BoundsTest, BlocksOfTilesCoverTheirRows) {
  known.bind(n, {1, 1 << 20});
  const Expr rows = n * 197, tiles = floor_div(rows + 5, 6), blocks = floor_div(tiles + 5, 6);
  EXPECT_TRUE(can_prove(blocks * 36 >= rows, known));
  EXPECT_TRUE(can_prove(tiles * 12 >= rows * 2, known));
  EXPECT_TRUE(can_prove(floor_div(rows, 6) * 6 <= rows, known));
  EXPECT_FALSE(can_prove(floor_div(rows, 6) * 6 >= rows, known));
  EXPECT_FALSE(can_prove(floor_div(rows + 4, 6) * 6 >= rows, known));
  EXPECT_FALSE(can_prove(blocks * 36 <= rows, known));
}

TEST_F(BoundsTest, SurvivesTheEndsOfTheRange) {
  const int64_t largest = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  Assumptions wide;
  wide.bind(free, {least, largest});
  wide.bind(i, {largest - 1, largest});
  for (const Expr& e : {free + 1, free * 3, free - i, i + i, -free, floor_div(free, 3), floor_mod(free, largest),
                        min(free, i), max(free * 2, i), floor_div(i + i, largest), i * i * i}) {
    const Interval bounds = bounds_of(e, wide);  // must not trap under the sanitizers
    EXPECT_TRUE(!bounds.low || !bounds.high || *bounds.low <= *bounds.high) << to_text(e);
    EXPECT_TRUE(simplify(e, wide).is_defined());
    EXPECT_TRUE(simplify(e < Expr(free) + largest, wide).is_defined());
    EXPECT_TRUE(simplify(equal(e * largest, free * least), wide).is_defined());
  }
}

TEST_F(BoundsTest, AffineFormIsThatOfTheExpression) {
  std::mt19937_64 random(3);
  const std::vector<Var> vars{i, j, k};
  auto pick = [&](int limit) { return static_cast<int>(random() % static_cast<uint64_t>(limit)); };
  std::function<Expr(int)> make = [&](int depth) -> Expr {
    if (depth == 0) return pick(3) ? Expr(vars[static_cast<size_t>(pick(3))]) : Expr(pick(9) - 4);
    switch (pick(4)) {
      case 0:
        return make(depth - 1) + make(depth - 1);
      case 1:
        return make(depth - 1) - make(depth - 1);
      case 2:
        return make(depth - 1) * (pick(7) - 3);
      default:
        return -make(depth - 1);
    }
  };
  for (int round = 0; round < 500; ++round) {
    const Expr e = make(4);
    const auto affine = as_affine(e);
    ASSERT_TRUE(affine) << to_text(e);
    const std::map<std::string, int64_t> values{{"i", pick(100)}, {"j", pick(100) - 50}, {"k", pick(9)}};
    int64_t value = affine->constant;
    for (const auto& [var, factor] : affine->terms) {
      EXPECT_NE(factor, 0);
      value += factor * values.at(var.name());
    }
    EXPECT_EQ(value, evaluate(e, values).get_int(0)) << to_text(e);
    EXPECT_EQ(affine->coefficient(free), 0);
  }
  EXPECT_FALSE(as_affine(i * j));
  EXPECT_FALSE(as_affine(floor_div(i, 2)));
  EXPECT_FALSE(as_affine(float_imm(f32, 1)));
}

}  // namespace
}  // namespace tw
