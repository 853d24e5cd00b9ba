// Products of 16-bit floats, of tf32, of bytes and of floats of 8 bits on tensor cores, and what is one as matrices
// (matrices.h): convolutions.
//
//   for others, io, jo block.x {
//     for w thread.z, y thread.y, x thread.x { Cr[i, j] = 0 }
//     for ko pipelined {
//       As = A[tile], Bs = B[tile]                    by all threads, 16 bytes each
//       for w thread.z { Cr[i, j] += As[i, k] * Bs[j, k] }      mma: a warp as one; wgmma: four of them
//     }
//     for w thread.z, y thread.y, x thread.x { C[i, j] = epilogue(Cr[i, j]) }
//   }
//
// What is multiplied by groups of warps comes as boxes of a tensor where it lies so (tile_copies.h); where all of it
// does, by a warp of its own, and blocks make several tiles, so that the next one's boxes come while one leaves:
//
//   for b block.x { for t { … as above, of tile t · blocks + b } }
//
// Warps share the block's tile out among them, in rows and columns.  Cr is a fragment (fragments.h): what is done to it
// element by element is done in registers.  Of few sums with many terms, the blocks make parts, which another kernel
// adds up (split-K).  Extents that are open are multiples of a tile's all the same: beyond them zeros are copied, and
// no sums are written.
#include <algorithm>
#include <functional>
#include <ranges>
#include <span>
#include <string>

#include "runtime/device/cuda_image.h"
#include "runtime/rounding.h"
#include "targets/analysis/block_relations.h"
#include "targets/analysis/loop_strides.h"
#include "targets/cuda/default_schedule.h"
#include "targets/cuda/device_facts.h"
#include "targets/cuda/fragments.h"
#include "targets/cuda/matrices.h"
#include "tensor_ir/arith/region.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/conjunction.h"
#include "tensor_ir/passes/pipeline.h"

