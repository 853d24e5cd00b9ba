// C[…, i, j] += A[…, i, k] * B[…, k, j]: matrix products and convolutions of every kind that multiplies one operand
// without the vector axis by one with it.
//
//   for panel, rows … parallel {            panels of B outermost: a worker streams its weights once
//     for k … {
//       for i in 0..R unrolled { for v in 0..V unrolled { for lane vectorized {   the register tile
//         Cr[i, v·L + lane] += A[…] * B_packed[panel, k, v·L + lane]
//     }}}}
//     C[…] = epilogue(Cr)                   still in registers
//   }
//
// Weights are stored in panels.  Another B is packed by the worker that uses a panel, or by a pass before; A, where it
// is contiguous along the rows instead of k, by blocks of rows, which are outermost then (operand_packing.h).
//
// Where what is made of C takes elements of several equal parts of it along j (gates, the two halves of a GLU), the
// tile has as many vectors of each part, which lie beside each other in a panel.
//
// A tile's rows are of A's innermost axis, or several whole rows of it where they are short (maps of 7 × 7).  Where C
// is contiguous along the rows instead of j, the tile is transposed on its way out (contraction_output.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/ndarray.h"
#include "targets/analysis/templates.h"
#include "targets/cpu/contraction_output.h"
#include "targets/cpu/default_schedule.h"
#include "targets/cpu/operand_packing.h"
#include "targets/cpu/row_blocks.h"
#include "tensor_ir/passes/prefetch.h"
#include "tensor_ir/passes/skip_iterations.h"

namespace tw::cpu {
namespace {

struct FmaContraction : Contraction {
  int lanes = 1;
  int64_t n_vectors = 1;
  RegisterTile tile;             // its rows are along the innermost of A's…
  int64_t tile_around = 1;       // …so many times, along the axis around it
  bool is_scattered = false;     // each row of A is contiguous along k, and rows lie apart
  bool is_memory_bound = false;  // B comes from memory, and takes the time
  std::vector<Var> blocked;      // axes of k that A stores in blocks: two loops, so that addresses advance by constants
  size_t skipped = 0;            // so many axes of k come first, those of a window: what is padding there is left out
  int64_t rows_together = 0;     // of a block whose A is packed (operand_packing.h); 0: A stays as it is
  Packing packing = Packing::none;

