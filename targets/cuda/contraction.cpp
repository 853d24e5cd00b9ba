// C[…, i, …, j, …] += A[…, i, …, k] * B[…, j, …, k], of products and convolutions alike:
//
//   for others block.y, io jo block.x {
//     for it thread.y, jt thread.x { Cr[i, j] = 0 }
//     for ko pipelined {
//       As = A[tile], Bs = B[tile]                by all threads, zeros around A put in
//       for it thread.y, jt thread.x {
//         for k… { for ir unrolled { for jr unrolled { Cr[i, j] += As[i, k] * Bs[j, k] } } }
//     }}
//     for it thread.y, jt thread.x { C[i, j] = epilogue(Cr[i, j]) }
//   }
#include <algorithm>

#include "targets/analysis/block_relations.h"
#include "targets/cuda/default_schedule.h"
#include "targets/cuda/emit.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::cuda {
namespace {

using namespace analysis;

struct Side {  // one side of the output tile: elements = threads × registers
  int64_t threads = 1, registers = 1;
  int64_t tile() const { return threads * registers; }
};

// 16 threads × so many registers, where there are as many elements.
Side choose_side(int64_t extent, int64_t registers) {
  Side side;
  while (side.threads < 16 && side.threads * 2 <= extent) side.threads *= 2;
  while (side.registers < registers && side.tile() * 2 <= extent) side.registers *= 2;
  return side;
}

// What a thread keeps of each side: four elements of either make as much work as they ask of shared memory; eight ask
// for half as much, where there are tiles for all multiprocessors then.
int64_t choose_registers(const BlockAnalysis& analysis, const Var& i, const Var& j, const Target& target) {
  constexpr int64_t few = 4, many = 8, threads = 16;
  const int64_t tiles = count_iterations(analysis, analysis.spatial()) / (threads * many * threads * many);
  const bool is_plain = analysis.reduce().size() == 1 && analysis.write.buffer->dtype == f32;
  const bool is_large = std::min(analysis.extent(i), analysis.extent(j)) >= threads * many;
  return is_plain && is_large && tiles >= 2 * target.threads ? many : few;
}

// Elements of an operand that one tile needs, at most: its index ranges when the iterations of `tile` take that many
// values.
int64_t staged_elements(const Access& access, const std::vector<std::pair<Var, int64_t>>& tile) {
  int64_t elements = 1;
  for (const Expr& index : access.indices) {
    std::optional<Affine> affine = as_affine(index);
    int64_t reach = 1;
    for (const auto& [var, count] : tile) {
      if (!uses_var(index, var)) continue;
      reach += affine ? std::abs(affine->coefficient(var)) * (count - 1) : count;
    }
    elements *= reach;
  }
  return elements;
}

}  // namespace