namespace tw::cuda {
namespace {

using namespace analysis;

struct WarpTile {
  int64_t m, n, k;           // of a block; k in steps (steps_of)
  int64_t warps_m, warps_n;  // that share it out
  int64_t rows() const { return m / warps_m; }
  int64_t columns() const { return n / warps_n; }
  int64_t warps() const { return warps_m * warps_n; }
};

// Of a warp's instruction; and which the prediction below does not tell from others: for who measures.
constexpr WarpTile warp_tiles[] = {
    {128, 128, 32, 2, 2}, {128, 64, 32, 2, 2}, {64, 128, 32, 2, 2}, {64, 64, 32, 2, 2},
    {32, 64, 32, 1, 2},   {64, 32, 32, 2, 1},  {32, 32, 32, 1, 1},  {16, 64, 32, 1, 2},
    {16, 32, 32, 1, 1},   {16, 16, 32, 1, 1},  {16, 16, 16, 1, 1},
};
constexpr WarpTile further_warp_tiles[] = {
    {128, 256, 32, 2, 4}, {256, 128, 32, 4, 2}, {64, 256, 32, 1, 4},  {128, 128, 32, 2, 4},
    {128, 64, 32, 4, 1},  {64, 64, 64, 2, 2},   {128, 128, 64, 2, 2}, {128, 256, 64, 2, 4},
};
// Of a warp's that is two of f16, whose operands need registers, too.
constexpr WarpTile converted_tiles[] = {
    {128, 128, 32, 2, 4}, {128, 64, 32, 2, 2}, {64, 128, 32, 2, 2}, {64, 64, 32, 2, 2},
    {32, 64, 32, 1, 2},   {64, 32, 32, 2, 1},  {32, 32, 32, 1, 1},  {16, 64, 32, 1, 2},
    {16, 32, 32, 1, 1},   {16, 16, 32, 1, 1},  {16, 16, 16, 1, 1},
};
// Of a group's, which reads both operands from shared memory: the wider, the fewer bytes for a sum.
constexpr WarpTile group_tiles[] = {
    {128, 256, 64, 8, 1}, {64, 256, 64, 4, 1}, {128, 128, 64, 8, 1},
    {64, 128, 64, 4, 1},  {128, 64, 64, 8, 1}, {64, 64, 64, 4, 1},
};
constexpr WarpTile further_group_tiles[] = {{256, 128, 64, 16, 1}, {256, 64, 64, 16, 1}};

constexpr int64_t most_stages = 6;    // of a pipeline along k
constexpr int64_t deepest_step = 32;  // along k, of a warp's tiles

// Cycles of a multiprocessor for 32 terms of each sum of a tile: for each sum and each row and column that is read
// where blocks are among others; and where one is alone, so that nobody hides what it waits for.
struct Rates {
  double sum, operand, each, alone, alone_sum;
  int64_t registers;  // of a thread, beside its sums
};
constexpr Rates warp_rates = {0.028, 0.31, 80, 290, 0.0375, 70};  // as measured on an H200
constexpr Rates converted_rates = {0.056, 0.6,   80,
                                   290,   0.075, 90};              // where the instruction is two of f16: not measured
constexpr Rates group_rates = {0.0156, 0.1, 40, 175, 0.0172, 60};  // by the instruction's figures: not measured

struct Multiplier {
  std::string instruction;
  std::span<const WarpTile> tiles, further_tiles;
  Rates rates;
  bool is_of_group;
};

struct MultiplyingInstruction {
  DType rows, columns, sum;
  std::optional<Intrinsic> of_rows, of_columns;  // what converts them (BlockAnalysis::conversions)
  const char* name;
  bool is_of_float8() const { return of_rows && rows == u8; }
};
constexpr auto tf32 = Intrinsic::round_tf32, e4m3 = Intrinsic::decode_e4m3, e5m2 = Intrinsic::decode_e5m2;
constexpr MultiplyingInstruction instructions[] = {
    {bf16, bf16, f32, {}, {}, "mma_bf16"},     {f16, f16, f32, {}, {}, "mma_f16"},
    {f32, f32, f32, tf32, tf32, "mma_tf32"},   {i8, i8, i32, {}, {}, "mma_s8s8"},
    {u8, i8, i32, {}, {}, "mma_u8s8"},         {i8, u8, i32, {}, {}, "mma_s8u8"},
    {u8, u8, i32, {}, {}, "mma_u8u8"},         {u8, u8, f32, e4m3, e4m3, "mma_e4m3e4m3"},
    {u8, u8, f32, e4m3, e5m2, "mma_e4m3e5m2"}, {u8, u8, f32, e5m2, e4m3, "mma_e5m2e4m3"},
    {u8, u8, f32, e5m2, e5m2, "mma_e5m2e5m2"},
};

// Whether what is summed over lies together in memory, so that bytes are copied by words at least: one by one they
// would take more registers than groups of warps leave.  Constants are laid out as they are read.
bool has_words(const Schedule& schedule, const BlockRef& block) {
  constexpr int64_t word_bytes = 4;
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const MatrixAxes axes = find_matrix_axes(schedule, block);
  return !axes.reduce.empty() && std::ranges::all_of(analysis.reads, [&](const Access& read) {
    const int64_t bytes = read.buffer->dtype.bytes();
    const Var& last = axes.reduce.back();
    return bytes > 1 || read.buffer->is_constant ||
           (analysis.extent(last) % word_bytes == 0 &&
            unit_stride(read, last, analysis.iters, static_cast<int>(piece_bytes)) == 1);
  });
}

// Those that the target has for the block's types, the one for all sizes first.
std::vector<Multiplier> multipliers_of(const BlockAnalysis& analysis, size_t of_rows, bool may_be_of_group,
                                       const Target& target) {
  const DType rows = analysis.reads[of_rows].buffer->dtype, columns = analysis.reads[1 - of_rows].buffer->dtype;
  const auto* own = std::ranges::find_if(instructions, [&](const MultiplyingInstruction& p) {
    return p.rows == rows && p.columns == columns && p.sum == analysis.write.buffer->dtype &&
           p.of_rows == analysis.conversions[of_rows] && p.of_columns == analysis.conversions[1 - of_rows];
  });
  if (target.tensor_core_rate == 0 || own == std::end(instructions)) return {};
  if (own->is_of_float8() && target.float8_rate == 0) return {};
  constexpr int with_groups = 90;  // and no later one, so that no PTX for those has them
  std::vector<Multiplier> found = {{own->name, warp_tiles, further_warp_tiles, warp_rates, false}};
  if (own->is_of_float8() && device_facts(target.compute_capability)->converts_float8)
    found = {{own->name, converted_tiles, {}, converted_rates, false}};
  if (target.compute_capability == with_groups && !target.has(ptx_feature) && rows.bytes() <= bf16.bytes() &&
      may_be_of_group)
    found.push_back({std::string("wg") + own->name, group_tiles, further_group_tiles, group_rates, true});
  return found;
}

// A step along k takes the time and the memory of a product of 16 bits, be it two of bytes or half a one of tf32: tiles
// and predictions count in steps.
int64_t steps_of(const BlockAnalysis& analysis, int64_t elements) {
  return divide_up(elements * analysis.reads[0].buffer->dtype.bytes(), bf16.bytes());
}
int64_t elements_of(const BlockAnalysis& analysis, int64_t steps) {
  return steps * bf16.bytes() / analysis.reads[0].buffer->dtype.bytes();
}

struct ProductSize {
  int64_t m, n, k;
  int64_t batch = 1;
};

// What is open is as large as it usually is.
ProductSize usual_size(const BlockAnalysis& analysis, const std::vector<Var>& rows, const std::vector<Var>& columns,
                       const std::vector<Var>& reduce, const std::vector<Var>& others) {
  const auto count = [&](const std::vector<Var>& vars) {
    int64_t result = 1;
    for (const Var& var : vars) result *= analysis.typical_extent(var);
    return result;
  };
  return {count(rows), count(columns), count(reduce), count(others)};
}

// Blocks that find registers on a multiprocessor at the same time.
int64_t blocks_at_once(const WarpTile& tile, const Rates& rates) {
  return std::max<int64_t>(1, registers_of_multiprocessor / (tile.m * tile.n + tile.warps() * warp * rates.registers));
}

// Cycles of a multiprocessor from the first block to the last.
double predicted_cycles(const ProductSize& size, const WarpTile& tile, const Rates& rates, const Target& target) {
  constexpr double leaving_sum = 0.12;
  const int64_t blocks = size.batch * divide_up(size.m, tile.m) * divide_up(size.n, tile.n);
  const int64_t own = divide_up(blocks, target.threads);
  const auto sums = static_cast<double>(tile.m * tile.n);
  const auto operands = static_cast<double>(tile.warps() * (tile.rows() + tile.columns()));
  const double steps = static_cast<double>(divide_up(size.k, tile.k) * tile.k) / deepest_step;
  const double busy = steps * (rates.sum * sums + rates.operand * operands + rates.each) + leaving_sum * sums;
  const double waiting = steps * (rates.alone + rates.alone_sum * sums) + leaving_sum * sums;
  return std::max(static_cast<double>(own) * busy,
                  static_cast<double>(divide_up(own, blocks_at_once(tile, rates))) * waiting);
}

WarpTile choose_warp_tile(const ProductSize& size, const Multiplier& by, const Target& target) {
  return *std::ranges::min_element(
      by.tiles, {}, [&](const WarpTile& tile) { return predicted_cycles(size, tile, by.rates, target); });
}

double least_cycles(const ProductSize& size, const Multiplier& by, const Target& target) {
  return predicted_cycles(size, choose_warp_tile(size, by, target), by.rates, target);
}

// By number.
const Multiplier& decide_multiplier(Schedule& schedule, const std::vector<Multiplier>& all, const ProductSize& size,
                                    const Target& target) {
  if (all.size() == 1) return all[0];
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < all.size(); ++i)
    candidates.push_back({{static_cast<int64_t>(i)}, least_cycles(size, all[i], target)});
  const Choice best = std::ranges::min_element(candidates, {}, &Candidate::cost)->value;
  return all[static_cast<size_t>(schedule.decide("multiplier", candidates, best)[0])];
}

WarpTile decide_warp_tile(Schedule& schedule, const ProductSize& size, const Multiplier& by, const Target& target) {
  const auto value_of = [](const WarpTile& tile) { return Choice{tile.m, tile.n, tile.k, tile.warps_m, tile.warps_n}; };
  // Of a tile twice as large as the product most is zeros.
  const auto is_sensible = [&](const WarpTile& tile) {
    return tile.m < 2 * std::max(size.m, mma_m) && tile.n < 2 * std::max(size.n, 2 * mma_n);
  };
  const Choice best = value_of(choose_warp_tile(size, by, target));
  std::vector<Candidate> candidates;
  for (const std::span<const WarpTile> some : {by.tiles, by.further_tiles})
    for (const WarpTile& tile : some)
      if (is_sensible(tile) || value_of(tile) == best)
        candidates.push_back({value_of(tile), predicted_cycles(size, tile, by.rates, target)});
  const Choice tile = schedule.decide("warp_tile", candidates, best);
  return {tile[0], tile[1], tile[2], tile[3], tile[4]};
}

// In how many parts k is summed up, each by blocks of its own and all of them by a kernel more (split-K): where that is
// predicted to end first.
int64_t decide_parts(Schedule& schedule, const ProductSize& size, const std::vector<Multiplier>& multipliers,
                     const std::function<bool(int64_t)>& divides, const Target& target) {
  constexpr double launch = 3000, bytes_a_cycle = 1500;
  constexpr int64_t fewest_terms = 128;
  std::vector<Candidate> candidates;
  for (const int64_t parts : {1, 2, 4, 8, 16}) {
    if (parts > 1 && (!divides(parts) || size.k / parts < fewest_terms)) continue;
    const ProductSize part = {size.m, size.n, size.k / parts, size.batch * parts};
    double cycles = std::ranges::min(
        multipliers | std::views::transform([&](const Multiplier& by) { return least_cycles(part, by, target); }));
    if (parts > 1) {
      const int64_t moved = f32.bytes() * size.batch * size.m * size.n * (2 * parts + 1);
      cycles += launch + static_cast<double>(moved) / bytes_a_cycle;
    }
    candidates.push_back({{parts}, cycles});
  }
  const Choice best = std::ranges::min_element(candidates, {}, &Candidate::cost)->value;
  return schedule.decide("parts", candidates, best)[0];
}

// How many rows of tiles take turns along the columns, so that what they read stays in the second cache.
int64_t decide_rows_in_turn(Schedule& schedule, int64_t tile_rows) {
  constexpr int64_t some = 8;
  std::vector<Candidate> candidates = {{{1}}};
  for (const int64_t rows : {4, 8, 16})
    if (tile_rows > rows && tile_rows % rows == 0) candidates.push_back({{rows}});
  const bool is_some = tile_rows > some && tile_rows % some == 0;
  return schedule.decide("rows_in_turn", candidates, {is_some ? some : 1})[0];
}

// How many steps along k have their operands in shared memory, where so many blocks are to find room.
int64_t decide_stages(Schedule& schedule, int64_t steps, int64_t bytes, int64_t blocks, int64_t room) {
  constexpr int64_t enough = 4;
  std::vector<Candidate> candidates;
  for (int64_t stages = 1; stages <= std::min({most_stages, room / bytes, steps}); ++stages)
    candidates.push_back({{stages}});
  const int64_t analytic = std::max<int64_t>(1, std::min({enough, room / blocks / bytes, steps}));
  return schedule.decide("stages", candidates, {analytic})[0];
}

// The sums stay in a fragment while the blocks of `outer` make them; returns what writes them to memory.
BlockRef keep_in_fragment(Schedule& schedule, const BlockRef& block, const LoopRef& outer, const Matrices& matrices) {
  if (!matrices.out) return keep_in_scope(schedule, block, outer, Scope::fragment);
  schedule.reverse_compute_at(*matrices.out, outer);
  schedule.set_scope(written_by(schedule, block)->name, Scope::fragment);
  return *matrices.out;
}

// What the iterations within a loop read of an operand, in shared memory: its copy where there is one already.  Bytes
// lie along the sum there, whatever they do elsewhere.
BlockRef stage_at(Schedule& schedule, const BlockRef& block, Matrices& matrices, size_t operand, const LoopRef& loop) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const Access& read = analysis.reads[operand];
  const auto& made = matrices.copies[operand];
  const BlockRef copy = made ? *made : schedule.cache_read(block, read.buffer->name, Scope::shared);
  const size_t along_sum = dimension_of(read, analysis.reduce().at(0)).value();
  const bool is_turned = read.buffer->dtype.bytes() == 1 && along_sum + 1 != read.indices.size();
  if (is_turned) put_dimension_last(schedule, written_by(schedule, copy), along_sum);
  schedule.compute_at(copy, loop);
  if (made) schedule.set_scope(read.buffer->name, Scope::shared);
  if (!is_turned) return copy;
  std::vector<LoopRef> loops = loops_below(schedule, copy, loop);
  std::rotate(loops.begin() + static_cast<long>(along_sum), loops.begin() + static_cast<long>(along_sum) + 1,
              loops.end());
  schedule.reorder(loops);
  matrices.has_near_rows[operand] = true;
  return copy;
}

