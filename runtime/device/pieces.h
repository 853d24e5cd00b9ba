// How workers take the tasks of a step.
//
// Worker w of n owns the tasks from ⌈w·tasks/n⌉ to ⌈(w+1)·tasks/n⌉, so the same rows stay with the same worker from
// layer to layer.  It takes its tasks in a few pieces; who is done takes pieces of those who are not, so that a core
// which another program uses, too, holds up a step by one piece only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "runtime/rounding.h"

namespace tw {

struct Piece {
  int64_t begin, end;
};

inline Piece share_of(int64_t tasks, int worker, int workers) {
  const auto first = [&](int64_t w) { return divide_up(w * tasks, workers); };
  return {first(worker), first(worker + 1)};
}

constexpr int64_t most_shared_tasks = std::numeric_limits<uint32_t>::max();

// The next piece of the share that nobody has taken in this execution of the step; empty: there is none.  The last ones
// are small, so that all workers are done at about the same time.
//
// `claimed`: how far the share is taken, below the number of the execution in which it was.  Executions have
// consecutive numbers, and each is at an end before the next begins: what was left by an earlier one means that nothing
// is taken, and a later one that the asker comes late.  Somebody asks for each share in each execution, empty ones too,
// so that numbers may come round.
inline Piece claim(std::atomic<uint64_t>& claimed, uint32_t execution, Piece share) {
  constexpr int64_t pieces_a_share = 8;
  const int64_t most = std::max<int64_t>(1, divide_up(share.end - share.begin, pieces_a_share));
  uint64_t seen = claimed.load(std::memory_order_relaxed);
  for (;;) {
    const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(seen >> 32) - execution);
    const int64_t next = ahead < 0 ? share.begin : static_cast<uint32_t>(seen);
    if (ahead > 0 || (ahead == 0 && next >= share.end)) return {share.end, share.end};
    const int64_t end = next + std::clamp<int64_t>((share.end - next) / 2, next < share.end ? 1 : 0, most);
    const uint64_t taken = uint64_t{execution} << 32 | static_cast<uint64_t>(end);
    if (claimed.compare_exchange_weak(seen, taken, std::memory_order_relaxed)) return {next, end};
  }
}

}  // namespace tw
