// Blocks that copy or compute pieces of a result side by side, in one nest: the outer loops are shared out, the
// innermost of each block is its vector.
//
//   for h { for w { for c in 0..13 { Y[h, w, c] = A[h, w, c + 3] }      for h parallel { for w { Y[h, w, 0:13] = …
//                   for c in 0..3  { Y[h, w, c + 13] = B[h, w, c] } } }  ⇒                       Y[h, w, 13:16] = … } }
#include <algorithm>

#include "targets/cpu/default_schedule.h"

namespace tw::cpu {

bool schedule_copies(Schedule& schedule, const Target& target) {
  const std::vector<BlockRef> blocks = schedule.blocks();
  if (blocks.empty() || schedule.loops(blocks[0]).size() < 2) return false;
  std::vector<LoopRef> shared = schedule.loops(blocks[0]);
  shared.pop_back();
  for (const BlockRef& block : blocks) {
    const BlockAnalysis analysis = analyse(schedule.node(block));
    const std::vector<LoopRef> loops = schedule.loops(block);
    if (analysis.block_class != BlockClass::injective || loops.size() != shared.size() + 1) return false;
    if (!std::equal(shared.begin(), shared.end(), loops.begin())) return false;
    if (blocks.size() == 1 || loop_stride(schedule, block, analysis.write, loops.back()) != 1) return false;
  }
  for (const BlockRef& block : blocks) {
    const LoopRef inner = schedule.loops(block).back();
    const int64_t extent = extent_of(schedule, inner);
    if (extent > 1 && extent <= target.lanes(analyse(schedule.node(block)).write.buffer->dtype))
      schedule.vectorize(inner);
  }
  if (shared.size() > 1) shared.pop_back();  // the innermost walks along the memory
  share_out(schedule, shared.size() > 1 ? schedule.fuse(shared) : shared[0]);
  return true;
}

}  // namespace tw::cpu