// The loops over a block's tile of sums, as the threads that hold them: of so many columns side by side.
void bind_sums(Schedule& schedule, const LoopRef& i, const LoopRef& j, const WarpTile& tile, int64_t own_columns) {
  const std::vector<LoopRef> rows = schedule.split(i, {tile.warps_m, tile.rows() / mma_m, mma_m / lanes_y, lanes_y});
  const std::vector<LoopRef> columns =
      schedule.split(j, {tile.warps_n, tile.columns() / (lanes_x * own_columns), lanes_x, own_columns});
  schedule.reorder({rows[0], columns[0], rows[3], columns[2], rows[1], rows[2], columns[1], columns[3]});
  schedule.bind(schedule.fuse({rows[0], columns[0]}), ThreadAxis::thread_z);
  schedule.bind(rows[3], ThreadAxis::thread_y);
  schedule.bind(columns[2], ThreadAxis::thread_x);
  schedule.unroll(rows[1]);
  schedule.unroll(rows[2]);
  schedule.unroll(columns[1]);
  schedule.vectorize(columns[3]);
}

bool writes_eight_columns(const Schedule& schedule, const BlockRef& block) {
  const MatrixAxes axes = find_matrix_axes(schedule, block);
  if (axes.columns.size() != 1) return false;
  const Var& column = axes.columns[0];
  const BlockAnalysis analysis = analyse(schedule.node(block));
  return !analysis.is_open(column) && analysis.extent(column) % 8 == 0 &&
         result_stride(schedule, block, column, 8) == 1;
}

