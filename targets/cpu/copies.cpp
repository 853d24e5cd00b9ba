// Blocks that compute parts of a result side by side, in one nest (lower_selection): what the nest shares is shared
// out, channels within a block of the layout are vectors.
//
//   for h { for c in 0..32 { for w { part_0: Y[c // 16, h, w, c % 16] = … } }
//           for c in 0..13 { for w { part_1: Y[2, h, w, c] = … } } }
//   ⇒
//   for h parallel { for b in 0..2 { for w { Y[b, h, w, 0:16] = … } } for w { Y[2, h, w, 0:13] = … } }
#include <algorithm>

#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

// The loops around all blocks.
std::vector<LoopRef> shared_loops(const Schedule& schedule, const std::vector<BlockRef>& blocks) {
  std::vector<LoopRef> shared = schedule.loops(blocks[0]);
  for (const BlockRef& block : blocks) {
    const std::vector<LoopRef> loops = schedule.loops(block);
    const auto length = std::min(shared.size(), loops.size());
    shared.erase(
        std::mismatch(shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(length), loops.begin()).first,
        shared.end());
  }
  return shared;
}

void vectorize_part(Schedule& schedule, const BlockRef& block, const std::vector<LoopRef>& shared) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const int lanes = static_cast<int>(as_int(analysis.write.buffer->shape.back()).value_or(0));
  std::vector<LoopRef> order = schedule.loops(block);
  order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shared.size()));
  for (const Var& v : analysis.spatial()) {
    const auto loops = loops_of(schedule, block, v);
    if (loops.size() != 1 || analysis.extent(v) < 2 || lanes < 2) continue;
    if (unit_stride(analysis.write, v, analysis.iters, lanes) != 1) continue;
    const auto at = std::find(order.begin(), order.end(), loops[0]);
    if (at == order.end()) continue;
    LoopRef vector = loops[0];
    if (analysis.extent(v) > lanes) {
      const auto halves = schedule.split(vector, {std::nullopt, lanes});
      *at = halves[0], vector = halves[1];
    } else {
      order.erase(at);
    }
    order.push_back(vector);
    if (order.size() > 1) schedule.reorder(order);
    schedule.vectorize(vector);
    return;
  }
}

}  // namespace

bool schedule_copies(Schedule& schedule, const Target&) {
  const std::vector<BlockRef> blocks = schedule.blocks();
  if (blocks.size() < 2) return false;
  const std::vector<LoopRef> shared = shared_loops(schedule, blocks);
  if (shared.empty()) return false;
  for (const BlockRef& block : blocks) {
    if (analyse(schedule.node(block)).block_class != BlockClass::injective) return false;
  }
  for (const BlockRef& block : blocks) vectorize_part(schedule, block, shared);
  share_out(schedule, as_one(schedule, shared));
  return true;
}

}  // namespace tw::cpu
