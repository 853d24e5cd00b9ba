#include "targets/cuda/default_schedule.h"

#include <algorithm>

#include "targets/cpu/block_analysis.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cuda {

using cpu::analyse;
using cpu::BlockAnalysis;
using cpu::BlockClass;
using cpu::extent_of;

namespace {

constexpr int64_t threads_a_block = 256, warp = 32, square = 32, rows_at_once = 8;

// Loops of the block over its spatial or its reduced iterations, outermost first.
std::vector<LoopRef> loops_of_kind(const Schedule& schedule, const BlockRef& block, IterKind kind) {
  std::vector<LoopRef> result;
  for (const LoopRef& loop : schedule.loops(block)) {
    for (const IterVar& iter : schedule.node(block).iters) {
      if (iter.kind == kind && iter.binding.get() == loop.var.get()) result.push_back(loop);
    }
  }
  return result;
}

bool is_plain_nest(const Schedule& schedule, const BlockRef& block) {
  const size_t loops = schedule.loops(block).size();
  return loops == schedule.node(block).iters.size() &&
         loops == loops_of_kind(schedule, block, IterKind::spatial).size() + loops_of_kind(schedule, block, IterKind::reduce).size();
}

}  // namespace

void bind_flat(Schedule& schedule, const std::vector<LoopRef>& loops, int64_t threads) {
  if (loops.empty()) return;
  const LoopRef all = loops.size() > 1 ? schedule.fuse(loops) : loops[0];
  const std::vector<LoopRef> parts = schedule.split(all, {std::nullopt, threads});
  schedule.bind(parts[0], ThreadAxis::block_x);
  schedule.bind(parts[1], ThreadAxis::thread_x);
}

void schedule_elementwise(Schedule& schedule, const BlockRef& block) {
  bind_flat(schedule, schedule.loops(block), threads_a_block);
}

void schedule_reduction(Schedule& schedule, const BlockRef& block) {
  const std::vector<LoopRef> spatial = loops_of_kind(schedule, block, IterKind::spatial);
  const std::vector<LoopRef> reduce = loops_of_kind(schedule, block, IterKind::reduce);
  if (spatial.empty()) return;  // one value: one thread
  std::vector<LoopRef> order = spatial;
  order.insert(order.end(), reduce.begin(), reduce.end());
  if (order != schedule.loops(block)) schedule.reorder(order);
  const LoopRef all = spatial.size() > 1 ? schedule.fuse(spatial) : spatial[0];
  const std::vector<LoopRef> parts = schedule.split(all, {std::nullopt, threads_a_block / 2});
  // The running value stays in a register, and memory is written once.
  const BlockRef copy = schedule.cache_write(block, analyse(schedule.node(block)).write.buffer->name, Scope::local);
  schedule.reverse_compute_at(copy, parts[1]);
  schedule.bind(parts[0], ThreadAxis::block_x);
  schedule.bind(parts[1], ThreadAxis::thread_x);
}

bool schedule_row_reduction(Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const std::vector<Var> reduce = analysis.reduce();
  if (reduce.empty() || analysis.reads.empty()) return false;
  int64_t length = 1;
  for (const Var& var : reduce) length *= analysis.extent(var);
  if (length < 2 * warp) return false;
  const auto runs_along = cpu::unit_stride(analysis.reads[0], reduce.back(), analysis.iters, 1);
  const std::vector<Var> spatial = analysis.spatial();
  const bool outputs_run_along =
      !spatial.empty() && analysis.extent(spatial.back()) >= warp && cpu::unit_stride(analysis.reads[0], spatial.back(), analysis.iters, 1) == 1;
  if (runs_along != 1 || outputs_run_along) return false;

  const std::vector<LoopRef> rows = loops_of_kind(schedule, block, IterKind::spatial);
  std::vector<LoopRef> order = rows;
  const std::vector<LoopRef> columns = loops_of_kind(schedule, block, IterKind::reduce);
  order.insert(order.end(), columns.begin(), columns.end());
  if (order != schedule.loops(block)) schedule.reorder(order);
  const LoopRef row = rows.size() > 1 ? schedule.fuse(rows) : rows.empty() ? LoopRef{} : rows[0];
  const LoopRef column = columns.size() > 1 ? schedule.fuse(columns) : columns[0];
  const int64_t threads = length >= 1024 ? 128 : warp;
  const std::vector<LoopRef> parts = schedule.split(column, {std::nullopt, threads});
  // partial[…, lane] += … over the steps of each lane; then one thread adds up the lanes.
  const BlockRef partial = schedule.rfactor(parts[1], 0);
  const std::string sums = analyse(schedule.node(partial)).write.buffer->name;
  schedule.set_scope(sums, Scope::shared);
  if (rows.empty()) return true;
  const LoopRef final_row = schedule.loops(block)[0];
  schedule.compute_at(partial, final_row);
  schedule.bind(final_row, ThreadAxis::block_x);
  for (const LoopRef& loop : schedule.loops(partial)) {
    if (extent_of(schedule, loop) == threads) {
      schedule.bind(loop, ThreadAxis::thread_x);
      break;
    }
  }
  (void)row;
  return true;
}

