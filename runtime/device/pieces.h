// How workers take the tasks of a step.
//
// Worker w of n owns the tasks from ⌈w·tasks/n⌉ to ⌈(w+1)·tasks/n⌉, so the same rows stay with the same worker from
// layer to layer.  It takes its tasks in a few pieces; who is done takes pieces of those who are not, so that a core
// which another program uses, too, holds up a step by one piece only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tw {

struct Piece {
  int64_t begin, end;
};

inline Piece share_of(int64_t tasks, int worker, int workers) {
  const auto first = [&](int64_t w) { return (w * tasks + workers - 1) / workers; };
  return {first(worker), first(worker + 1)};
}

// The next piece of the share that nobody has taken in this execution of the step; empty: there is none.  The last ones
// are small, so that all workers are done at about the same time.  `claimed`: how far the share is taken, below the low
// bits of the number of the execution in which it was.
inline Piece claim(std::atomic<int64_t>& claimed, uint32_t execution, Piece share) {
  constexpr int64_t pieces_a_share = 8;
  constexpr int task_bits = 40;                              // more than a step's tasks take
  const int64_t number = (execution & ((1 << 22) - 1)) + 1;  // never 0, which new claims are of
  const int64_t most = std::max<int64_t>(1, (share.end - share.begin + pieces_a_share - 1) / pieces_a_share);
  int64_t seen = claimed.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t next = seen >> task_bits == number ? seen & ((int64_t{1} << task_bits) - 1) : share.begin;
    if (next >= share.end) return {share.end, share.end};
    const int64_t end = next + std::clamp<int64_t>((share.end - next) / 2, 1, most);
    if (claimed.compare_exchange_weak(seen, number << task_bits | end, std::memory_order_relaxed)) return {next, end};
  }
}

}  // namespace tw