  bool packs_a() const { return rows_together > 0; }
  bool is_packed_at_use() const { return packing == Packing::panel || packs_a(); }
  int64_t tile_rows() const { return tile.rows * tile_around; }
  int64_t panel() const { return int64_t{tile.vectors} * lanes; }
  int64_t panel_of_part() const { return panel() / n_parts(); }
  int64_t panels() const { return divide_up(n_vectors, tile.vectors); }
  bool is_blocked(const Var& v) const { return std::find(blocked.begin(), blocked.end(), v) != blocked.end(); }
};

// Cycles of one core with the best of tiles.
double predict(const Contraction& c, int lanes, const Target& target) {
  constexpr double cycles_to_transpose = 7;  // a vector
  const BlockAnalysis& analysis = c.analysis;
  const int64_t m = c.m(), n_vectors = divide_up(analysis.extent(c.vector_axis), lanes), k = c.k_count();
  // Of an open axis as many, be it of rows or of vectors.
  const int64_t inner = c.has_rows() && analysis.is_open(c.rows.back()) ? m : 1;
  const auto times =
      static_cast<double>(count_iterations(analysis, c.batch) * count_iterations(analysis, c.rows) * inner);
  const double product = tile_cost(choose_tile(m, n_vectors, k, target), m, n_vectors, k, target);
  const double across = c.is_across ? cycles_to_transpose * static_cast<double>(n_vectors) : 0;
  return times * (product / static_cast<double>(m) + across);
}

std::optional<Contraction> match_fma(const Schedule& schedule, const BlockRef& block, int lanes, const Target& target) {
  const auto along = match_contraction(schedule, block, lanes), across = match_across(schedule, block);
  if (!along || !across) return along ? along : across;
  // Vectors of a strided operand would be gathered.
  if (unit_stride(along->read_b(), along->vector_axis, along->analysis.iters, lanes) != 1 &&
      !along->read_b().buffer->is_constant)
    return across;
  return predict(*across, lanes, target) < predict(*along, lanes, target) ? across : along;
}

// The sizes as the register tile sees them, and the tile.
void choose_sizes(Schedule& schedule, FmaContraction& c, const Target& target) {
  const BlockAnalysis& analysis = c.analysis;
  const int64_t m = c.m(), k_count = c.k_count();
  c.n_vectors = c.n_parts() * divide_up(analysis.extent(c.vector_axis), c.lanes);
  const std::vector<Var> outer_rows(c.rows.begin(), c.rows.end() - (c.has_rows() ? 1 : 0));
  const int64_t outer_count = count_iterations(analysis, outer_rows);
  c.is_scattered = c.reduce.size() == 1 && unit_stride(c.read_a(), c.reduce[0], analysis.iters,
                                                       static_cast<int>(std::max<int64_t>(1, k_count))) == 1;
  Sweep sweep{outer_count, c.is_scattered ? outer_count * m * k_count * c.read_a().buffer->dtype.bytes() : 0};
  sweep.row_stride = row_stride(c);
  sweep.packs_panels = !c.read_b().buffer->is_constant;
  c.is_memory_bound = is_memory_bound(c.read_b().buffer, count_most_iterations(analysis, c.rows), target);
  const int64_t batches = count_iterations(analysis, c.batch);
  const auto around = axis_around_rows(c);
  const int64_t rows_around = around ? analysis.extent(*around) : 1;
  Product product{m, c.n_vectors, k_count, rows_around, sweep, batches, c.is_memory_bound};
  product.parts = c.n_parts();
  c.tile = decide_tile(schedule, product, target);
  if (c.tile.rows > m) c.tile_around = c.tile.rows / m, c.tile.rows = static_cast<int>(m);
}

std::vector<Var> find_blocked(const FmaContraction& c) {
  std::vector<Var> blocked;
  for (const Var& k : c.reduce) {
    const int64_t extent = c.analysis.extent(k);
    if (extent <= c.lanes || extent % c.lanes != 0) continue;
    if (!unit_stride(c.read_a(), k, c.analysis.iters, static_cast<int>(extent)) &&
        unit_stride(c.read_a(), k, c.analysis.iters, c.lanes))
      blocked.push_back(k);
  }
  return blocked;
}

// Axes of k along which a tile may read nothing but padding, which go outside of the others.
void choose_skipped(Schedule& schedule, const BlockRef& block, FmaContraction& c) {
  std::map<const ExprNode*, int64_t> together;
  if (const auto around = axis_around_rows(c)) together[around->get()] = c.tile_around;
  if (c.has_rows()) together[c.rows.back().get()] = c.tile.rows;
  const std::vector<Var> window = decide_skipped_window(schedule, block, together);
  const auto is_window = [&](const Var& k) { return std::find(window.begin(), window.end(), k) != window.end(); };
  c.skipped =
      static_cast<size_t>(std::stable_partition(c.reduce.begin(), c.reduce.end(), is_window) - c.reduce.begin());
}

struct PackedOperands {
  std::optional<BlockRef> a, b;  // copies that have no place yet
};

PackedOperands pack_operands(Schedule& schedule, const BlockRef& block, const FmaContraction& c, const Target& target) {
  PackedOperands packed;
  if (c.packing != Packing::none) {
    const IndexMap map = packing_map(c.read_b(), c, c.vector_axis, c.panel_of_part(), c.blocked, c.lanes);
    if (c.packing == Packing::constant)
      schedule.transform_layout(c.read_b().buffer->name, map);
    else
      packed.b =
          pack_copy(schedule, block, c.read_b(), c.packing == Packing::panel ? Scope::stack : Scope::global, map);
    if (c.packing == Packing::ahead) schedule_elementwise(schedule, *packed.b, target);
  }
  if (c.packs_a()) {
    const IndexMap map = packing_map(c.read_a(), c, c.rows.back(), c.tile.rows, {}, c.lanes);
    packed.a = pack_copy(schedule, block, c.read_a(), Scope::stack, map);
  }
  return packed;
}

struct ContractionLoops {
  std::vector<LoopRef> tasks;    // outside of the register tile
  size_t block_tasks = 0;        // the first ones, up to the blocks that are packed where they are used
  size_t panel_tasks = 0;        // the last ones, which use one panel
  std::vector<LoopRef> reduce;   // then k
  std::optional<LoopRef> steps;  // unrolled ones along k
  std::vector<LoopRef> rows;     // then the tile's rows
  std::optional<LoopRef> parts;  // and columns, of each part
  LoopRef vectors, lanes;

