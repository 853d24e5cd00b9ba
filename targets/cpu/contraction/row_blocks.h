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
#include "targets/cpu/contraction/plan.h"
#include "targets/target.h"

namespace tw::cpu {

struct RowSweep {
  std::vector<int64_t> extents;  // of the loops over rows, outermost first; the last one is over register tiles
  int64_t a_bytes = 0, b_bytes = 0;
  int64_t panels = 1;
  bool is_a_streamed = false;  // its rows are contiguous along k: reading them again is foreseen, and costs little
};

// Blocks are cut from one loop, those before which are outside of the blocks: {number of the loop, blocks in it}.  One
// candidate is {0, 1}: none.
std::vector<Candidate> row_block_candidates(const RowSweep& sweep, const Target& target);
// The candidate with the least cost, but none where that saves little.
Choice choose_row_blocks(const std::vector<Candidate>& candidates);

// Takes the loops over rows that are outside of the panels, or parts of them, away from `rows`, which are outermost
// first, the last one over register tiles: of one product without groups.  It makes two decisions.
//
// "open_blocks", where there are several panels: so many iterations of an open loop are a block that each panel is read
// for once.  Of products it is the loop over tiles, which are inside of the panels otherwise; of windows the last one
// around it, which is outside of them.
//
// "row_blocks", where the last axis is known: blocks of these loops.  Open ones are outside.
std::vector<LoopRef> decide_row_blocks(Schedule& schedule, const Plan& c, std::vector<LoopRef>& rows,
                                       const Target& target);

}  // namespace tw::cpu