// Columns of a thread's sums that lie side by side in memory: eight where the result has so many, and the second
// operand's rows can be multiplied in another order (fragments.h), else a pair.
int64_t columns_of_thread(const BlockAnalysis& product, const Var& j, const Var& k, bool has_wide_results,
                          const WarpTile& tile) {
  constexpr int64_t wide = 8, pair = 2;
  const Access& second = product.reads[product.reads[0].uses(j) ? 0 : 1];
  const bool has_rows = unit_stride(second, k, product.iters, 1) == 1;
  return has_wide_results && has_rows && tile.columns() % (lanes_x * wide) == 0 ? wide : pair;
}

// Whether what lies in boxes is copied as boxes.
bool decide_tile_copies(Schedule& schedule) {
  return schedule.decide("tile_copies", {{{1}}, {{0}}}, {1})[0] != 0;
}

// Whether a warp of its own asks for the copies: the others need not meet for them.  Kernels of bytes would spill
// registers, of which that leaves fewer.
bool decide_copying_warp(Schedule& schedule, DType operands) {
  return schedule.decide("copying_warp", {{{1}}, {{0}}}, {operands.bytes() > 1 ? 1 : 0})[0] != 0;
}

// Tiles that a block makes one after the other, where each has as many: the copies for a tile come while the one before
// leaves.  Where several blocks are on a multiprocessor, others work meanwhile anyway.
int64_t decide_tiles_of_block(Schedule& schedule, int64_t tiles, int64_t multiprocessors, int64_t at_once) {
  const int64_t share = divide_up(tiles, multiprocessors * at_once);
  std::vector<Candidate> candidates = {{{1}}};
  const bool is_even = share > 1 && tiles % share == 0;
  if (is_even) candidates.push_back({{share}});
  return schedule.decide("tiles_of_block", candidates, {is_even && at_once == 1 ? share : 1})[0];
}

