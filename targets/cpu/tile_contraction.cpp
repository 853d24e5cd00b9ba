// A contraction of small elements on the target's unit for products of tiles.
//
//   for panel, rows … parallel {
//     alloc Cr: f32[…, R·16] in register         one tile for each i and j
//     Cr = 0                                     tile_zero
//     for k … {
//       for i in 0..I unrolled { for j in 0..J unrolled {
//         for m in 0..R tensorized { for n in 0..16 { for l in 0..K { for t in 0..g {        tile_dot
//           Cr[i, j, m, n] += A[… i·R + m, k·K·g + l·g + t] * B_packed[panel, k, j, l, n, t]
//     }}}}}}}
//     S = Cr                                     tile_store: to memory that stays in the first cache
//     C[…] = epilogue(S)
//   }
//
// Rows of A are read as they lie in memory.  B is packed: the words of one tile are 1 KiB without gaps, and those that
// a step multiplies stand one after the other.  A last tile of rows is a smaller one; the last columns are computed
// whole and left out when C is written.
#include <algorithm>

#include "targets/cpu/contraction_output.h"
#include "targets/cpu/default_schedule.h"
#include "targets/cpu/operand_packing.h"
#include "targets/cpu/row_blocks.h"
#include "targets/cpu/tile_model.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/text/printer.h"

namespace tw::cpu {
namespace {

struct TileUnitContraction : Contraction {
  const TensorInstruction* product = nullptr;
  Words words;
  int64_t k_step = 0;  // elements of k that a product takes
  std::string suffix;  // of tile_zero and tile_store

