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

#include "runtime/rounding.h"
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

// What is decided of a tile: of the reduced iterations the longest, k, is staged in pieces, the others whole, while
// several blocks find room on a multiprocessor.
class Tile {
 public:
  Tile(const BlockAnalysis& analysis, const Product& product, const Target& target)
      : analysis_(analysis), product_(product), target_(target), k_(analysis.reduce()[0]) {
    for (const Var& var : analysis.reduce())
      if (analysis.extent(var) > analysis.extent(k_)) k_ = var;
  }
  const Var& k() const { return k_; }
  int64_t staged_bytes(const Side& rows, const Side& columns, int64_t piece) const {
    std::vector<std::pair<Var, int64_t>> tile = {{product_.i, rows.tile()}, {product_.j, columns.tile()}, {k_, piece}};
    for (const Var& var : analysis_.reduce())
      if (!(var == k_)) tile.emplace_back(var, analysis_.extent(var));
    const Access &a = analysis_.reads[0], &b = analysis_.reads[1];
    return std::max(staged_elements(a, tile), staged_elements(b, tile)) *
           (a.buffer->dtype.bytes() + b.buffer->dtype.bytes());
  }
  bool fits(const Side& rows, const Side& columns, int64_t piece) const {
    return staged_bytes(rows, columns, piece) <= static_shared_bytes;
  }

  // What a thread keeps of each side.  Cycles of a step along k: it reads values of both from shared memory, and
  // multiplies each by each.
  std::pair<Side, Side> decide_sides(Schedule& schedule) const {
    constexpr int64_t reading = 2;  // of a value, in the time of a product
    const int64_t m = analysis_.extent(product_.i), n = analysis_.extent(product_.j);
    std::vector<Var> others = analysis_.spatial();
    std::erase_if(others, [&](const Var& var) { return var == product_.i || var == product_.j; });
    const int64_t batch = count_iterations(analysis_, others);
    const int64_t most = choose_registers(analysis_, product_.i, product_.j, target_);
    const Choice analytic = {choose_side(m, most).registers, choose_side(n, most).registers};
    std::vector<Candidate> candidates;
    for (const int64_t rows : {1, 2, 4, 8}) {
      for (const int64_t columns : {1, 2, 4, 8}) {
        const Side i = choose_side(m, rows), j = choose_side(n, columns);
        const Choice value = {i.registers, j.registers};
        const bool has_as_many = value == Choice{rows, columns};
        if (!has_as_many || (value != analytic && !fits(i, j, 1))) continue;
        const int64_t tiles = batch * divide_up(m, i.tile()) * divide_up(n, j.tile());
        const int64_t cycles = rows * columns + reading * (rows + columns);
        candidates.push_back({value, static_cast<double>(divide_up(tiles, target_.threads) * cycles)});
      }
    }
    const Choice registers = schedule.decide("thread_tile", candidates, analytic);
    return {choose_side(m, registers[0]), choose_side(n, registers[1])};
  }

  // Steps along k of a piece.  0: not even one fits.
  int64_t decide_piece(Schedule& schedule, const Side& rows, const Side& columns) const {
    constexpr int64_t usual = 16;
    int64_t analytic = std::min(usual, analysis_.extent(k_));
    while (!fits(rows, columns, analytic)) {
      if (analytic == 1) return 0;
      analytic = (analytic + 1) / 2;
    }
    std::vector<Candidate> candidates = {{{analytic}}};
    for (const int64_t piece : {8, 16, 32})
      if (piece != analytic && piece <= analysis_.extent(k_) && fits(rows, columns, piece))
        candidates.push_back({{piece}});
    return schedule.decide("k_piece", candidates, {analytic})[0];
  }

 private:
  const BlockAnalysis& analysis_;
  const Product& product_;
  const Target& target_;
  Var k_;
};

}  // namespace

bool schedule_contraction(Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const auto product = find_product(schedule, block, analysis);
  if (!product) return false;
  const auto& [i, j, at_i, at_j] = *product;
  const Access &a = analysis.reads[0], &b = analysis.reads[1];
  if (choose_side(analysis.extent(i), 1).threads * choose_side(analysis.extent(j), 1).threads < warp) return false;
  const Tile decided(analysis, *product, target);
  const auto [rows, columns] = decided.decide_sides(schedule);
  const int64_t piece = decided.decide_piece(schedule, rows, columns);
  if (piece == 0) return false;
  const std::vector<Var> reduce = analysis.reduce();
  const Var k = decided.k();

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
  const int64_t staged_bytes = decided.staged_bytes(rows, columns, piece);
  if (extent_of(schedule, ks[0]) >= 2 && 2 * staged_bytes <= static_shared_bytes &&
      schedule.decide("stages", {{{1}}, {{2}}}, {2})[0] == 2)
    schedule.pipeline(ks[0], 2);
  return true;
}

}  // namespace tw::cuda
