// A contraction of small elements that ends in a dot product of the target: tensorize finds g neighbours along k.
//
//   for panel, rows … parallel {
//     for k … {                                  g at a time
//       for i in 0..R unrolled { for v in 0..V unrolled { for lane vectorized { for t in 0..g tensorized
//         Cr[i, v·L + lane] += A[…, k·g + t] * B_packed[panel, k, v·L + lane, t]
//     }}}}
//     C[…] = epilogue(Cr)
//   }
//
// As contraction.cpp, with operands in words: A's neighbours along k lie side by side in memory, B's are put there.
#include <algorithm>

#include "targets/cpu/contraction_output.h"
#include "targets/cpu/default_schedule.h"
#include "targets/cpu/row_blocks.h"
#include "targets/cpu/tile_model.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/text/printer.h"

namespace tw::cpu {
namespace {

struct DotContraction : Contraction {
  const TensorInstruction* instruction = nullptr;
  Var words;            // the axis of k whose neighbours make A's words
  int64_t granule = 0;  // …within groups of so many
  int lanes = 1;
  int64_t m = 1;  // of the innermost axis of rows, which makes the tile's
  RegisterTile tile;
  bool streams = false;  // B, from memory

  bool has_rows() const { return !rows.empty(); }
  int64_t g() const { return instruction->extent; }
  int64_t panel() const { return int64_t{tile.vectors} * lanes; }
  int64_t panels() const { return (group + panel() - 1) / panel(); }
  const Access& read_a() const { return analysis.reads[static_cast<size_t>(a)]; }
  const Access& read_b() const { return analysis.reads[static_cast<size_t>(b)]; }
};

// The target's instruction that adds products of elements of these types, in either order.
const TensorInstruction* instruction_for(DType a, DType b, DType sum, const Target& target) {
  for (const MachineInstruction& machine : target.instructions) {
    const TensorInstruction& i = *find_tensor_instruction(to_text(machine.intrinsic));
    const auto& operands = i.description.buffers;
    const bool fits =
        (operands[0]->dtype == a && operands[1]->dtype == b) || (operands[0]->dtype == b && operands[1]->dtype == a);
    // Floats multiply as f32, too: then a slow instruction gains nothing.
    if (sum.is_float() && machine.cycles > static_cast<double>(i.extent)) continue;
    if (fits && operands[2]->dtype == sum) return &i;
  }
  return nullptr;
}

std::optional<DotContraction> match(const Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (analysis.block_class != BlockClass::contraction) return std::nullopt;
  const DType sum = analysis.write.buffer->dtype;
  const TensorInstruction* instruction =
      instruction_for(analysis.reads[0].buffer->dtype, analysis.reads[1].buffer->dtype, sum, target);
  if (!instruction) return std::nullopt;
  const int lanes = target.lanes(sum);
  std::optional<Words> words;
  const auto has_words = [&](const Contraction& c) {
    if (c.is_grouped() && c.group % lanes != 0) return false;
    words = find_words(c, instruction->extent, lanes);
    return words.has_value();
  };
  auto matched = match_contraction(schedule, block, lanes, has_words);
  if (!matched) matched = match_across(schedule, block, has_words);
  if (!matched) return std::nullopt;
  DotContraction c;
  static_cast<Contraction&>(c) = *matched;
  c.instruction = instruction, c.words = words->axis, c.granule = words->granule, c.lanes = lanes;
  return c;
}

// B as [dimensions of one element, batch …, panel, k …, k within its block, element of the panel, t]; nothing when its
// indices are no plain iterations.
std::optional<IndexMap> packing_map(const DotContraction& c) {
  const Access& b = c.read_b();
  const int64_t g = c.g(), panel = c.panel();
  if (!has_plain_indices(b)) return std::nullopt;
  IndexMap map;
  for (size_t d = 0; d < b.indices.size(); ++d) {
    map.from.push_back(Var("d" + std::to_string(d)));
    if (is_const_int(b.buffer->shape[d], 1)) map.to.push_back(map.from[d]);
  }
  const auto dimension_of = [&](const Var& v) -> Expr {
    for (size_t d = 0; d < b.indices.size(); ++d)
      if (b.indices[d].get() == v.get() && !is_const_int(b.buffer->shape[d], 1)) return map.from[d];
    return Expr();
  };
  const auto add = [&](const Var& v) {
    if (const Expr d = dimension_of(v); d.is_defined()) map.to.push_back(d);
  };
  const Expr j = dimension_of(c.vector_axis), k = dimension_of(c.words);
  for (const Var& v : c.batch) add(v);
  map.to.push_back(floor_div(j, panel));
  const bool is_blocked = c.granule != c.analysis.extent(c.words);
  for (const Var& v : c.reduce) {
    if (!(v == c.words))
      add(v);
    else
      map.to.push_back(is_blocked ? floor_div(k, c.granule) : floor_div(k, g));
  }
  if (is_blocked) map.to.push_back(floor_div(floor_mod(k, c.granule), g));
  map.to.push_back(floor_mod(j, panel));
  map.to.push_back(floor_mod(k, g));
  return map;
}

// Weights are packed when they are compiled, other operands by a copy in front of the block.
void pack(Schedule& schedule, const BlockRef& block, const DotContraction& c, const IndexMap& map) {
  const Access& b = c.read_b();
  if (b.buffer->is_constant && count_readers(schedule, b.buffer) == 1) {
    schedule.transform_layout(b.buffer->name, map);
    return;
  }
  const BlockRef copy = schedule.cache_read(block, b.buffer->name, Scope::global);
  schedule.transform_layout(analyse(schedule.node(copy)).write.buffer->name, map);
  pack_words(schedule, copy, dimension_of(b, c.words), dimension_of(b, c.vector_axis), c.g(), c.lanes);
}

// The rows of a tile as the register tile sees them, and the tile.
void choose_sizes(Schedule& schedule, DotContraction& c, const Target& target) {
  const BlockAnalysis& analysis = c.analysis;
  c.m = c.has_rows() ? analysis.extent(c.rows.back()) : 1;
  c.streams = is_stream(c.read_b().buffer, count_most_iterations(analysis, c.rows), target);
  const int64_t n_vectors = (c.group + c.lanes - 1) / c.lanes, k_count = count_iterations(analysis, c.reduce) / c.g();
  const int64_t batches = count_iterations(analysis, c.batch) * (analysis.extent(c.vector_axis) / c.group);
  const Sweep sweep{.row_stride = row_stride(c)};
  c.tile = decide_tile(schedule, {c.m, n_vectors, k_count, 1, sweep, batches, c.streams, c.is_grouped()}, target);
}

struct DotLoops {
  std::vector<LoopRef> tasks;   // outside of the register tile
  std::vector<LoopRef> tiles;   // the last ones of these: over rows, which use one panel
  std::vector<LoopRef> reduce;  // along k
  std::vector<LoopRef> rows;    // of the tile
  LoopRef vectors, lanes, words;
};

// Loops over rows, or parts of one, that are outside of the panels; takes them away from `rows`.
std::vector<LoopRef> rows_outside(Schedule& schedule, const DotContraction& c, std::vector<LoopRef>& rows,
                                  const Target& target) {
  if (!c.batch.empty() || c.is_grouped()) return {};
  RowSweep sweep;
  sweep.panels = c.panels();
  sweep.is_a_streamed = c.reduce.size() == 1;  // words lie side by side
  sweep.a_bytes = least_bytes(c.read_a().buffer);
  sweep.b_bytes = count_iterations(c.analysis, c.reduce) * sweep.panels * c.panel() * c.read_b().buffer->dtype.bytes();
  return decide_row_blocks(schedule, sweep, rows, target);
}

DotLoops order_loops(Schedule& schedule, const BlockRef& block, const DotContraction& c, const Target& target) {
  const auto loop_of = [&](const Var& v) { return loops_of(schedule, block, v).at(0); };
  DotLoops loops;
  for (const Var& v : c.batch) loops.tasks.push_back(loop_of(v));
  const auto j = schedule.split(loop_of(c.vector_axis), {std::nullopt, c.tile.vectors, c.lanes});
  loops.vectors = j[1], loops.lanes = j[2];
  for (size_t r = 0; r + 1 < c.rows.size(); ++r) loops.tiles.push_back(loop_of(c.rows[r]));
  if (c.has_rows()) {
    const auto i = schedule.split(loop_of(c.rows.back()), {std::nullopt, c.tile.rows});
    loops.tiles.push_back(i[0]);
    loops.rows = {i[1]};
  }
  for (const LoopRef& loop : rows_outside(schedule, c, loops.tiles, target)) loops.tasks.push_back(loop);
  loops.tasks.push_back(j[0]);
  loops.tasks.insert(loops.tasks.end(), loops.tiles.begin(), loops.tiles.end());

  std::vector<LoopRef> within;  // a block of k
  for (const Var& v : c.reduce) {
    loops.reduce.push_back(loop_of(v));
    if (!(v == c.words)) continue;
    const bool is_blocked = c.granule != c.analysis.extent(v);
    const auto parts = is_blocked ? schedule.split(loop_of(v), {std::nullopt, c.granule / c.g(), c.g()})
                                  : schedule.split(loop_of(v), {std::nullopt, c.g()});
    loops.reduce.back() = parts[0], loops.words = parts.back();
    if (is_blocked) within = {parts[1]};
  }
  loops.reduce.insert(loops.reduce.end(), within.begin(), within.end());

  std::vector<LoopRef> order = loops.tasks;
  order.insert(order.end(), loops.reduce.begin(), loops.reduce.end());
  order.insert(order.end(), loops.rows.begin(), loops.rows.end());
  order.insert(order.end(), {loops.vectors, loops.lanes, loops.words});
  schedule.reorder(order);
  return loops;
}

// A stream as far ahead as memory needs; of weights that several tiles use, the next panel.
void prefetch_weights(Schedule& schedule, const BlockRef& block, const DotContraction& c, const DotLoops& loops,
                      const PanelUse& use, const Target& target) {
  const Access b = analyse(schedule.node(block)).reads[static_cast<size_t>(c.b)];
  const int64_t rows = count_most_iterations(c.analysis, c.rows);
  if (c.streams) return prefetch_stream(schedule, b, rows, loops.reduce.back(), target);
  const bool is_open_k = std::any_of(loops.reduce.begin(), loops.reduce.end(),
                                     [&](const LoopRef& loop) { return is_open(schedule, loop); });
  if (!c.batch.empty() || c.is_grouped() || c.panels() < 2 || rows < 2 * c.tile.rows || is_open_k) return;
  if (!b.buffer->is_constant) return;
  const int64_t panel_bytes = count_iterations(c.analysis, c.reduce) * c.panel() * b.buffer->dtype.bytes();
  decide_panel_prefetch(schedule, use, b.buffer, panel_bytes, target);
}

}  // namespace

// Vectors along the panel, one for each of a word's elements: their stores interleave.
void pack_words(Schedule& schedule, const BlockRef& copy, int words, int columns, int64_t g, int lanes) {
  std::vector<LoopRef> order, inner;
  const size_t rank = analyse(schedule.node(copy)).spatial().size();
  for (size_t d = 0; d < rank; ++d) {
    const LoopRef loop = loops_of(schedule, copy, analyse(schedule.node(copy)).spatial().at(d)).at(0);
    if (static_cast<int>(d) == words) {
      const auto parts = schedule.split(loop, {std::nullopt, g});
      order.push_back(parts[0]);
      inner.insert(inner.begin(), parts[1]);
    } else if (static_cast<int>(d) == columns) {
      const auto parts = schedule.split(loop, {std::nullopt, lanes});
      order.push_back(parts[0]);
      inner.push_back(parts[1]);
    } else {
      order.push_back(loop);
    }
  }
  const std::vector<LoopRef> outer = order;
  order.insert(order.end(), inner.begin(), inner.end());
  schedule.reorder(order);
  const LoopRef shared = outer.size() > 1 ? schedule.fuse(outer) : outer[0];
  schedule.unroll(inner[0]);
  schedule.vectorize(inner[1]);
  share_out(schedule, shared);
}

bool schedule_dot_contraction(Schedule& schedule, const BlockRef& block, const Target& target) {
  auto matched = match(schedule, block, target);
  if (!matched) return false;
  DotContraction& c = *matched;
  choose_sizes(schedule, c, target);
  const auto map = packing_map(c);
  if (!map) return false;
  pack(schedule, block, c, *map);
  const DotLoops loops = order_loops(schedule, block, c, target);
  PanelUse use{{}, extents_of_rows(schedule, loops.tiles), loops.reduce};
  const bool has_partial_tile = c.has_rows() && c.m % c.tile.rows != 0;
  use.outside = fuse_outside(schedule, loops.tasks, has_partial_tile, target);
  use.count_usual_tiles(schedule, c.tile.rows);

  write_tile(schedule, block, c, use.outside.tile, loops.reduce.front(), c.lanes);
  prefetch_weights(schedule, block, c, loops, use, target);
  for (const LoopRef& loop : loops.rows) schedule.unroll(loop);
  schedule.unroll(loops.vectors);
  schedule.tensorize(loops.words, c.instruction->name);
  schedule.vectorize(loops.lanes);
  share_out(schedule, use.outside.parallel);
  return true;
}

}  // namespace tw::cpu