  int64_t g() const { return product->extent; }
  std::vector<int64_t> steps() const { return {k_step, g()}; }  // along k
};

// What a task computes: tiles of `rows` rows and all columns of the unit.
struct TileBlock {
  int rows = 0;
  int across_rows = 1, across_outer = 1;  // tiles along the innermost axis of rows, and along the one around it
  int columns = 1;                        // tiles along the vector axis
  int count() const { return across_rows * across_outer * columns; }
};

const TensorInstruction* product_for(const Contraction& c, const TileUnit& unit) {
  for (const Intrinsic intrinsic : unit.products) {
    const TensorInstruction& i = *find_tensor_instruction(to_text(intrinsic));
    const auto& operands = i.description.buffers;
    if (operands[0]->dtype == c.read_a().buffer->dtype && operands[1]->dtype == c.read_b().buffer->dtype &&
        operands[2]->dtype == c.analysis.write.buffer->dtype)
      return &i;
  }
  return nullptr;
}

// The most words that a product can take so that all products of a granule take as many.
int64_t step_of(int64_t granule, int64_t g, const TileUnit& unit) {
  const int64_t words = granule / g;
  for (int64_t taken = std::min<int64_t>(words, unit.rows); taken >= 2; --taken)
    if (words % taken == 0) return taken * g;
  return 0;
}

std::optional<TileUnitContraction> match_tiles(const Schedule& schedule, const BlockRef& block, const Target& target) {
  const TileUnit& unit = target.tiles;
  if (unit.registers == 0) return std::nullopt;
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (analysis.block_class != BlockClass::contraction) return std::nullopt;
  TileUnitContraction found;
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  const auto has_words = [&](const Contraction& c) {
    if (c.is_grouped() && c.group % (unit.row_bytes / 4) != 0) return false;
    found.product = product_for(c, unit);
    const auto words = found.product ? find_words(c, found.product->extent, lanes) : std::nullopt;
    if (!words || !has_plain_indices(c.read_b())) return false;
    found.words = *words;
    found.k_step = step_of(words->granule, found.product->extent, unit);
    return found.k_step > 0;
  };
  auto matched = match_contraction(schedule, block, lanes, has_words);
  if (!matched) matched = match_across(schedule, block, has_words);
  if (!matched || !matched->has_rows()) return std::nullopt;
  static_cast<Contraction&>(found) = *matched;
  found.suffix = analysis.write.buffer->dtype == f32 ? "_f32" : "_i32";
  return found;
}

// What the blocks are cut from: `batches` products of m × n tiles of columns by `steps` along k, in `outer` rows of m.
struct TiledProduct {
  int64_t m = 1, outer = 1, n_tiles = 1, steps = 1, batches = 1;
  bool is_group = false;  // blocks divide the tiles of columns: a batch ends with them
};

// Cycles of one core for all of it.  Products that add to one tile wait for each other, and B's words come from the
// second cache where all of k does not fit the first one, at two thirds of its rate, since nothing asks for them ahead;
// A's are used for several panels or window positions.
double predict(const TileBlock& b, const TiledProduct& p, const Target& target) {
  const TileUnit& unit = target.tiles;
  const double products = static_cast<double>(b.count()) * b.rows;
  const double rows = static_cast<double>(b.across_rows) * b.across_outer * b.rows;
  const double loads = unit.load_cycles * (b.columns + rows / unit.rows);
  const double words = static_cast<double>(b.columns) * unit.rows * unit.row_bytes;
  const double transfer =
      words * static_cast<double>(p.steps) > 0.5 * target.l1.bytes ? words / (target.l2.rate * 2 / 3) : 0;
  const double step = std::max({products, loads, static_cast<double>(unit.product_latency + b.rows), transfer});
  const double around = 60 + 4.0 * products;  // zeros, stores, the epilogue
  const int64_t blocks = p.batches * divide_up(p.m, int64_t{b.rows} * b.across_rows) *
                         divide_up(p.outer, b.across_outer) * divide_up(p.n_tiles, b.columns);
  return static_cast<double>(blocks) * (static_cast<double>(p.steps) * step + around);
}

// The decision "tiles": how many along the rows, along the axis around them, and along the columns.
TileBlock decide_block(Schedule& schedule, const TiledProduct& p, const Target& target) {
  const TileUnit& unit = target.tiles;
  const int64_t along = divide_up(p.m, unit.rows);
  std::vector<Candidate> candidates;
  TileBlock b;
  b.rows = static_cast<int>(divide_up(p.m, along));
  for (b.across_rows = 1; b.across_rows <= std::min<int64_t>(along, 4); ++b.across_rows) {
    for (b.across_outer = 1; b.across_outer <= std::min<int64_t>(p.outer, 4); ++b.across_outer) {
      for (b.columns = 1; b.columns <= std::min<int64_t>(p.n_tiles, 4); ++b.columns) {
        if (2 * b.count() > unit.registers) continue;  // the others hold operands
        if (p.is_group && p.n_tiles % b.columns != 0) continue;
        candidates.push_back({{b.across_rows, b.across_outer, b.columns}, predict(b, p, target)});
      }
    }
  }
  const Choice analytic = std::ranges::min_element(candidates, {}, &Candidate::cost)->value;
  const Choice decided = schedule.decide("tiles", candidates, analytic);
  b.across_rows = static_cast<int>(decided[0]), b.across_outer = static_cast<int>(decided[1]);
  b.columns = static_cast<int>(decided[2]);
  return b;
}

// A layout of a buffer with the vector axis in whole blocks of tiles: dimension `axis` j as j // (J·16) in its place,
// then `inner`…, with j // 16 % J and j % 16 where the caller puts them.
struct Columns {
  Expr panel, tile, column;
};
Columns columns_of(const Expr& j, int count, int width) {
  return {floor_div(j, int64_t{count} * width), floor_mod(floor_div(j, width), count), floor_mod(j, width)};
}

IndexMap packing_map(const TileUnitContraction& c, const TileBlock& tiles, int width) {
  PackedLayout layout(c.read_b());
  const Columns j = columns_of(layout.dimension(c.vector_axis), tiles.columns, width);
  layout.add(c.batch);
  layout.add(j.panel);
  const std::vector<Expr> words = layout.add_words(c, c.words, c.steps());  // a step's word, element of the word
  for (const Expr& dimension : {j.tile, words[0], j.column, words[1]}) layout.add(dimension);
  return layout.map();
}

// The tile's layout: blocks of columns outside, then everything else, one tile's columns last.
IndexMap tile_map(const Buffer& buffer, size_t axis, const TileBlock& tiles, int width) {
  IndexMap map = layout_of(buffer->shape.size());
  const Columns j = columns_of(map.from[axis], tiles.columns, width);
  map.to.push_back(j.panel), map.to.push_back(j.tile);
  for (size_t d = 0; d < map.from.size(); ++d)
    if (d != axis) map.to.push_back(map.from[d]);
  map.to.push_back(j.column);
  return map;
}

// The loops from the outside.
struct TileNest {
  std::vector<LoopRef> tasks;    // outside of the tiles
  std::vector<int64_t> extents;  // of those that use one panel of B, after 1
  std::vector<LoopRef> reduce;   // then steps of k
  std::vector<LoopRef> tiles;    // tiles of a step
  LoopRef product;               // a tile's rows, which with the loops below are one instruction
  int64_t panels = 1;
};

TileNest order_loops(Schedule& schedule, const BlockRef& block, const TileUnitContraction& c, const TileBlock& tiles,
                     int width, const Target& target) {
  const auto loop_of = [&](const Var& v) { return loops_of(schedule, block, v).at(0); };
  TileNest nest;
  for (const Var& v : c.batch) nest.tasks.push_back(loop_of(v));
  const auto j = schedule.split(loop_of(c.vector_axis), {std::nullopt, tiles.columns, width});
  nest.panels = extent_of(schedule, j[0]);
  std::vector<LoopRef> rows;
  for (size_t r = 0; r + 1 < c.rows.size(); ++r) {
    rows.push_back(loop_of(c.rows[r]));
    if (r + 2 < c.rows.size() || tiles.across_outer == 1) continue;
    const auto parts = schedule.split(rows.back(), {std::nullopt, tiles.across_outer});
    rows.back() = parts[0], nest.tiles.push_back(parts[1]);
  }
  const auto i = schedule.split(loop_of(c.rows.back()), {std::nullopt, tiles.across_rows, tiles.rows});
  rows.push_back(i[0]), nest.tiles.push_back(i[1]), nest.tiles.push_back(j[1]);
  nest.product = i[2];
  const RowSweep sweep = sweep_rows(c, nest.panels, int64_t{tiles.columns} * width);
  // Products are too fast to hide that each worker reads all weights, where these are the larger part.
  std::vector<LoopRef> outside;
  if (sweep.b_bytes <= sweep.a_bytes) outside = decide_row_blocks(schedule, c, sweep, rows, target);
  nest.tasks = in_order(nest.tasks, outside, j[0], rows);
  nest.extents = extents_of_rows(schedule, rows);

  const WordLoops along_k = split_words(schedule, block, c, c.words, c.steps());
  nest.reduce = along_k.reduce;
  schedule.reorder(in_order(nest.tasks, nest.reduce, nest.tiles, nest.product, j[2], along_k.steps));
  return nest;
}

// A block on whole tiles below `tile_loop`: loops over tiles, then a tile's rows and columns, which are one
// instruction.
void tensorize_tiles(Schedule& schedule, const BlockRef& block, const TileUnitContraction& c, int rows, int width,
                     const LoopRef& tile_loop, const std::string& instruction) {
  const std::vector<Var> axes = analyse(schedule.node(block)).spatial();
  std::vector<LoopRef> over, last;
  for (size_t d = 0; d < axes.size(); ++d) {
    std::vector<LoopRef> loops = loops_below(schedule, block, tile_loop, axes[d]);
    const bool is_row = d == position_of(c.analysis, c.rows.back());
    if (is_row || d == position_of(c.analysis, c.vector_axis)) {
      if (loops.size() == 1) {
        const auto parts = schedule.split(loops[0], {std::nullopt, is_row ? rows : width});
        loops = {parts[0], parts[1]};
      }
      last.insert(is_row ? last.begin() : last.end(), loops.back());
      loops.pop_back();
    }
    over.insert(over.end(), loops.begin(), loops.end());
  }
  schedule.reorder(in_order(over, last));
  for (const LoopRef& loop : over) schedule.unroll(loop);
  schedule.tensorize(last[0], instruction);
}

// Whether tiles can and should do it.
bool is_for_tiles(const Schedule& schedule, const BlockRef& block, const TileUnitContraction& c, int width) {
  const BlockAnalysis& analysis = c.analysis;
  // The last tile of rows is code of its own, which has to know its rows.
  if (analysis.is_open(c.rows.back())) return false;
  // Few rows leave the unit idle: vectors do as well.
  if (c.m() < 4 || count_most_iterations(analysis, c.rows) < 5) return false;
  // A tile reads whole columns; those that a copy pads hold nothing.
  if (!is_weight(schedule, c.read_b()) && analysis.extent(c.vector_axis) % width != 0) return false;
  return !find_epilogues(schedule, block).blocks.empty() || has_identity_write(analysis);
}

}  // namespace

bool schedule_tile_contraction(Schedule& schedule, const BlockRef& block, const Target& target) {
  const auto matched = match_tiles(schedule, block, target);
  const int width = target.tiles.row_bytes / 4;
  if (!matched || !is_for_tiles(schedule, block, *matched, width)) return false;
  const TileUnitContraction& c = *matched;
  const BlockAnalysis& analysis = c.analysis;
  TiledProduct product;
  product.m = c.m();
  product.outer = c.rows.size() > 1 ? analysis.extent(c.rows[c.rows.size() - 2]) : 1;
  product.n_tiles = divide_up(c.group, width);
  product.steps = c.k_count() / c.k_step;
  product.batches = analysis.extent(c.vector_axis) / c.group;
  product.is_group = c.is_grouped();
  const TileBlock tiles = decide_block(schedule, product, target);
  const bool has_weights = is_weight(schedule, c.read_b());
  pack_words(schedule, block, c, c.words, c.g(), packing_map(c, tiles, width), width);
  const TileNest nest = order_loops(schedule, block, c, tiles, width, target);
  const bool has_partial_tile = product.m % (int64_t{tiles.rows} * tiles.across_rows) != 0;
  const TileLoops outside = fuse_outside(schedule, nest.tasks, has_partial_tile, target);
  const LoopRef& tile_loop = outside.tile;

  // Tiles in registers, their copy in memory, and what is made of it.
  const size_t axis = position_of(analysis, c.vector_axis);
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  const auto [copy, out, in_registers, in_memory] = keep_on_stack(schedule, block, tile_loop);
  for (const std::string& buffer : {in_registers->name, in_memory})
    schedule.transform_layout(buffer, tile_map(in_registers, axis, tiles, width));
  const BlockRef init = schedule.decompose_reduction(block, nest.reduce[0]);
  if (has_weights && nest.panels > 1 && c.batch.empty()) {
    const Buffer panels = analyse(schedule.node(block)).reads[c.b].buffer;
    const int64_t panel_bytes = c.k_count() * tiles.columns * width * panels->dtype.bytes();
    decide_panel_prefetch(schedule, {outside, nest.extents, nest.reduce}, panels, panel_bytes, target);
  }
  tensorize_tiles(schedule, init, c, tiles.rows, width, tile_loop, "tile_zero" + c.suffix);
  tensorize_tiles(schedule, copy, c, tiles.rows, width, tile_loop, "tile_store" + c.suffix);
  for (const BlockRef& last : out) {
    if (c.is_across)
      vectorize_columns(schedule, last, c, tile_loop, lanes);
    else
      vectorize_in_memory(schedule, last, tile_loop, axis, lanes);
  }
  for (const LoopRef& loop : nest.tiles) schedule.unroll(loop);
  schedule.tensorize(nest.product, c.product->name);
  share_out(schedule, outside.parallel);
  return true;
}

}  // namespace tw::cpu
