// What register tiles are predicted to cost, and which one is chosen.
#include "targets/cpu/contraction/tile_model.h"

#include <gtest/gtest.h>

#include "tests/unit/targets/cores.h"

namespace tw::test {
namespace {

TEST(TileModel, FitsTheRegisters) {
  for (const Target& target : cores()) {
    for (const int64_t m : {1, 2, 7, 14, 49, 56, 128, 1000}) {
      for (const int64_t vectors : {1, 2, 3, 5, 8, 64}) {
        const cpu::RegisterTile tile = cpu::choose_tile(m, vectors, 256, target);
        const int waiting = tile.rows > 1 ? tile.vectors : 0;
        EXPECT_LT(tile.rows * tile.vectors + waiting + 1, target.vector_registers);
        EXPECT_LE(tile.rows, m);
        EXPECT_LE(tile.vectors, vectors);
      }
    }
  }
}

// Multiply-adds of one row take their vectors from memory.
TEST(TileModel, OneRowHasWholeLines) {
  EXPECT_EQ(cpu::choose_tile(1, 128, 256, core(256, 16)).vectors, 8);
}

TEST(TileModel, PrefersRowsToPanelsThatLeaveTheFirstCache) {
  const Target target = core(512, 32);
  EXPECT_EQ(cpu::predict_traffic({8, 3}, 128, 48, 64, {}, target), 0.0) << "the panel stays in the first cache";
  EXPECT_GT(cpu::predict_traffic({8, 3}, 128, 48, 768, {}, target), 0.0);
  EXPECT_EQ(cpu::predict_traffic({8, 3}, 8, 48, 768, {}, target), 0.0) << "one tile reads its panel once";
  EXPECT_GT(cpu::predict_traffic({8, 3}, 8, 48, 768, {.outer_rows = 8}, target), 0.0);
  EXPECT_GT(cpu::predict_traffic({8, 3}, 128, 48, 768, {.scattered_bytes = 128 * 768 * 4}, target),
            cpu::predict_traffic({8, 3}, 128, 48, 768, {}, target));
  // Six vectors of a panel for four rows would wait for the second cache.
  EXPECT_GE(cpu::choose_tile(128, 48, 768, target, {.scattered_bytes = 128 * 768 * 4}).rows, 6);
}

TEST(TileModel, KeepsRowsOutOfEachOthersWay) {
  Target target = core(512, 32);
  target.l1.bytes = 32 << 10, target.l1.ways = 8;
  const auto cycles = [&](int rows, int64_t stride) { return cpu::conflict_cycles({rows, 2}, stride, target); };
  EXPECT_EQ(cycles(14, 768 * 4), 0.0) << "four sets for 14 rows";
  EXPECT_GT(cycles(14, 1024 * 4), cycles(12, 1024 * 4)) << "one set for all of them";
  EXPECT_EQ(cycles(7, 1024 * 4), 0.0);
  EXPECT_EQ(cycles(14, 1024 * 4 + 64), 0.0) << "a line further each time";
  EXPECT_EQ(cycles(14, 4), 0.0) << "one line holds all rows";
  EXPECT_EQ(cycles(14, 0), 0.0);
  EXPECT_LE(cpu::choose_tile(128, 48, 3072, target, {.row_stride = 3072 * 4}).rows, 8);
  target.l1.bytes = 64 << 10, target.l1.ways = 16;
  EXPECT_EQ(cycles(14, 1024 * 4), 0.0) << "16 ways hold them";
  target.l1.bytes = 1 << 10, target.l1.ways = 64;
  EXPECT_EQ(cycles(14, 1024 * 4), 0.0) << "what a device says of itself may be odd";
}

TEST(TileModel, PredictsMoreForMoreWork) {
  const Target target = core(512, 32);
  const cpu::RegisterTile tile = cpu::choose_tile(128, 8, 256, target);
  const double cycles = cpu::predict_cycles(tile, 128, 8, 256, target);
  EXPECT_GT(cpu::predict_cycles(tile, 256, 8, 256, target), cycles);
  EXPECT_GT(cpu::predict_cycles(tile, 128, 16, 256, target), cycles);
  EXPECT_GT(cpu::predict_cycles(tile, 128, 8, 512, target), cycles);
  // No faster than the ports: 128 × 8 · 16 × 256 multiply-adds at two vectors a cycle.
  EXPECT_GE(cycles, 128 * 8 * 256 / 2.0);
}

}  // namespace
}  // namespace tw::test
