// Terms of a window's sum that are padding, which tiles of few neighbours need not add: those of a window that is
// spread over a small map see little else.
#pragma once

#include <map>
#include <vector>

#include "schedule/schedule.h"
#include "targets/analysis/block_analysis.h"

namespace tw::cpu {

using namespace analysis;

// Along one axis of the results.
struct WindowPadding {
  Var results, window;  // axes of the block
  int64_t around = 0;   // elements of padding, on both sides together
  int64_t steps = 1;    // of the window
  int64_t data = 1;     // elements, of an open axis as many as usual
};

// Along all axes of the block's window, if it reads a copy with padding that it can do without.
std::vector<WindowPadding> find_window_padding(const Schedule& schedule, const BlockRef& block,
                                               const BlockAnalysis& analysis);

// Neighbours in a tile, along those axes of the results that it has several of.
using Neighbours = std::map<const ExprNode*, int64_t>;

// The time that the sum takes where such tiles leave out what is nothing but padding for them, by that of all terms:
// 1 where it is not worth asking.
double share_of_work(const std::vector<WindowPadding>& padding, const Neighbours& tile);

// The window's axes along which terms are left out (skip_padding); none: everything is added.  The decision
// "skip_padding".
std::vector<Var> decide_skipped_window(Schedule& schedule, const std::vector<WindowPadding>& padding,
                                       const Neighbours& tile);

}  // namespace tw::cpu
