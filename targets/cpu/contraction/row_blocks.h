// Rows of a contraction in blocks: which of its two operands comes again, from where.
//
//   for panel { for row … }                       ⇒   for block of rows { for panel { for row … } }
//
// Panels outermost read each panel once, by one worker, and all of A for each panel, by all of them.  With blocks of
// rows outermost a worker reads its own rows of A, once where a block stays in its second cache, and all panels for
// each block.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "targets/cpu/contraction/match.h"
#include "targets/target.h"

namespace tw::cpu {

struct RowSweep {
  std::vector<int64_t> extents;  // of the loops over rows, outermost first; the last one is over register tiles
  int64_t a_bytes = 0, b_bytes = 0;
  int64_t panels = 1;
  bool is_a_streamed = false;  // its rows are contiguous along k: reading them again is foreseen, and costs little
};

// The decision "block_tiles", where the number of rows is known only when the kernel runs, and nothing but channels is
// summed: tiles of a block that stays in the second cache, beside all panels or while panels pass.  1: there is no room
// for several, or nothing comes again.
int64_t decide_tiles_of_block(Schedule& schedule, const Contraction& c, const RowSweep& sweep, int64_t tile_rows,
                              const Target& target);

// The decision "block_rows": so many iterations of an open axis around the innermost rows are a block, which panels are
// read for once.  Open loops are outermost: with 1, panels are read for each iteration.  `rows`: as many as are usual.
int64_t decide_rows_of_block(Schedule& schedule, const RowSweep& sweep, int64_t rows, const Target& target);

// Blocks are cut from one loop, those before which are outside of the blocks: {number of the loop, blocks in it}.  One
// candidate is {0, 1}: none.
std::vector<Candidate> row_block_candidates(const RowSweep& sweep, const Target& target);
// The candidate with the least cost, but none where that saves little.
Choice choose_row_blocks(const std::vector<Candidate>& candidates);

// The decision "row_blocks" of one product without groups: takes the loops that are outside of the panels, or parts of
// one, away from `rows`, whose extents it adds to the sweep.  Loops whose extent is known only when the kernel runs are
// outside: what they leave of an open row is a block already.  Where the tiles' own is, there are no blocks.
std::vector<LoopRef> decide_row_blocks(Schedule& schedule, const Contraction& c, RowSweep sweep,
                                       std::vector<LoopRef>& rows, const Target& target);

}  // namespace tw::cpu
