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
#include "targets/cpu/operand_packing.h"
#include "targets/cpu/row_blocks.h"
#include "targets/cpu/tile_model.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/text/printer.h"

namespace tw::cpu {
namespace {

struct DotContraction : Contraction {
  const TensorInstruction* instruction = nullptr;
  Words words;
  int lanes = 1;
  RegisterTile tile;
  bool is_memory_bound = false;  // B comes from memory, and takes the time

  int64_t g() const { return instruction->extent; }
  int64_t panel() const { return int64_t{tile.vectors} * lanes; }
  int64_t panels() const { return (group + panel() - 1) / panel(); }
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

std::optional<DotContraction> match_dots(const Schedule& schedule, const BlockRef& block, const Target& target) {
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
  c.instruction = instruction, c.words = *words, c.lanes = lanes;
  return c;
}

// B as [dimensions of one element, batch …, panel, k …, k within its block, element of the panel, t].
IndexMap packing_map(const DotContraction& c) {
  PackedLayout layout(c.read_b());
  const Expr j = layout.dimension(c.vector_axis);
  layout.add(c.batch);
  layout.add(floor_div(j, c.panel()));
  const Expr t = layout.add_words(c, c.words, {c.g()})[0];
  layout.add(floor_mod(j, c.panel()));
  layout.add(t);
  return layout.map();
}

void choose_register_tile(Schedule& schedule, DotContraction& c, const Target& target) {
  const BlockAnalysis& analysis = c.analysis;
  c.is_memory_bound = is_memory_bound(c.read_b().buffer, count_most_iterations(analysis, c.rows), target);
  const int64_t n_vectors = (c.group + c.lanes - 1) / c.lanes, k_count = c.k_count() / c.g();
  const int64_t batches = count_iterations(analysis, c.batch) * (analysis.extent(c.vector_axis) / c.group);
  const Sweep sweep{.row_stride = row_stride(c)};
  c.tile =
      decide_tile(schedule, {c.m(), n_vectors, k_count, 1, sweep, batches, c.is_memory_bound, c.is_grouped()}, target);
}

struct DotLoops {
  std::vector<LoopRef> tasks;   // outside of the register tile
  std::vector<LoopRef> tiles;   // the last ones of these: over rows, which use one panel
  std::vector<LoopRef> reduce;  // along k
  std::vector<LoopRef> rows;    // of the tile
  LoopRef vectors, lanes, words;
};

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
  RowSweep sweep = sweep_rows(c, c.panels(), c.panel());
  sweep.is_a_streamed = c.reduce.size() == 1;  // words lie side by side
  const auto outside = decide_row_blocks(schedule, c, sweep, loops.tiles, target);
  loops.tasks = in_order(loops.tasks, outside, j[0], loops.tiles);

  const WordLoops along_k = split_words(schedule, block, c, c.words, {c.g()});
  loops.reduce = along_k.reduce, loops.words = along_k.steps[0];
  schedule.reorder(in_order(loops.tasks, loops.reduce, loops.rows, loops.vectors, loops.lanes, loops.words));
  return loops;
}

// A stream as far ahead as memory needs; of weights that several tiles use, the next panel.
void prefetch_weights(Schedule& schedule, const BlockRef& block, const DotContraction& c, const DotLoops& loops,
                      const PanelUse& use, const Target& target) {
  const Access b = analyse(schedule.node(block)).reads[c.b];
  const int64_t rows = count_most_iterations(c.analysis, c.rows);
  if (c.is_memory_bound) return prefetch_from_memory(schedule, b, rows, loops.reduce.back(), target);
  const bool is_open_k = std::any_of(loops.reduce.begin(), loops.reduce.end(),
                                     [&](const LoopRef& loop) { return is_open(schedule, loop); });
  if (!c.batch.empty() || c.is_grouped() || c.panels() < 2 || rows < 2 * c.tile.rows || is_open_k) return;
  if (!b.buffer->is_constant) return;
  const int64_t panel_bytes = c.k_count() * c.panel() * b.buffer->dtype.bytes();
  decide_panel_prefetch(schedule, use, b.buffer, panel_bytes, target);
}

}  // namespace

bool schedule_dot_contraction(Schedule& schedule, const BlockRef& block, const Target& target) {
  auto matched = match_dots(schedule, block, target);
  if (!matched || !has_plain_indices(matched->read_b())) return false;
  DotContraction& c = *matched;
  choose_register_tile(schedule, c, target);
  pack_words(schedule, block, c, c.words, c.g(), packing_map(c), c.lanes);
  const DotLoops loops = order_loops(schedule, block, c, target);
  PanelUse use{{}, extents_of_rows(schedule, loops.tiles), loops.reduce};
  const bool has_partial_tile = c.has_rows() && c.m() % c.tile.rows != 0;
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