// Rows of a tensor, its last iterations but one, by neighbours, its last ones; others choose one matrix of several, or
// a part of its rows.
bool is_box(const Schedule& schedule, const BlockRef& copy) {
  const Block& block = schedule.node(copy);
  const auto* store = block.body.as<Store>();
  const auto* load = store ? store->value.as<Load>() : nullptr;
  if (!load || load->buffer->scope != Scope::global || block.predicate.is_defined() || block.iters.size() < 2)
    return false;
  const Access read = analyse(block).reads.at(0);
  const IterVar &row = block.iters[block.iters.size() - 2], &column = block.iters.back();
  const auto stride_of = [&](const Var& var) { return unit_stride(read, var, block.iters, 1).value_or(0); };
  const int64_t line = stride_of(row.var);
  if (stride_of(column.var) != 1 || line < 1 || line * load->dtype.bytes() % piece_bytes != 0) return false;
  Expr rows = row.extent, columns = column.extent;
  bool ends_columns = false;
  std::vector<Expr> conditions;
  if (load->predicate.is_defined()) split_conjunction(load->predicate, conditions);
  for (const Expr& condition : conditions) {
    const auto* less = condition.as<Binary>();
    const bool is_of_columns = less && less->a.is_same(column.var);
    if (!less || less->op != BinaryOp::lt || (!is_of_columns && !less->a.is_same(row.var))) return false;
    (is_of_columns ? columns : rows) = less->b;
    ends_columns |= is_of_columns;
  }
  for (size_t i = 0; i + 2 < block.iters.size(); ++i) {
    const IterVar& other = block.iters[i];
    const int64_t stride = stride_of(other.var);
    if (is_const_int(other.extent, 1)) continue;
    if (stride > 0 && stride < line && !ends_columns)
      columns = columns + (other.extent - 1) * Expr(stride);
    else if (stride < line || stride % line != 0 || !can_prove(rows * Expr(line) <= Expr(stride)))
      return false;
  }
  return can_prove(columns <= Expr(line));
}