bool schedule_contraction(Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const auto product = find_product(schedule, block, analysis);
  if (!product) return false;
  const auto& [i, j, at_i, at_j] = *product;
  const Access &a = analysis.reads[0], &b = analysis.reads[1];
  const int64_t registers = choose_registers(analysis, i, j, target);
  const Side rows = choose_side(analysis.extent(i), registers), columns = choose_side(analysis.extent(j), registers);
  if (rows.threads * columns.threads < 32) return false;

  // Of the reduced iterations the longest is staged in pieces, the others whole, while several blocks find room on a
  // multiprocessor.
  const std::vector<Var> reduce = analysis.reduce();
  Var k = reduce[0];
  for (const Var& var : reduce)
    if (analysis.extent(var) > analysis.extent(k)) k = var;
  int64_t piece = std::min<int64_t>(16, analysis.extent(k));
  const int64_t element = a.buffer->dtype.bytes() + b.buffer->dtype.bytes();
  int64_t staged_bytes = 0;
  for (;; piece = (piece + 1) / 2) {
    std::vector<std::pair<Var, int64_t>> tile = {{i, rows.tile()}, {j, columns.tile()}, {k, piece}};
    for (const Var& var : reduce)
      if (!(var == k)) tile.emplace_back(var, analysis.extent(var));
    staged_bytes = std::max(staged_elements(a, tile), staged_elements(b, tile)) * element;
    if (staged_bytes <= static_shared_bytes) break;
    if (piece == 1) return false;
  }

  const std::vector<LoopRef> is =
      schedule.split(loop_of(schedule, block, i), {std::nullopt, rows.threads, rows.registers});
  const std::vector<LoopRef> js =
      schedule.split(loop_of(schedule, block, j), {std::nullopt, columns.threads, columns.registers});
  const std::vector<LoopRef> ks = schedule.split(loop_of(schedule, block, k), {std::nullopt, piece});
  const std::vector<LoopRef> blocks = loops_of_blocks(schedule, block, analysis, *product, {is[0], js[0]});
  std::vector<LoopRef> inner;
  for (const Var& var : reduce)
    if (!(var == k)) inner.push_back(loop_of(schedule, block, var));
  std::vector<LoopRef> order = blocks;
  order.insert(order.end(), {ks[0], is[1], js[1], ks[1]});
  order.insert(order.end(), inner.begin(), inner.end());
  order.insert(order.end(), {is[2], js[2]});
  schedule.reorder(order);
  const LoopRef tile = schedule.fuse(blocks);

  const BlockRef out = keep_in_thread(schedule, block, tile);
  const auto padding = find_padding(schedule, block);
  const BlockRef stage_a = schedule.cache_read(block, a.buffer->name, Scope::shared);
  const BlockRef stage_b = schedule.cache_read(block, b.buffer->name, Scope::shared);
  if (padding) schedule.compute_inline(*padding);  // into what stages it
  schedule.compute_at(stage_a, ks[0]);
  schedule.compute_at(stage_b, ks[0]);
  const BlockRef init = schedule.decompose_reduction(block, ks[0]);

  // The same threads hold the same elements while they begin, add up and leave.
  schedule.bind(tile, ThreadAxis::block_x);
  const auto bind_tile = [&](const LoopRef& y, const LoopRef& x) {
    schedule.bind(y, ThreadAxis::thread_y);
    schedule.bind(x, ThreadAxis::thread_x);
  };
  bind_tile(is[1], js[1]);
  if (rows.registers * columns.registers > 16) schedule.unroll(ks[1]);  // four steps of an operand come by one access
  schedule.unroll(is[2]);
  schedule.unroll(js[2]);
  std::vector<LoopRef> begin = schedule.loops(init);  // tile, it, jt, ir, jr
  check(begin.size() == 5, "schedule_contraction: the init has the loops of the tile");
  bind_tile(begin[1], begin[2]);
  schedule.unroll(begin[3]);
  schedule.unroll(begin[4]);
  deal_out(schedule, stage_a, ks[0], rows.threads, columns.threads);
  deal_out(schedule, stage_b, ks[0], rows.threads, columns.threads);
  // Of the loops that give a dimension of the output, the innermost runs within the tile.
  const auto within_tile = [&](size_t dimension) {
    return loops_of(schedule, out, schedule.node(out).iters[dimension].var).back();
  };
  const std::vector<LoopRef> y = schedule.split(within_tile(at_i), {rows.threads, rows.registers});
  const std::vector<LoopRef> x = schedule.split(within_tile(at_j), {columns.threads, columns.registers});
  schedule.reorder({y[0], x[0], y[1], x[1]});
  bind_tile(y[0], x[0]);
  schedule.unroll(y[1]);
  schedule.unroll(x[1]);
  // With two versions of the staged pieces, threads wait for each other once a piece instead of twice.
  if (extent_of(schedule, ks[0]) >= 2 && 2 * staged_bytes <= static_shared_bytes) schedule.pipeline(ks[0], 2);
  return true;
}

}  // namespace tw::cuda
