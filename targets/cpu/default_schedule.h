// The analytic default schedule of CPUs: from facts of the target to a schedule that ends in registers.
//
// Blocks are inlined where that is cheap; what remains falls into three shapes, each with its template:
//   contraction   a register tile over packed weights, with the epilogue applied while the tile is in registers
//                 (contraction/plan.h)
//   reduction     vectorised over a spatial axis or, by partial sums, over the reduced one
//   elementwise   loops in the order of the output's memory, merged, shared out and vectorised
//
// Tasks are handed out in order, equal shares to each worker.  In images the outermost loops of tasks are over rows
// where weights leave the choice (row_blocks.h), and over rows for windows and for padding: then most of what a worker
// reads it has written itself, in the layer before, and lines do not move from one core's caches to another's.
#pragma once

#include "schedule/schedule.h"
#include "targets/analysis/block_analysis.h"
#include "targets/analysis/block_relations.h"
#include "targets/analysis/loop_strides.h"
#include "targets/target.h"
#include "tensor_ir/passes/prefetch.h"

namespace tw::cpu {

using namespace analysis;
using analysis::Access;  // not the one of dependences

Schedule default_schedule(const Func& func, const Target& target);
// The same, with what was decided in place of what analysis prefers (schedule/decisions.h).
Schedule decided_schedule(const Func& func, const Target& target, const Decisions& decisions);

// The templates.  Each schedules the block, and its epilogue where it has one, or says that it does not apply.
bool schedule_contraction(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                          const Target& target);
bool schedule_reduction(Schedule& schedule, const BlockRef& block, const Target& target);
// Workers take parts of the axis `first` where one is given, else of the output's memory.
void schedule_elementwise(Schedule& schedule, const BlockRef& block, const Target& target, const Var& first = {});

// All blocks at once, when they are stages over the same rows (softmax, normalisations).
bool schedule_rows(Schedule& schedule, const Target& target);
// All blocks at once, when they compute parts of one result in one nest (selections of channels).
bool schedule_copies(Schedule& schedule, const Target& target);

// The stages of attention, whose scores never leave the core's caches.
bool schedule_attention(Schedule& schedule, const Target& target);
bool schedule_attention_parts(Schedule& schedule, const Target& target);  // of keys that are cut into parts

// All stages of a bilinear algorithm: Winograd's filtering, Strassen's product.
bool schedule_bilinear(Schedule& schedule, const Target& target);

// A convolution that makes the channels of a depthwise one, strip by strip where they are used.
bool schedule_inverted_residual(Schedule& schedule, const Target& target);

// An intermediate that is made from a buffer blocked along an axis (a padded copy of NCHW16c) is blocked like it.
void adopt_blocked_layouts(Schedule& schedule, const Target& target);

// Shared by the templates.

// Bytes of inputs and results together, by what stays in the caches.
double share_of_caches(const Func& func, const Target& target);
// They are more than that.
bool leaves_caches(const Func& func, const Target& target);
// Where they are: a buffer to which it matters.
bool is_large(const Buffer& buffer, const Target& target);

// Elements that a vector computes with at a time: 16-bit floats are f32 there.
inline int compute_lanes(DType dtype, const Target& target) {
  return target.lanes(dtype.is_float() && dtype.bits == 16 ? f32 : dtype);
}

// How many of the sum's rows along `axis` a task takes when it makes its own part of the copy, for `blocks` tasks over
// everything else: a divisor of their number, where that is known; 0: the copy stays a pass of its own.  The decision
// "strip".
int64_t decide_strip(Schedule& schedule, const BlockRef& padding, const BlockAnalysis& sum, const Var& axis,
                     int64_t blocks, const Target& target);
// Positions of a row that are computed side by side, in registers: a divisor of their number, where that is known.
// `window`: steps along the row that each sums.  The decision "rows".
int decide_rows(Schedule& schedule, std::optional<int64_t> extent, int64_t window, const Target& target);
// How many of a window's innermost loops are unrolled, so that neighbouring positions share what they load: the
// window's row, where there are neighbours.  The decision "window_unroll".
size_t decide_window_unroll(Schedule& schedule, const std::vector<LoopRef>& reduce, int rows);
// Rows of a strip of an open number: the strip's code is the same where some of them are missing.
void skip_beyond(Schedule& schedule, const std::vector<LoopRef>& loops);
void compute_padding_at(Schedule& schedule, const BlockRef& padding, const LoopRef& loop, int64_t vector_lanes);

// Loops one after the other: parts are loops, loops that may be missing, and lists of loops.
std::vector<LoopRef> in_order(const auto&... parts) {
  std::vector<LoopRef> loops;
  const auto append = [&]<class Part>(const Part& part) {
    if constexpr (std::is_same_v<Part, std::vector<LoopRef>>)
      loops.insert(loops.end(), part.begin(), part.end());
    else if constexpr (std::is_same_v<Part, LoopRef>)
      loops.push_back(part);
    else if (part)
      loops.push_back(*part);
  };
  (append(parts), ...);
  return loops;
}
// Adjacent loops as one, outermost first.
LoopRef as_one(Schedule& schedule, const std::vector<LoopRef>& loops);
// The innermost loop of the iteration: those that the block shares with its consumers are further out.
LoopRef own_loop(const Schedule& schedule, const BlockRef& block, const Var& iteration);
// The innermost one of the iteration within `tile` that has more than one iteration.
std::optional<LoopRef> innermost_within(const Schedule& schedule, const BlockRef& block, const LoopRef& tile,
                                        const Var& iteration);
// Of what the block writes.
void set_scope_of(Schedule& schedule, const BlockRef& block, Scope scope);

// A layout of dimensions d0, d1 …, of which nothing is made yet.
IndexMap layout_of(size_t rank);
// The layout of a tile whose neighbours along the axis are to lie side by side: the other axes, then this one.
IndexMap axis_last(size_t rank, size_t axis);
// Keeps the results of `block` within `tile` in registers: computes the epilogue there or, when there is none, the
// copy-out. Returns the blocks that write the memory.
std::vector<BlockRef> keep_in_registers(Schedule& schedule, const BlockRef& block, const LoopRef& tile, size_t axis);
// Puts what blocks of an epilogue make for others of it alone there.
void keep_results_between(Schedule& schedule, const std::vector<BlockRef>& epilogue, Scope scope);
struct TileLoops {
  LoopRef parallel, tile;  // the same, where nothing is left between them
};
// Whether so many equal tasks leave no worker without work for long.
bool is_even_share(int64_t tasks, int threads);
// The loops outside of a register tile, outermost first, as one loop to share out.  The loop over the tiles of a row
// may stay its own where there are tasks enough without it, which is the decision "row_a_task": so analysis wants it
// where the row's last tile is partial, so that this can be peeled, and the others are an even share.
TileLoops fuse_outside(Schedule& schedule, std::vector<LoopRef> outer, bool has_partial_tile, const Target& target);
// Loops of symbolic extents go outside of the others, the last loop only where it is free to move: divided by
// constants, the number of a fused iteration tells all the others' apart.
void put_open_first(Schedule& schedule, std::vector<LoopRef>& loops, bool is_last_free = false);
// Loops whose order is free, as one to share out.  Of several symbolic loops only the first is part of it; the others
// run inside, the last of them as `tile`.
TileLoops fuse_shared(Schedule& schedule, std::vector<LoopRef> loops);
// Parallel where the iterations are proven independent.  Where the proof is not found the loop stays serial, which
// costs time but no model; the loop is marked "independence_unproven".
void share_out(Schedule& schedule, const LoopRef& loop);
// Whether the operand is too large for a core's caches, does not stay in that of all cores, and is read once, for
// `uses` rows that are few: then the stream from memory is what takes the time.
bool is_memory_bound(const Buffer& operand, int64_t uses, const Target& target);
// …and the loop asks for it ahead.
void prefetch_from_memory(Schedule& schedule, const Access& operand, int64_t uses, const LoopRef& loop,
                          const Target& target);
// Where what is asked for so many bytes ahead waits: in the first cache, up to half of a small one, or the second.
Cache cache_for(int64_t bytes_ahead);
// The loop asks for what its body reads of the buffer so many bytes ahead, to come to this cache or the one above.
void prefetch_ahead(Schedule& schedule, const LoopRef& loop, const Buffer& buffer, int64_t bytes,
                    std::optional<Cache> cache = {});
// The loops of the block below `tile`: those of its spatial axis number `axis` become vectors, the others are unrolled.
void vectorize_below(Schedule& schedule, const BlockRef& block, const LoopRef& tile, size_t axis, int lanes);
// The same without unrolling: the block reads memory, not registers.
void vectorize_in_memory(Schedule& schedule, const BlockRef& block, const LoopRef& tile, size_t axis, int lanes);
// The reduction block's innermost loop, below `tile`, as partial results in lanes that a second step joins.
void reduce_in_lanes(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes);

}  // namespace tw::cpu