// Whichever iterations of the loop are copied ahead, what they read is found by the loop's variable times a number:
// other forms are not shown to be boxes once numbers are added to it.
bool moves_evenly(const Schedule& schedule, const BlockRef& copy, const LoopRef& loop) {
  const auto [offset, ranges] = place_in_loops(schedule, copy, analyse(schedule.node(copy)).reads.at(0));
  for (int64_t ahead = 0; ahead < most_stages; ++ahead) {
    const Expr place = simplify(substitute(offset, {{loop.var, loop.var + Expr(ahead)}}), ranges);
    for (const auto& [term, coefficient] : linear_form(place).terms)
      if (uses_var(term, loop.var) && term.get() != loop.var.get()) return false;
  }
  return true;
}

// The copy to shared memory, made by the GPU as a whole where it is a box of a tensor (tile_copies.h).
bool copy_as_tile(Schedule& schedule, const BlockRef& copy, const LoopRef& outer) {
  const std::vector<LoopRef> loops = loops_below(schedule, copy, outer);
  if (loops.size() < 2 || !is_box(schedule, copy) || !moves_evenly(schedule, copy, outer)) return false;
  for (size_t i = 0; i + 2 < loops.size(); ++i)
    if (extent_of(schedule, loops[i]) != 1) return false;
  const std::string name = "tile_copy_" + to_string(written_by(schedule, copy)->dtype);
  Schedule tiled = schedule;
  try {
    const std::vector<LoopRef> rows = tiled.split(loops[loops.size() - 2], {1, 1, 1, std::nullopt});
    tiled.tensorize(rows[3], name);
    tiled.bind(rows[0], ThreadAxis::thread_z);
    tiled.bind(rows[1], ThreadAxis::thread_y);
    tiled.bind(rows[2], ThreadAxis::thread_x);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::schedule) throw;
    return false;
  }
  schedule = std::move(tiled);
  return true;
}