  // The innermost along k that is left when loops of one iteration are gone; nothing when none is.
  std::optional<LoopRef> innermost(const Schedule& schedule) const {
    const auto last = std::find_if(reduce.rbegin(), reduce.rend(),
                                   [&](const LoopRef& loop) { return extent_of(schedule, loop) > 1; });
    return last == reduce.rend() ? std::nullopt : std::optional(*last);
  }
};

// Steps of k an iteration: the loop's own instructions take the ports of multiply-adds, 3 % of them where four steps
// share them, and more in small tiles; but not where each step has an address of its own.
int64_t usual_steps(const FmaContraction& c, int64_t extent) {
  const Var& k = c.reduce.back();
  const bool is_linear = !c.blocked.empty() || unit_stride(c.read_a(), k, c.analysis.iters, static_cast<int>(extent));
  if (c.is_memory_bound || c.tile_rows() == 1 || extent <= 2 || !is_linear) return 1;
  return extent % 4 == 0 ? 4 : extent % 2 == 0 ? 2 : 1;
}

// The decision "k_unroll": steps along k of one iteration, in the innermost loop.
int64_t decide_k_unroll(Schedule& schedule, const FmaContraction& c, const LoopRef& k, const Target& target) {
  if (is_open(schedule, k)) return 1;
  const int64_t extent = extent_of(schedule, k), analytic = usual_steps(c, extent);
  const double step = std::max<double>(static_cast<double>(c.tile_rows()) * c.tile.vectors / target.fma_ports,
                                       static_cast<double>(target.fma_latency));
  std::vector<Candidate> candidates;
  for (const int64_t steps : {1, 2, 4, 8, 16}) {
    if (extent % steps != 0) continue;
    // What a loop takes for itself, of which most hides behind the arithmetic.
    candidates.push_back({{steps}, 1 + 0.4 / (step * static_cast<double>(steps))});
  }
  return schedule.decide("k_unroll", candidates, {analytic})[0];
}

ContractionLoops order_loops(Schedule& schedule, const BlockRef& block, const FmaContraction& c, const Target& target) {
  const auto loop_of = [&](const Var& v) { return loops_of(schedule, block, v).at(0); };
  ContractionLoops loops;
  std::vector<LoopRef> rows, k_inner;
  for (const Var& v : c.batch) loops.tasks.push_back(loop_of(v));
  const auto around = axis_around_rows(c);
  for (const Var& v : c.rows)
    if (!(v == c.rows.back()) && !(c.tile_around > 1 && v == *around)) rows.push_back(loop_of(v));
  for (const Var& v : c.reduce) {
    loops.reduce.push_back(loop_of(v));
    if (!c.is_blocked(v)) continue;
    const auto halves = schedule.split(loops.reduce.back(), {std::nullopt, c.lanes});
    loops.reduce.back() = halves[0];
    k_inner.push_back(halves[1]);
  }
  loops.reduce = in_order(loops.reduce, k_inner);
  if (const int64_t steps = decide_k_unroll(schedule, c, loops.reduce.back(), target); steps > 1) {
    const auto parts = schedule.split(loops.reduce.back(), {std::nullopt, steps});
    loops.reduce.back() = parts[0];
    loops.steps = parts[1];
  }
  if (c.parts.is_defined()) loops.parts = loop_of(c.parts);
  const auto j = schedule.split(loop_of(c.vector_axis), {std::nullopt, c.panel_of_part() / c.lanes, c.lanes});
  loops.vectors = j[1], loops.lanes = j[2];
  if (c.tile_around > 1) {
    const auto i = schedule.split(loop_of(*around), {std::nullopt, c.tile_around});
    rows.push_back(i[0]);
    loops.rows = {i[1], loop_of(c.rows.back())};
  } else if (c.has_rows()) {
    std::vector<std::optional<int64_t>> sizes{std::nullopt, c.tile.rows};
    const int64_t tiles = choose_tiles_of_block(c, sweep_rows(c, c.panels(), c.panel()), c.tile.rows, target);
    if (tiles > 1) sizes.insert(sizes.begin() + 1, tiles);
    const auto i = schedule.split(loop_of(c.rows.back()), sizes);
    if (tiles > 1) schedule.annotate(i[1], skip_iterations_attribute, int64_t{1});
    rows.insert(rows.end(), i.begin(), i.end() - 1);
    loops.rows = {i.back()};
  }
  if (c.packs_a()) {
    const size_t at = around ? static_cast<size_t>(std::find(c.rows.begin(), c.rows.end(), *around) - c.rows.begin())
                             : rows.size() - 1;
    loops.tasks.insert(loops.tasks.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(at));
    const auto blocks = schedule.split(rows[at], {std::nullopt, c.rows_together});
    loops.tasks.push_back(blocks[0]);
    rows[at] = blocks[1];
    rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(at));
  }
  loops.block_tasks = c.packs_a() ? loops.tasks.size() : loops.tasks.size() + 1;
  std::vector<LoopRef> outside;  // of the panels
  if (!c.is_packed_at_use()) {
    RowSweep sweep = sweep_rows(c, c.panels(), c.panel());
    sweep.is_a_streamed = c.is_scattered;
    outside = decide_row_blocks(schedule, c, sweep, rows, target);
  }
  loops.panel_tasks = rows.size();
  loops.tasks = in_order(loops.tasks, outside, j[0], rows);
  schedule.reorder(
      in_order(loops.tasks, loops.reduce, loops.steps, loops.rows, loops.parts, loops.vectors, loops.lanes));
  return loops;
}

bool has_partial_tile(const FmaContraction& c) {
  if (c.tile_around > 1) return c.analysis.extent(*axis_around_rows(c)) % c.tile_around != 0;
  return c.has_rows() && c.m() % c.tile.rows != 0;
}

// What is packed where it is used is so once for all tasks of a panel, or of a block of rows: these are one.
TileLoops fuse_tasks(Schedule& schedule, const FmaContraction& c, const ContractionLoops& loops, const Target& target) {
  const std::vector<LoopRef>& tasks = loops.tasks;
  if (!c.is_packed_at_use()) return fuse_outside(schedule, tasks, has_partial_tile(c), target);
  const auto fused = [&](auto first, auto last) { return as_one(schedule, {first, last}); };
  const LoopRef tile =
      c.packs_a() ? fused(tasks.end() - static_cast<std::ptrdiff_t>(loops.panel_tasks), tasks.end()) : tasks.back();
  return {fused(tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(loops.block_tasks)), tile};
}

// B comes from memory, or from the cache that all cores share, when a panel is read for the first time: while the tiles
// of one panel compute, the next one is on its way to the second cache, where both have to stay.  The decision
// "panel_prefetch": 0 not, 1 each tile asks for all of it, 2 for its part of it.
void prefetch_next_panel(Schedule& schedule, const BlockRef& block, const FmaContraction& c,
                         const ContractionLoops& loops, const PanelUse& use, const Target& target) {
  const bool is_panelled = c.packing == Packing::constant || c.packing == Packing::ahead;
  const bool is_open_k =
      std::any_of(c.reduce.begin(), c.reduce.end(), [&](const Var& v) { return c.analysis.is_open(v); });
  const int64_t k_count = c.k_count(), panel_bytes = k_count * c.panel() * c.read_b().buffer->dtype.bytes();
  const auto a_shape = const_shape(c.read_a().buffer);
  const int64_t a_bytes = a_shape ? element_count(*a_shape) * c.read_a().buffer->dtype.bytes() : target.l2.bytes;
  const int64_t beside = std::min(a_bytes, target.l2.bytes / 4);  // of A: more of it is a stream
  const int64_t rows = count_most_iterations(c.analysis, c.rows);
  if (!is_panelled || is_open_k || c.panels() < 2 || rows < 2 * c.tile_rows()) return;
  const auto inner = loops.innermost(schedule);
  if (!inner) return;
  // Where tiles are many, asking takes longer in all of them than one waits.
  constexpr int64_t most_tiles = 32;
  const bool fits = 2 * panel_bytes + beside <= target.l2.bytes * 3 / 4 && rows <= most_tiles * c.tile_rows();
  const double tile_cycles = static_cast<double>(k_count * c.tile_rows()) * c.tile.vectors / target.fma_ports;
  const double waits = std::max(0.0, static_cast<double>(panel_bytes) / target.core_memory_rate - tile_cycles);
  const int64_t tiles = use.tiles();
  std::vector<Candidate> candidates{{{0}, 1 + std::min(0.2, waits / (tile_cycles * static_cast<double>(tiles)))},
                                    {{1}, fits ? 1.02 : 1.05}};
  const Buffer panels = analyse(schedule.node(block)).reads[c.b].buffer;
  // A part costs a tile a line a few steps, which nothing was seen to lose by.
  const bool has_parts = tiles > 1 && k_count > 1 && c.batch.empty(), parts_fit = panel_bytes <= target.l2.bytes / 2;
  if (has_parts) candidates.push_back({{2}, parts_fit ? 1 : 1.05});
  const int64_t how = schedule.decide("panel_prefetch", candidates, {has_parts && parts_fit ? 2 : fits ? 1 : 0})[0];
  if (how == 1) prefetch_ahead(schedule, *inner, panels, panel_bytes);
  if (how == 2) prefetch_in_parts(schedule, use, panels, panel_bytes);
}

// What the tile's epilogue reads besides the sums comes while these are made: a residual is as large as the result.
void prefetch_epilogue(Schedule& schedule, const BlockRef& out, const LoopRef& tile, const Target& target) {
  for (const Access& read : analyse(schedule.node(out)).reads) {
    if (!schedule.func().is_parameter(read.buffer) || read.buffer->is_constant) continue;
    if (least_bytes(read.buffer) >= target.l2.bytes / 4) prefetch_ahead(schedule, tile, read.buffer, 0);
  }
}

bool schedule_tiles(Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const int lanes = target.lanes(analysis.write.buffer.is_defined() ? analysis.write.buffer->dtype : f32);
  const auto matched = match_fma(schedule, block, lanes, target);
  if (!matched) return false;
  FmaContraction c;
  static_cast<Contraction&>(c) = *matched;
  c.lanes = lanes;
  choose_sizes(schedule, c, target);
  choose_skipped(schedule, block, c);
  c.blocked = find_blocked(c);
  c.rows_together = c.tile_around > 1 ? 0 : decide_row_packing(schedule, block, c, c.tile, c.n_vectors, target);
  const auto packing = choose_packing(schedule, c, c.tile, c.n_vectors, lanes, c.packs_a(), target);
  if (!packing) return false;
  c.packing = *packing;

  const PackedOperands packed = pack_operands(schedule, block, c, target);
  const ContractionLoops loops = order_loops(schedule, block, c, target);
  const std::vector<LoopRef> rows(loops.tasks.end() - static_cast<std::ptrdiff_t>(loops.panel_tasks),
                                  loops.tasks.end());
  PanelUse use{{}, extents_of_rows(schedule, rows), loops.reduce};
  if (c.packs_a()) use.extents = {1, use.tiles()};
  use.outside = fuse_tasks(schedule, c, loops, target);
  use.count_usual_tiles(schedule, c.tile.rows);
  const auto& [parallel, tile_loop] = use.outside;

  const std::vector<BlockRef> out = write_tile(schedule, block, c, tile_loop, loops.reduce.front(), lanes);
  if (c.skipped > 0) schedule.skip_padding(block, loops.reduce[c.skipped - 1]);
  if (!c.is_across && c.has_rows())
    for (const BlockRef& last : out) prefetch_epilogue(schedule, last, tile_loop, target);
  if (c.is_memory_bound) {
    prefetch_from_memory(schedule, analyse(schedule.node(block)).reads[c.b], count_most_iterations(c.analysis, c.rows),
                         loops.innermost(schedule).value_or(loops.reduce.back()), target);
  } else {
    prefetch_next_panel(schedule, block, c, loops, use, target);
  }
  if (loops.steps) schedule.unroll(*loops.steps);
  for (const LoopRef& loop : loops.rows) schedule.unroll(loop);
  if (loops.parts) schedule.unroll(*loops.parts);
  schedule.unroll(loops.vectors);
  schedule.vectorize(loops.lanes);
  if (c.packing == Packing::panel)
    pack_at(schedule, *packed.b, parallel, dimension_of(c.read_b(), c.vector_axis), lanes);
  if (c.packs_a()) pack_at(schedule, *packed.a, parallel, dimension_of(c.read_a(), c.rows.back()), c.tile.rows);
  share_out(schedule, parallel);
  return true;
}

// The decision "join_parts": whether a tile has vectors of each of the equal parts along the columns of weights, so
// that what is made of the parts is made in registers; otherwise another pass makes it.  Tiles of many parts are less
// even.
std::optional<EqualParts> decide_parts(Schedule& schedule, const BlockRef& block, const Target& target) {
  const auto parts = find_equal_parts(schedule, block);
  if (!parts) return std::nullopt;
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const Var axis = analysis.spatial().at(parts->axis);
  const auto c = contraction_along(analysis, axis);
  if (!c || c->is_grouped() || !is_weight(schedule, c->read_b()) || !has_plain_indices(c->read_b()))
    return std::nullopt;
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  const int64_t m = c->m(), k = c->k_count(), columns = analysis.extent(axis), count = columns / parts->extent;
  const auto product = [&](int64_t n_vectors, int64_t together) {
    std::vector<RegisterTile> tiles = tiles_that_fit(m, n_vectors, target);
    std::erase_if(tiles, [&](const RegisterTile& tile) { return tile.vectors % together != 0; });
    double least = std::numeric_limits<double>::infinity();
    for (const RegisterTile& tile : tiles) least = std::min(least, tile_cost(tile, m, n_vectors, k, target));
    return least;
  };
  const double joined = product(count * divide_up(parts->extent, lanes), count);
  if (!std::isfinite(joined)) return std::nullopt;
  // The other pass waits for this one, and reads what it has written.
  constexpr double cycles_to_wait = 1000, bytes_a_cycle = 32;
  const bool is_open = c->has_rows() && analysis.is_open(c->rows.back());
  const double rows = is_open ? 1 : static_cast<double>(count_iterations(analysis, c->rows)) / static_cast<double>(m);
  const double times = rows * static_cast<double>(count_iterations(analysis, c->batch));
  const double moved = 2.0 * static_cast<double>(m * columns * analysis.write.buffer->dtype.bytes());
  const double together = times * joined,
               apart = times * (product(divide_up(columns, lanes), 1) + moved / bytes_a_cycle) + cycles_to_wait;
  const Choice analytic{
      together <= apart || is_memory_bound(c->read_b().buffer, count_most_iterations(analysis, c->rows), target) ? 1
                                                                                                                 : 0};
  const bool is_joined = schedule.decide("join_parts", {{{0}, apart}, {{1}, together}}, analytic)[0] == 1;
  return is_joined ? parts : std::nullopt;
}

}  // namespace

bool schedule_contraction(Schedule& schedule, const BlockRef& block, const Target& target) {
  const auto parts = decide_parts(schedule, block, target);
  const auto of_parts = [&](Schedule& separated) {
    separate_parts(separated, block, *parts);
    return schedule_tiles(separated, block, target);
  };
  return (parts && apply_template(schedule, of_parts)) || schedule_tiles(schedule, block, target);
}

}  // namespace tw::cpu
