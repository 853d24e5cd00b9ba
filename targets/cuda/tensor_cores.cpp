// Products of 16-bit floats on tensor cores:
//
//   for others, io, jo block.x {
//     for w thread.z, y thread.y, x thread.x { Cr[i, j] = 0 }
//     for ko pipelined {
//       As = A[tile], Bs = B[tile]                    by all threads, 16 bytes each
//       for w thread.z { Cr[i, j] += As[i, k] * Bs[j, k] }      mma: a warp as one
//     }
//     for w thread.z, y thread.y, x thread.x { C[i, j] = epilogue(Cr[i, j]) }
//   }
//
// Warps share the block's tile out among them, in rows and columns.  Cr is a fragment (fragments.h): what is done to it
// element by element is done in registers.
#include <algorithm>
#include <array>
#include <span>

#include "targets/analysis/block_relations.h"
#include "targets/analysis/loop_strides.h"
#include "targets/cuda/default_schedule.h"
#include "targets/cuda/fragments.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/match.h"

namespace tw::cuda {
namespace {

using namespace analysis;

struct WarpTile {
  int64_t m, n, k;           // of a block
  int64_t warps_m, warps_n;  // that share it out
  int64_t rows() const { return m / warps_m; }
  int64_t columns() const { return n / warps_n; }
  int64_t warps() const { return warps_m * warps_n; }
};

constexpr WarpTile tiles[] = {
    {128, 128, 32, 2, 2}, {128, 64, 32, 2, 2}, {64, 128, 32, 2, 2}, {64, 64, 32, 2, 2},
    {32, 64, 32, 1, 2},   {64, 32, 32, 2, 1},  {32, 32, 32, 1, 1},  {16, 64, 32, 1, 2},
    {16, 32, 32, 1, 1},   {16, 16, 32, 1, 1},  {16, 16, 16, 1, 1},
};
// Which the prediction below does not tell from others: for who measures.
constexpr WarpTile further_tiles[] = {
    {128, 256, 32, 2, 4}, {256, 128, 32, 4, 2}, {64, 256, 32, 1, 4}, {128, 128, 32, 2, 4}, {128, 128, 64, 2, 2},
    {128, 64, 64, 2, 2},  {64, 128, 64, 2, 2},  {64, 64, 64, 2, 2},  {128, 64, 32, 4, 1},
};

const char* instruction_of(const BlockAnalysis& analysis) {
  const DType a = analysis.reads[0].buffer->dtype, b = analysis.reads[1].buffer->dtype;
  if (a != b || analysis.write.buffer->dtype != f32) return nullptr;
  return a == bf16 ? "mma_bf16" : a == f16 ? "mma_f16" : nullptr;
}

// Each of the iterations is an index by itself, or none.
bool is_plain(const Access& access, const std::vector<Var>& iterations) {
  return std::all_of(access.indices.begin(), access.indices.end(), [&](const Expr& index) {
    return index.kind() == NodeKind::Var ||
           std::none_of(iterations.begin(), iterations.end(), [&](const Var& var) { return uses_var(index, var); });
  });
}

// The tile with which the device is predicted to finish first.  Cycles of a step of 16 along k, of a multiprocessor
// that has several blocks, as measured on an H200: sums are made at a rate, and each warp reads its operands.
WarpTile decide_warp_tile(Schedule& schedule, int64_t m, int64_t n, int64_t k, int64_t batch, const Target& target) {
  constexpr double sums_a_cycle = 105, reading = 0.31, step_cycles = 15, launch_cycles = 1000, alone = 1.5;
  const auto predict = [&](const WarpTile& tile) {
    const int64_t blocks = batch * divide_up(m, tile.m) * divide_up(n, tile.n);
    const int64_t rounds = divide_up(blocks, target.threads);
    const auto sums = static_cast<double>(tile.m * tile.n);
    const auto operands = static_cast<double>(tile.warps() * (tile.rows() + tile.columns()));
    const double step = sums / sums_a_cycle + reading * operands + step_cycles;
    const auto steps = static_cast<double>(divide_up(k, tile.k) * tile.k / mma_k);
    // Nobody hides what a block that is alone waits for.
    return launch_cycles + steps * step * (rounds == 1 ? alone : static_cast<double>(rounds));
  };
  const auto value_of = [](const WarpTile& tile) { return Choice{tile.m, tile.n, tile.k, tile.warps_m, tile.warps_n}; };
  // Of a tile twice as large as the product most is zeros.
  const auto is_sensible = [&](const WarpTile& tile) {
    return tile.m < 2 * std::max(m, mma_m) && tile.n < 2 * std::max(n, 2 * mma_n);
  };
  const WarpTile best = *std::ranges::min_element(tiles, {}, predict);
  std::vector<Candidate> candidates;
  for (const std::span<const WarpTile> some :
       {std::span<const WarpTile>(tiles), std::span<const WarpTile>(further_tiles)})
    for (const WarpTile& tile : some)
      if (is_sensible(tile) || value_of(tile) == value_of(best)) candidates.push_back({value_of(tile), predict(tile)});
  const Choice tile = schedule.decide("warp_tile", candidates, value_of(best));
  return {tile[0], tile[1], tile[2], tile[3], tile[4]};
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

// How many steps along k have their operands in shared memory: two blocks are to find room on a multiprocessor.
int64_t decide_stages(Schedule& schedule, int64_t steps, int64_t bytes, const Target& target) {
  constexpr int64_t enough = 4, most = 6;
  std::vector<Candidate> candidates;
  for (int64_t stages = 1; stages <= std::min({most, target.shared_bytes / bytes, steps}); ++stages)
    candidates.push_back({{stages}});
  const int64_t analytic = std::max<int64_t>(1, std::min({enough, target.shared_bytes / 2 / bytes, steps}));
  return schedule.decide("stages", candidates, {analytic})[0];
}

struct Padded {
  std::array<std::string, 2> operands;            // the buffers that the block multiplies
  std::array<std::optional<BlockRef>, 2> copies;  // …with zeros around them
  std::optional<BlockRef> out;                    // what drops the sums beyond the result, where there are some
};

// Tiles divide the product then: copies of operands have zeros around them, and sums beyond the result's are dropped.
Padded pad_to_tiles(Schedule& schedule, const BlockRef& block, const std::vector<std::pair<Var, int64_t>>& sizes) {
  std::vector<int64_t> multiples;
  for (const IterVar& iter : schedule.node(block).iters) {
    const auto size = std::find_if(sizes.begin(), sizes.end(), [&](const auto& s) { return s.first == iter.var; });
    multiples.push_back(size == sizes.end() ? 1 : size->second);
  }
  const auto epilogue = find_epilogue(schedule, block);
  const Buffer result = written_by(schedule, block);
  const BlockAnalysis plain = analyse(schedule.node(block));
  schedule.pad_operands(block, multiples);
  const BlockAnalysis padded = analyse(schedule.node(block));
  Padded found;
  for (size_t i = 0; i < found.operands.size(); ++i) {
    const Buffer& operand = padded.reads[i].buffer;
    found.operands[i] = operand->name;
    if (!(operand == plain.reads[i].buffer)) found.copies[i] = writer_of(schedule, operand);
  }
  if (padded.write.buffer == result) return found;
  found.out = writer_of(schedule, result).value();
  if (epilogue) {
    schedule.compute_inline(*found.out);
    found.out = epilogue;
  }
  return found;
}

// The sums stay in a fragment while the blocks of `outer` make them; returns what writes them to memory.
BlockRef keep_in_fragment(Schedule& schedule, const BlockRef& block, const LoopRef& outer, const Padded& padded) {
  if (!padded.out) return keep_in_scope(schedule, block, outer, Scope::fragment);
  schedule.reverse_compute_at(*padded.out, outer);
  schedule.set_scope(written_by(schedule, block)->name, Scope::fragment);
  return *padded.out;
}

// What the iterations within a loop read of an operand, in shared memory: its copy with zeros around it, or one.
BlockRef stage_at(Schedule& schedule, const BlockRef& block, const Padded& padded, size_t operand,
                  const LoopRef& loop) {
  const std::string& name = padded.operands[operand];
  const auto& zeros_around = padded.copies[operand];
  const BlockRef copy = zeros_around ? *zeros_around : schedule.cache_read(block, name, Scope::shared);
  schedule.compute_at(copy, loop);
  if (zeros_around) schedule.set_scope(name, Scope::shared);
  return copy;
}

// A tile's copy into shared memory, in pieces of one access a thread.
void deal_out_pieces(Schedule& schedule, const BlockRef& copy, const LoopRef& outer, int64_t warps) {
  const int64_t piece = piece_bytes / written_by(schedule, copy)->dtype.bytes();
  std::vector<LoopRef> loops = loops_below(schedule, copy, outer);
  const std::vector<LoopRef> last = schedule.split(loops.back(), {std::nullopt, piece});
  schedule.vectorize(last[1]);
  loops.back() = last[0];
  const LoopRef pieces = loops.size() > 1 ? schedule.fuse(loops) : loops[0];
  const std::vector<LoopRef> shared = schedule.split(pieces, {std::nullopt, warps, lanes_y, lanes_x});
  schedule.reorder({shared[1], shared[2], shared[3], shared[0]});
  schedule.bind(shared[1], ThreadAxis::thread_z);
  schedule.bind(shared[2], ThreadAxis::thread_y);
  schedule.bind(shared[3], ThreadAxis::thread_x);
  schedule.unroll(shared[0]);
}

// The loops over a block's tile of sums, as the threads that hold them.
void bind_sums(Schedule& schedule, const LoopRef& i, const LoopRef& j, const WarpTile& tile) {
  const std::vector<LoopRef> rows = schedule.split(i, {tile.warps_m, tile.rows() / mma_m, mma_m / lanes_y, lanes_y});
  const std::vector<LoopRef> columns =
      schedule.split(j, {tile.warps_n, tile.columns() / mma_n, lanes_x, mma_n / lanes_x});
  schedule.reorder({rows[0], columns[0], rows[3], columns[2], rows[1], rows[2], columns[1], columns[3]});
  schedule.bind(schedule.fuse({rows[0], columns[0]}), ThreadAxis::thread_z);
  schedule.bind(rows[3], ThreadAxis::thread_y);
  schedule.bind(columns[2], ThreadAxis::thread_x);
  schedule.unroll(rows[1]);
  schedule.unroll(rows[2]);
  schedule.unroll(columns[1]);
  schedule.vectorize(columns[3]);
}

}  // namespace

bool schedule_on_tensor_cores(Schedule& schedule, const BlockRef& block, const Target& target) {
  if (target.tensor_core_rate == 0) return false;
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const char* instruction = instruction_of(analysis);
  const auto product = instruction ? find_product(schedule, block, analysis) : std::nullopt;
  if (!product || analysis.reduce().size() != 1) return false;
  const auto& [i, j, at_i, at_j] = *product;
  const Var k = analysis.reduce()[0];
  constexpr int64_t fewest = 4;  // rows or columns that are worth a fragment
  if (std::min(analysis.extent(i), analysis.extent(j)) < fewest) return false;
  if (analysis.is_open(i) || analysis.is_open(j) || analysis.is_open(k)) return false;
  for (const Access& read : analysis.reads) {
    const Var& own = read.uses(i) ? i : j;
    if (read.uses(i) == read.uses(j) || !is_plain(read, {i, j, k})) return false;
    if (unit_stride(read, own, analysis.iters, 1) != 1 && unit_stride(read, k, analysis.iters, 1) != 1) return false;
  }
  int64_t batch = 1;
  for (const Var& var : analysis.spatial())
    if (!(var == i) && !(var == j)) batch *= analysis.extent(var);
  const WarpTile tile =
      decide_warp_tile(schedule, analysis.extent(i), analysis.extent(j), analysis.extent(k), batch, target);
  const Padded padded = pad_to_tiles(schedule, block, {{i, tile.m}, {j, tile.n}, {k, tile.k}});

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
  const std::vector<LoopRef> blocks = loops_of_blocks(schedule, block, analysis, *product, tiles_of_output);
  std::vector<LoopRef> order = blocks;
  order.insert(order.end(), {ks[0], is[1], js[1], is[2], js[2], ks[1]});
  schedule.reorder(order);
  const LoopRef outer = schedule.fuse(blocks);

  const BlockRef out = keep_in_fragment(schedule, block, outer, padded);
  std::vector<BlockRef> stages;
  for (const size_t operand : {0, 1}) stages.push_back(stage_at(schedule, block, padded, operand, ks[0]));
  const BlockRef init = schedule.decompose_reduction(block, ks[0]);

  schedule.bind(outer, ThreadAxis::block_x);
  schedule.bind(schedule.fuse({is[1], js[1]}), ThreadAxis::thread_z);
  schedule.tensorize(is[2], instruction);
  std::vector<LoopRef> begin = loops_below(schedule, init, outer);  // warps of rows and columns, rows, columns
  check(begin.size() == 4, "schedule_on_tensor_cores: the init has the loops of the tile");
  schedule.reorder({begin[0], begin[2], begin[1], begin[3]});
  bind_sums(schedule, schedule.fuse({begin[0], begin[2]}), schedule.fuse({begin[1], begin[3]}), tile);
  for (const BlockRef& copy : stages) deal_out_pieces(schedule, copy, ks[0], tile.warps());
  const auto within_tile = [&](size_t dimension) {
    return loops_of(schedule, out, schedule.node(out).iters[dimension].var).back();
  };
  bind_sums(schedule, within_tile(at_i), within_tile(at_j), tile);
  const int64_t bytes = (tile.m + tile.n) * tile.k * analysis.reads[0].buffer->dtype.bytes();
  const int64_t stages_of_k = decide_stages(schedule, extent_of(schedule, ks[0]), bytes, target);
  if (stages_of_k >= 2) schedule.pipeline(ks[0], stages_of_k);
  return true;
}

}  // namespace tw::cuda