bool schedule_product(Schedule& schedule, const BlockRef& block, bool may_be_of_group, const Target& target) {
  const bool has_wide_results = writes_eight_columns(schedule, block);
  std::optional<Matrices> made = make_matrices(schedule, block);
  if (!made) return false;
  Matrices& matrices = *made;
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const auto& [i, j, at_i, at_j] = matrices.product;
  const Var k = analysis.reduce().at(0);
  constexpr int64_t fewest = 4;  // rows or columns that are worth a fragment
  if (std::min(analysis.extent(i), analysis.extent(j)) < fewest) return false;
  for (const Access& read : analysis.reads) {
    const Var& own = read.uses(i) ? i : j;
    if (unit_stride(read, own, analysis.iters, 1) != 1 && unit_stride(read, k, analysis.iters, 1) != 1) return false;
  }
  std::vector<Var> others = analysis.spatial();
  std::erase_if(others, [&](const Var& var) { return var == i || var == j; });
  ProductSize size = usual_size(analysis, {i}, {j}, {k}, others);
  size.k = steps_of(analysis, size.k);
  const std::vector<Multiplier> multipliers =
      multipliers_of(analysis, analysis.reads[0].uses(i) ? 0 : 1, may_be_of_group, target);
  const Multiplier& by = decide_multiplier(schedule, multipliers, size, target);
  WarpTile tile = decide_warp_tile(schedule, size, by, target);
  // Two steps where there may be two, so that one is copied while the other is multiplied.
  if (by.is_of_group && deepest_step < size.k && size.k <= tile.k) tile.k = deepest_step;
  tile.k = elements_of(analysis, tile.k);
  const int64_t own_columns = columns_of_thread(analysis, j, k, has_wide_results, tile);
  pad_to_multiples(schedule, block, matrices, {{i, tile.m}, {j, tile.n}, {k, tile.k}});

  const std::vector<LoopRef> is =
      schedule.split(loop_of(schedule, block, i), {std::nullopt, tile.warps_m, tile.rows()});
  const std::vector<LoopRef> js =
      schedule.split(loop_of(schedule, block, j), {std::nullopt, tile.warps_n, tile.columns()});
  const std::vector<LoopRef> ks = schedule.split(loop_of(schedule, block, k), {std::nullopt, tile.k});
  const int64_t rows_in_turn = decide_rows_in_turn(schedule, extent_of(schedule, is[0]));
  const bool take_turns = rows_in_turn > 1;
  const std::vector<LoopRef> turns =
      take_turns ? schedule.split(is[0], {std::nullopt, rows_in_turn}) : std::vector<LoopRef>{is[0]};
  std::vector<LoopRef> tiles_of_output = {turns[0], js[0]};
  if (take_turns) tiles_of_output.push_back(turns[1]);
  const std::vector<LoopRef> blocks = loops_of_blocks(schedule, block, analysis, matrices.product, tiles_of_output);
  std::vector<LoopRef> order = blocks;
  order.insert(order.end(), {ks[0], is[1], js[1], is[2], js[2], ks[1]});
  schedule.reorder(order);
  const LoopRef outer = schedule.fuse(blocks);

  const BlockRef out = keep_in_fragment(schedule, block, outer, matrices);
  std::vector<BlockRef> stages;
  for (const size_t operand : {0, 1}) stages.push_back(stage_at(schedule, block, matrices, operand, ks[0]));
  const BlockRef init = schedule.decompose_reduction(block, ks[0]);

  schedule.bind(schedule.fuse({is[1], js[1]}), ThreadAxis::thread_z);
  schedule.tensorize(is[2], by.instruction);
  std::vector<LoopRef> begin = loops_below(schedule, init, outer);  // warps of rows and columns, rows, columns
  check(begin.size() == 4, "schedule_on_tensor_cores: the init has the loops of the tile");
  schedule.reorder({begin[0], begin[2], begin[1], begin[3]});
  bind_sums(schedule, schedule.fuse({begin[0], begin[2]}), schedule.fuse({begin[1], begin[3]}), tile, own_columns);
  const int64_t bytes = (tile.m + tile.n) * tile.k * analysis.reads[0].buffer->dtype.bytes();
  const int64_t own_blocks = divide_up(extent_of(schedule, outer), target.threads);
  const int64_t at_once = by.is_of_group ? std::min(blocks_at_once(tile, by.rates), own_blocks) : 2;
  constexpr int64_t counters = 1024;  // of the bytes of tiles, beside these
  const int64_t room = target.shared_bytes - (by.is_of_group ? counters : 0);
  const int64_t stages_of_k = decide_stages(schedule, extent_of(schedule, ks[0]), bytes, at_once, room);
  const bool may_copy_tiles = by.is_of_group && stages_of_k >= 2 && decide_tile_copies(schedule);
  bool are_tiles = may_copy_tiles;
  for (const size_t operand : {0, 1}) {
    if (may_copy_tiles && copy_as_tile(schedule, stages[operand], ks[0])) continue;
    are_tiles = false;
    deal_out_pieces(schedule, stages[operand], ks[0], {tile.warps(), lanes_y, lanes_x},
                    matrices.has_near_rows[operand]);
  }
  const auto within_tile = [&](size_t dimension) {
    return loops_of(schedule, out, schedule.node(out).iters[dimension].var).back();
  };
  bind_sums(schedule, within_tile(at_i), within_tile(at_j), tile, own_columns);
  if (stages_of_k >= 2) schedule.pipeline(ks[0], stages_of_k);
  LoopRef of_blocks = outer;
  if (are_tiles && decide_copying_warp(schedule, analysis.reads[0].buffer->dtype)) {
    schedule.annotate(ks[0], copying_warp_attribute, stages_of_k);
    const int64_t own_tiles = is_open(schedule, outer)
                                  ? 1
                                  : decide_tiles_of_block(schedule, extent_of(schedule, outer), target.threads,
                                                          blocks_at_once(tile, by.rates));
    if (own_tiles > 1) {
      const std::vector<LoopRef> shared_out = schedule.split(outer, {own_tiles, std::nullopt});
      of_blocks = shared_out[1];
      schedule.reorder({shared_out[1], shared_out[0]});
    }
  }
  schedule.bind(of_blocks, ThreadAxis::block_x);
  return true;
}

