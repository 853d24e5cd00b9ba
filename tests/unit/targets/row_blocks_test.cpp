// Rows of a contraction in blocks: which operand comes again, from where.
#include "targets/cpu/contraction/row_blocks.h"

#include <gtest/gtest.h>

#include "tests/unit/targets/cores.h"

namespace tw::test {
namespace {

TEST(RowBlocks, AreForManyRowsOfFewWeights) {
  Target target = core(512, 32);
  target.l2.bytes = 1 << 20;
  const auto chosen = [&](const cpu::RowSweep& sweep) {
    return cpu::choose_row_blocks(cpu::row_block_candidates(sweep, target));
  };
  const Choice none = {0, 1};
  // 56 × 56 pixels of 256 channels and 64 outputs: each worker reads its own rows, all of them once.
  const cpu::RowSweep wide{{56, 4}, 56 * 56 * 256 * 4, 256 * 64 * 4, 2};
  EXPECT_NE(chosen(wide), none);
  for (const int threads : {1, 2, 8}) {
    target.threads = threads;
    const Choice blocks = chosen(wide);
    EXPECT_EQ(wide.extents.at(static_cast<size_t>(blocks[0])) % blocks[1], 0) << "blocks are of one size";
  }
  // 7 × 7 pixels: weights are most of what is read, and each panel is read by one worker.
  EXPECT_EQ(chosen({{7, 1}, 7 * 7 * 2048 * 4, 2048 * 512 * 4, 16}), none);
  // 1024 × 1024 rows that are contiguous along k: hardware foresees them, so that weights would be what is waited for.
  EXPECT_EQ(chosen({{171}, 1024 * 1024 * 4, 1024 * 1024 * 4, 16, true}), none);
  // A panel that fills the second cache leaves no room for a block of rows.
  EXPECT_EQ(chosen({{22}, 128 * 3072 * 4, 3072 * 768 * 4, 12}), none);
}

}  // namespace
}  // namespace tw::test
