// The analytic default schedule of GPUs.  Every block left after inlining becomes a kernel:
//
//   attention     a tile of the queries of one head a thread block, which goes over the keys part by part
//   tensor cores  products and convolutions of 16-bit floats, tf32, bytes and floats of 8 bits: a tile of the output a
//                 thread block, shared out among its warps
//   contraction   a tile of the output a thread block, staged through shared memory; a few elements a thread, in
//                 registers
//   reduction     along memory, with a thread block a row and partial results that meet in shared memory; otherwise a
//                 thread an output, in registers
//   rows          softmax, normalisations, sums along memory: a few lanes a row, which hold it in registers and meet
//                 once or twice a sum; rows that are too long or irregular for this: a thread block a row, whose stages
//                 meet in shared memory
//   columns       reductions across memory with few outputs: slices of the terms, whose sums meet in shared memory
//   transpose     a square a thread block, turned in shared memory, so that reads and writes both run along memory
//   elementwise   a thread an element, or as many as one access to memory holds; neighbours along the output's memory
//
// What is done to a contraction's results element by element is done while they are in registers, and zeros around an
// input are put in where it is read: neither is a kernel of its own.
#pragma once

#include <array>

#include "schedule/schedule.h"
#include "targets/analysis/block_analysis.h"
#include "targets/target.h"

namespace tw::cuda {

inline constexpr int64_t warp = 32;          // threads that a GPU runs together
inline constexpr int64_t access_bytes = 16;  // that a thread moves at most at once

Schedule default_schedule(const Func& func, const Target& target);
// With the decisions of a search or a database; Error(schedule) when one of them does not fit the Func.
Schedule decided_schedule(const Func& func, const Target& target, const Decisions& decisions);

// The templates: whether each applies (an access pattern, for some of them constant extents) and, if so, applies it.
bool schedule_attention(Schedule& schedule, const Target& target);  // all of a Func
bool schedule_on_tensor_cores(Schedule& schedule, const BlockRef& block, const Target& target);
bool schedule_contraction(Schedule& schedule, const BlockRef& block, const Target& target);
bool schedule_row_reduction(Schedule& schedule, const BlockRef& block, const Target& target);
// All blocks at once, when they are stages over the same rows.
bool schedule_rows_in_registers(Schedule& schedule, const Target& target);
bool schedule_rows(Schedule& schedule);
bool schedule_columns(Schedule& schedule, const BlockRef& block, const Target& target);
bool schedule_transpose(Schedule& schedule, const BlockRef& block, const Target& target);
void schedule_reduction(Schedule& schedule, const BlockRef& block, const Target& target);
void schedule_elementwise(Schedule& schedule, const BlockRef& block, const Target& target);

// Loops of the block over its spatial or its reduced iterations, outermost first.
std::vector<LoopRef> loops_of_kind(const Schedule& schedule, const BlockRef& block, IterKind kind);
// The results of `block` within `loop` stay in the thread; returns the block there that writes them to memory: the
// epilogue (find_epilogue) or, where there is none, a copy.
BlockRef keep_in_thread(Schedule& schedule, const BlockRef& block, const LoopRef& loop);
// The same with the results in another scope.
BlockRef keep_in_scope(Schedule& schedule, const BlockRef& block, const LoopRef& loop, Scope scope);

// Of a contraction of two buffers, for tiles of the output: of the spatial iterations of one operand alone, that with
// most values for each; j runs along the output's memory where one of them does.
struct Product {
  Var i, j;
  size_t at_i, at_j;  // their dimensions of the output
};
std::optional<Product> find_product(const Schedule& schedule, const BlockRef& block,
                                    const analysis::BlockAnalysis& analysis);
// The dimension that has the variable itself as index.
std::optional<size_t> dimension_of(const analysis::Access& access, const Var& var);
// What becomes the grid: the loops of the other spatial iterations, and those over tiles.
std::vector<LoopRef> loops_of_blocks(const Schedule& schedule, const BlockRef& block,
                                     const analysis::BlockAnalysis& analysis, const Product& product,
                                     const std::vector<LoopRef>& tiles);
LoopRef loop_of(const Schedule& schedule, const BlockRef& block, const Var& iteration);
void put_dimension_last(Schedule& schedule, const Buffer& buffer, size_t dimension);
// The block's results in a register of each thread, then in memory that threads share: the copy into that, within
// `outer`.
BlockRef share_results(Schedule& schedule, const BlockRef& block, const LoopRef& outer);
// The loops over spatial iterations, then those over reduced ones.
struct OrderedLoops {
  std::vector<LoopRef> spatial, reduce;
};
OrderedLoops put_spatial_first(Schedule& schedule, const BlockRef& block);

struct FlatBinding {
  LoopRef blocks, threads;
};
// The loops, adjacent and outermost first, as blocks of at most `threads` threads: whole inner loops and a piece of the
// next one are the threads of a block, so that every index stays a sum of products; of open loops a piece each.
FlatBinding bind_flat(Schedule& schedule, const std::vector<LoopRef>& loops, int64_t threads);
// The loops of a copy into shared memory, dealt out to y × x threads: the last loop of more than one step, which runs
// along memory, to x.
void deal_out(Schedule& schedule, const BlockRef& block, const LoopRef& outer, int64_t y, int64_t x);
// The same in pieces of one access a thread, dealt out to z × y × x threads.
void deal_out_pieces(Schedule& schedule, const BlockRef& copy, const LoopRef& outer,
                     const std::array<int64_t, 3>& threads, bool has_near_rows = false);

}  // namespace tw::cuda
