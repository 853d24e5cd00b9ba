// Reductions across memory whose outputs run along it, and are too few for threads of their own:
//
//   for outputs block.x {
//     for slice 0..16 thread.y { for x 0..32 thread.x { part[slice, x] = Σ A[k·16 + slice, x] } }     in registers
//     for x 0..32 thread.x { out[x] = Σ part[…, x] }                                                shared memory
//   }
#include <algorithm>

#include "targets/analysis/block_relations.h"
#include "targets/cuda/default_schedule.h"

namespace tw::cuda {

using namespace analysis;

bool schedule_columns(Schedule& schedule, const BlockRef& block, const Target& target) {
  constexpr int64_t usual_slices = 16, fewest_terms = 4;  // of a slice
  constexpr int64_t threads_of_multiprocessor = 2048;
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const std::vector<Var> spatial = analysis.spatial();
  if (analysis.reads.empty() || spatial.empty() || analysis.is_open(spatial.back())) return false;
  int64_t length = 1;
  for (const Var& var : analysis.reduce()) {
    if (analysis.is_open(var)) return false;
    length *= analysis.extent(var);
  }
  const int64_t outputs = count_iterations(analysis, spatial);
  const auto runs_along = [&](const Access& access) {
    return unit_stride(access, spatial.back(), analysis.iters, 1) == 1;
  };
  if (length < usual_slices * fewest_terms || analysis.extent(spatial.back()) < warp ||
      outputs >= target.threads * threads_of_multiprocessor || !runs_along(analysis.write) ||
      std::none_of(analysis.reads.begin(), analysis.reads.end(), runs_along)) {
    return false;
  }
  std::vector<Candidate> candidates;
  for (const int64_t slices : {4, 8, 16, 32})
    if (length >= slices * fewest_terms) candidates.push_back({{slices}});
  const int64_t slices = schedule.decide("slices", candidates, {usual_slices})[0];
  const std::vector<LoopRef> reduced = put_spatial_first(schedule, block).reduce;
  const LoopRef terms = reduced.size() > 1 ? schedule.fuse(reduced) : reduced[0];
  const BlockRef part = schedule.rfactor(schedule.split(terms, {std::nullopt, slices})[1], 0);

  std::vector<LoopRef> outer = loops_of_kind(schedule, block, IterKind::spatial);
  const std::vector<LoopRef> along = schedule.split(outer.back(), {std::nullopt, warp});
  outer.back() = along[0];
  const LoopRef tile = outer.size() > 1 ? schedule.fuse(outer) : outer[0];
  schedule.bind(tile, ThreadAxis::block_x);
  schedule.bind(along[1], ThreadAxis::thread_x);
  keep_in_thread(schedule, block, along[1]);

  std::vector<LoopRef> own = loops_below(schedule, share_results(schedule, part, tile), tile);
  std::erase_if(own, [&](const LoopRef& loop) { return extent_of(schedule, loop) == 1; });
  if (own.size() != 2) return false;
  schedule.compute_at(part, own[1]);
  schedule.bind(own[0], ThreadAxis::thread_y);
  schedule.bind(own[1], ThreadAxis::thread_x);
  return true;
}

}  // namespace tw::cuda
