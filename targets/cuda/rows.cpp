// Reductions along memory: a thread block a row.
//
//   for row block.x {                                       softmax, normalisations: all stages of the row
//     for lane 0..128 thread.x { many[lane] = Σ x[row, …] }     in registers, then shared memory
//     for lane 0..16 thread.x { few[lane] = Σ many[…] }
//     for one 0..1 thread.x { sum = Σ few[…] }
//     for j thread.x { out[row, j] = f(x[row, j], sum) }
//   }
#include <algorithm>

#include "targets/analysis/block_relations.h"
#include "targets/cuda/default_schedule.h"

namespace tw::cuda {

using namespace analysis;

namespace {

constexpr int64_t few_lanes = 16, largest_row_bytes = 32 << 10;  // of all stages, in shared memory

struct PartialSums {
  BlockRef block;
  int64_t threads;  // one adds up one of them
};

int64_t lanes_of(int64_t length) {
  return length >= 1024 ? 128 : warp;
}

// The block's sum over `column` in steps, the last first: of a few lanes, of many.  The block adds up the last.
std::vector<PartialSums> sum_in_lanes(Schedule& schedule, const BlockRef& block, const LoopRef& column,
                                      int64_t length) {
  const int64_t many = lanes_of(length);
  std::vector<PartialSums> steps = {{schedule.rfactor(schedule.split(column, {std::nullopt, many})[1], 0), many}};
  if (many == warp) return steps;
  const LoopRef lanes = schedule.loops(block).back();
  const BlockRef few = schedule.rfactor(schedule.split(lanes, {std::nullopt, few_lanes})[1], 0);
  steps.insert(steps.begin(), {few, few_lanes});
  return steps;
}

// Each sum of the row in a register of its thread, then in shared memory.
void share_sums(Schedule& schedule, const PartialSums& sums, const LoopRef& row) {
  const BlockRef copy = share_results(schedule, sums.block, row);
  const std::vector<LoopRef> loops = schedule.loops(copy);
  const auto lane = std::find_if(std::find(loops.begin(), loops.end(), row) + 1, loops.end(),
                                 [&](const LoopRef& loop) { return extent_of(schedule, loop) == sums.threads; });
  check(lane != loops.end(), "share_sums: a loop over the lanes");
  schedule.compute_at(sums.block, *lane);
  schedule.bind(*lane, ThreadAxis::thread_x);
}

// The same of a block that has sums of its own for each column, dealt out to threads.
void share_columns(Schedule& schedule, const BlockRef& block, const LoopRef& row, int64_t threads) {
  const BlockRef copy = share_results(schedule, block, row);
  deal_out(schedule, copy, row, 1, threads);
  schedule.compute_at(block, schedule.loops(copy).back());
}

}  // namespace

bool schedule_row_reduction(Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const std::vector<Var> reduce = analysis.reduce();
  if (reduce.empty() || analysis.reads.empty()) return false;
  int64_t length = 1;
  for (const Var& var : reduce) length *= analysis.extent(var);
  if (length < 2 * warp) return false;
  // What is read most of decides.
  const Access& read =
      *std::max_element(analysis.reads.begin(), analysis.reads.end(),
                        [](const Access& a, const Access& b) { return least_bytes(a.buffer) < least_bytes(b.buffer); });
  const auto runs_along = unit_stride(read, reduce.back(), analysis.iters, 1);
  const std::vector<Var> spatial = analysis.spatial();
  const bool outputs_run_along = !spatial.empty() && analysis.extent(spatial.back()) >= warp &&
                                 unit_stride(read, spatial.back(), analysis.iters, 1) == 1;
  if (runs_along != 1 || outputs_run_along) return false;

  auto [rows, columns] = put_spatial_first(schedule, block);
  std::vector<LoopRef> row;
  if (!rows.empty()) {  // the inner one, of one iteration, is for the thread that adds up what others leave
    row = schedule.split(rows.back(), {std::nullopt, 1});
    rows.back() = row[0];
    if (rows.size() > 1) row[0] = schedule.fuse(rows);
  }
  const LoopRef column = columns.size() > 1 ? schedule.fuse(columns) : columns[0];
  if (rows.empty()) {  // one row: its lanes are outputs of one kernel, the sum of theirs is another
    schedule_reduction(schedule, schedule.rfactor(schedule.split(column, {std::nullopt, lanes_of(length)})[1], 0),
                       target);
    return true;
  }
  const std::vector<PartialSums> partial = sum_in_lanes(schedule, block, column, length);
  row = schedule.loops(block);
  schedule.bind(row[0], ThreadAxis::block_x);
  schedule.bind(row[1], ThreadAxis::thread_x);
  keep_in_thread(schedule, block, row[1]);
  for (const PartialSums& sums : partial) share_sums(schedule, sums, row[0]);
  return true;
}

bool schedule_rows(Schedule& schedule) {
  const auto stages = find_row_stages(schedule);
  if (!stages) return false;
  const auto& [blocks, shared] = *stages;
  int64_t row_bytes = 0;
  for (const BlockAnalysis& block : blocks) {
    const auto shape = const_shape(block.write.buffer);
    if (!shape) return false;
    int64_t elements = 1;
    for (size_t d = shared; d < shape->size(); ++d) elements *= (*shape)[d];
    row_bytes += elements * block.write.buffer->dtype.bytes();
    if (&block == &blocks.back() && elements < warp) return false;
  }
  if (row_bytes > largest_row_bytes) return false;
  const BlockRef last{blocks.back().name};
  std::vector<LoopRef> loops = schedule.loops(last);
  if (loops.size() != blocks.back().spatial().size() || loops.size() == shared) return false;

  const auto has_columns = [&](const BlockAnalysis& block) {
    const std::vector<Var> spatial = block.spatial();
    return count_iterations(block, {spatial.begin() + static_cast<long>(shared), spatial.end()}) > 1;
  };

  // While all are on their own: partial sums.
  std::vector<std::vector<PartialSums>> partial(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].block_class != BlockClass::reduction) continue;
    const BlockRef block{blocks[b].name};
    int64_t length = 1;
    for (const Var& var : blocks[b].reduce()) length *= blocks[b].extent(var);
    if (length < warp || has_columns(blocks[b])) continue;
    const std::vector<LoopRef> columns = loops_of_kind(schedule, block, IterKind::reduce);
    partial[b] = sum_in_lanes(schedule, block, columns.size() > 1 ? schedule.fuse(columns) : columns[0], length);
  }
  loops.resize(shared);
  const LoopRef row = loops.size() > 1 ? schedule.fuse(loops) : loops[0];
  schedule.bind(row, ThreadAxis::block_x);
  const int64_t columns = extent_of(schedule, schedule.loops(last).back());
  const int64_t threads = columns >= 1024 ? 256 : columns >= 256 ? 128 : warp;
  deal_out(schedule, last, row, 1, threads);
  for (size_t b = blocks.size() - 1; b-- > 0;) {
    const BlockRef block{blocks[b].name};
    if (blocks[b].block_class == BlockClass::injective) {
      schedule.compute_at(block, row);
      schedule.set_scope(blocks[b].write.buffer->name, Scope::shared);
      deal_out(schedule, block, row, 1, threads);
      continue;
    }
    if (has_columns(blocks[b]))
      share_columns(schedule, block, row, threads);
    else
      share_sums(schedule, {block, 1}, row);
    for (const PartialSums& sums : partial[b]) share_sums(schedule, sums, row);
  }
  return true;
}

}  // namespace tw::cuda