bool schedule_transpose(Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const std::vector<Var> spatial = analysis.spatial();
  if (analysis.block_class != BlockClass::injective || spatial.size() < 2 || !is_plain_nest(schedule, block)) return false;
  const Var& along_write = spatial.back();
  if (analysis.extent(along_write) < square || cpu::unit_stride(analysis.write, along_write, analysis.iters, 1) != 1) return false;
  // An input that runs along another iteration than the output does.
  for (const cpu::Access& read : analysis.reads) {
    if (cpu::unit_stride(read, along_write, analysis.iters, 1).value_or(1) <= 1) continue;
    for (size_t i = 0; i + 1 < spatial.size(); ++i) {
      if (analysis.extent(spatial[i]) < square || cpu::unit_stride(read, spatial[i], analysis.iters, 1) != 1) continue;
      const std::string input = read.buffer->name;
      std::vector<LoopRef> loops = schedule.loops(block);
      const LoopRef turned = loops[i], last = loops.back();
      loops.erase(loops.begin() + static_cast<long>(i));
      loops.pop_back();
      const std::vector<LoopRef> a = schedule.split(turned, {std::nullopt, square});
      const std::vector<LoopRef> b = schedule.split(last, {std::nullopt, square});
      std::vector<LoopRef> blocks = loops;
      blocks.insert(blocks.end(), {a[0], b[0]});
      std::vector<LoopRef> order = blocks;
      order.insert(order.end(), {a[1], b[1]});
      schedule.reorder(order);
      const LoopRef tile = schedule.fuse(blocks);
      const BlockRef copy = schedule.cache_read(block, input, Scope::shared);
      schedule.compute_at(copy, tile);
      schedule.bind(tile, ThreadAxis::block_x);
      const std::vector<LoopRef> rows = schedule.split(a[1], {std::nullopt, rows_at_once});
      schedule.bind(rows[1], ThreadAxis::thread_y);
      schedule.bind(b[1], ThreadAxis::thread_x);
      // The copy reads along memory: its last loop is the thread's.
      std::vector<LoopRef> inner = schedule.loops(copy);
      inner.erase(inner.begin());
      std::erase_if(inner, [&](const LoopRef& loop) { return extent_of(schedule, loop) == 1; });
      const LoopRef flat = inner.size() > 1 ? schedule.fuse(inner) : inner[0];
      const std::vector<LoopRef> parts = schedule.split(flat, {std::nullopt, rows_at_once, square});
      schedule.bind(parts[1], ThreadAxis::thread_y);
      schedule.bind(parts[2], ThreadAxis::thread_x);
      return true;
    }
  }
  return false;
}

Schedule default_schedule(const Func& func, const Target& target) {
  Schedule schedule(func);
  cpu::inline_injective_blocks(schedule);
  for (const BlockRef& block : schedule.blocks()) {
    switch (analyse(schedule.node(block)).block_class) {
      case BlockClass::contraction:
        if (schedule_contraction(schedule, block, target)) break;
        [[fallthrough]];
      case BlockClass::reduction:
        if (!schedule_row_reduction(schedule, block)) schedule_reduction(schedule, block);
        break;
      case BlockClass::injective:
        if (!schedule_transpose(schedule, block)) schedule_elementwise(schedule, block);
        break;
      case BlockClass::unknown:
        break;  // runs as written, in one thread
    }
  }
  return schedule;
}

}  // namespace tw::cuda