// The block that multiplies: where k is summed up in parts, one that makes these, and the given one adds them up.
BlockRef sum_in_parts(Schedule& schedule, const BlockRef& block, bool may_be_of_group, const Target& target) {
  const MatrixAxes axes = find_matrix_axes(schedule, block);
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (axes.reduce.empty() || axes.rows.empty() || axes.columns.empty()) return block;
  ProductSize size = usual_size(analysis, axes.rows, axes.columns, axes.reduce, axes.others);
  size.k = steps_of(analysis, size.k);
  const Var& outer = axes.reduce.front();
  const auto divides = [&](int64_t parts) {
    const int64_t extent = analysis.extent(outer);
    return !analysis.is_open(outer) && extent % parts == 0 &&
           (axes.reduce.size() > 1 || extent / parts % elements_of(analysis, deepest_step) == 0);
  };
  const std::vector<Multiplier> multipliers =
      multipliers_of(analysis, analysis.reads[0].uses(axes.rows[0]) ? 0 : 1, may_be_of_group, target);
  const int64_t parts = decide_parts(schedule, size, multipliers, divides, target);
  if (parts == 1) return block;
  const size_t at_columns = position_of(analysis, axes.columns.front());
  const BlockRef product =
      schedule.rfactor(schedule.split(loop_of(schedule, block, outer), {parts, std::nullopt})[0], 0);
  if (axes.columns.size() == 1) put_dimension_last(schedule, written_by(schedule, product), at_columns + 1);
  schedule_reduction(schedule, block, target);
  return product;
}

}  // namespace

bool schedule_on_tensor_cores(Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (multipliers_of(analysis, 0, false, target).empty()) return false;
  open_window(schedule, block, elements_of(analysis, deepest_step));
  const bool may_be_of_group = has_words(schedule, block);
  return schedule_product(schedule, sum_in_parts(schedule, block, may_be_of_group, target), may_be_of_group, target);
}

}  // namespace tw::cuda
