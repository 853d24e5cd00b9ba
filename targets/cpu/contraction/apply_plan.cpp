// From a plan to a schedule.
#include <algorithm>
#include <bit>
#include <numeric>

#include "runtime/memory.h"
#include "runtime/ndarray.h"
#include "runtime/rounding.h"
#include "targets/analysis/templates.h"
#include "targets/cpu/contraction/output.h"
#include "targets/cpu/contraction/packing.h"
#include "targets/cpu/contraction/row_blocks.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/passes/prefetch.h"

namespace tw::cpu {
namespace {

struct ContractionLoops {
  std::vector<LoopRef> tasks;     // outside of the register tile
  size_t block_tasks = 0;         // the first ones, up to the blocks that are packed where they are used
  std::vector<LoopRef> panel;     // the last ones, which use one panel
  bool has_partial_tile = false;  // of these, the last
  std::vector<LoopRef> reduce;    // then k
  std::vector<LoopRef> tile;      // then unrolled ones: steps along k, rows, parts and columns
  std::vector<LoopRef> atom;      // rows where it has several, columns, steps along k

  // The innermost along k that has more than one iteration, if any.
  LoopRef innermost(const Schedule& schedule) const {
    const auto last = std::find_if(reduce.rbegin(), reduce.rend(),
                                   [&](const LoopRef& loop) { return extent_of(schedule, loop) > 1; });
    return last == reduce.rend() ? reduce.back() : *last;
  }
};

// Steps of k an iteration: the loop's own instructions take the ports of multiply-adds, 3 % of them where four steps
// share them, and more in small tiles; but not where each step has an address of its own.  A loop over a block of
// eight is better none at all: each load moves by one stride then, which the core foresees.  Rows of images of 14 × 14
// are 1.4 times as fast on Zen 3, those of windows 2 to 3 % of a tile of 12 vectors and 12 % of one of 9.
int64_t usual_steps(const Plan& c, int64_t extent) {
  const Var& k = c.reduce.back();
  const bool is_linear = !c.split.empty() || unit_stride(c.read_a(), k, c.analysis.iters, static_cast<int>(extent));
  if (c.is_memory_bound || c.tile_rows() == 1 || extent <= 2 || !is_linear) return 1;
  constexpr int64_t few_steps = 8, most_instructions = 128;
  if (extent == few_steps && extent * c.tile_rows() * c.tile.vectors <= most_instructions) return extent;
  return extent % 4 == 0 ? 4 : extent % 2 == 0 ? 2 : 1;
}

// k as the plan splits it: those of blocks inside of all others, and the atom's.
void split_k(Schedule& schedule, const BlockRef& block, const Plan& c, ContractionLoops& loops) {
  std::vector<LoopRef> within;
  for (const Var& v : c.reduce) {
    loops.reduce.push_back(loops_of(schedule, block, v).at(0));
    const SplitAxis* split = c.find_split(v);
    if (!split) continue;
    std::vector<std::optional<int64_t>> factors{std::nullopt};
    for (size_t i = 0; i + 1 < split->sizes.size(); ++i) factors.push_back(split->sizes[i] / split->sizes[i + 1]);
    factors.push_back(split->sizes.back());
    const auto parts = schedule.split(loops.reduce.back(), factors);
    const auto of_atom = parts.end() - static_cast<std::ptrdiff_t>(c.atom.steps.size());
    loops.reduce.back() = parts[0];
    within.insert(within.end(), parts.begin() + 1, of_atom);
    loops.atom.insert(loops.atom.end(), of_atom, parts.end());
  }
  loops.reduce = in_order(loops.reduce, within);
}

// The loops over rows: outside of tiles, the last over tiles, and a tile's own.
struct RowLoops {
  std::vector<LoopRef> outside, tile;
  std::optional<LoopRef> atom;
  bool has_partial_tile = false;
};

RowLoops split_rows(Schedule& schedule, const BlockRef& block, const Plan& c) {
  RowLoops rows;
  const auto around = c.axis_around();
  for (const Var& v : c.rows) {
    const LoopRef loop = loops_of(schedule, block, v).at(0);
    if (c.tile.around > 1 && v == *around) {
      const auto i = schedule.split(loop, {std::nullopt, c.tile.around});
      rows.outside.push_back(i[0]), rows.tile.push_back(i[1]);
      rows.has_partial_tile = c.analysis.extent(v) % c.tile.around != 0;
    } else if (!(v == c.rows.back())) {
      rows.outside.push_back(loop);
    } else if (c.has_whole_rows()) {
      rows.tile.push_back(loop);
    } else {
      std::vector<std::optional<int64_t>> sizes{std::nullopt, c.tile.rows};
      if (c.atom.m > 1) sizes.push_back(c.atom.m);
      const std::vector<LoopRef> i = schedule.split(loop, sizes);
      rows.outside.push_back(i[0]), rows.tile.push_back(i[1]);
      if (c.atom.m > 1) rows.atom = i[2];
      rows.has_partial_tile = c.m() % (c.atom.m * c.tile.rows) != 0;
    }
  }
  return rows;
}

ContractionLoops order_loops(Schedule& schedule, const BlockRef& block, const Plan& c, const Target& target) {
  const auto loop_of = [&](const Var& v) { return loops_of(schedule, block, v).at(0); };
  ContractionLoops loops;
  for (const Var& v : c.batch) loops.tasks.push_back(loop_of(v));
  split_k(schedule, block, c, loops);
  std::optional<LoopRef> steps;
  if (const LoopRef k = loops.reduce.back(); !c.atom.instruction && !is_open(schedule, k)) {
    const int64_t extent = extent_of(schedule, k), multiply_adds = c.tile_rows() * c.tile.vectors;
    const int64_t count = decide_k_unroll(schedule, extent, multiply_adds, usual_steps(c, extent), false, target);
    if (count > 1) {
      const auto parts = schedule.split(k, {std::nullopt, count});
      loops.reduce.back() = parts[0], steps = parts[1];
    }
  }
  const auto j = schedule.split(loop_of(c.vector_axis), {std::nullopt, c.panel_of_part() / c.atom.n, c.atom.n});
  auto [rows, of_tile, of_atom, has_partial_tile] = split_rows(schedule, block, c);
  loops.has_partial_tile = has_partial_tile;
  loops.tile = in_order(steps, of_tile, c.parts.is_defined() ? std::optional(loop_of(c.parts)) : std::nullopt, j[1]);
  loops.atom = in_order(of_atom, j[2], loops.atom);
  if (c.packs_a()) {
    const auto at = c.row_packing.has_whole_rows
                        ? std::find(c.rows.begin(), c.rows.end(), axis_around_rows(c).value()) - c.rows.begin()
                        : static_cast<std::ptrdiff_t>(rows.size()) - 1;
    const auto blocks = schedule.split(rows[static_cast<size_t>(at)], {std::nullopt, c.row_packing.together});
    loops.tasks = in_order(loops.tasks, std::vector<LoopRef>(rows.begin(), rows.begin() + at), blocks[0]);
    rows[static_cast<size_t>(at)] = blocks[1];
    rows.erase(rows.begin(), rows.begin() + at);
  }
  loops.block_tasks = c.packs_a() ? loops.tasks.size() : loops.tasks.size() + 1;
  const std::vector<LoopRef> outside = decide_row_blocks(schedule, c, rows, target);  // of the panels
  loops.panel = rows;
  loops.tasks = in_order(loops.tasks, outside, j[0], rows);
  schedule.reorder(in_order(loops.tasks, loops.reduce, loops.tile, loops.atom));
  return loops;
}

// What uses one panel of B: the loops outside of a tile, and those along k, both outermost first.
struct PanelUse {
  TileLoops outside;
  std::vector<int64_t> extents;  // of the loops over rows, after 1; open ones count as 1
  std::vector<LoopRef> reduce;

  int64_t tiles() const { return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>()); }
};

// What is packed where it is used is so once for all tasks of a panel, or of a block of rows: these are one.
PanelUse fuse_tasks(Schedule& schedule, const Plan& c, const ContractionLoops& loops, const Target& target) {
  PanelUse use{{}, {1}, loops.reduce};
  for (const LoopRef& loop : loops.panel)
    use.extents.push_back(is_open(schedule, loop) ? 1 : extent_of(schedule, loop));
  const std::vector<LoopRef>& tasks = loops.tasks;
  const auto fused = [&](auto first, auto last) { return as_one(schedule, {first, last}); };
  if (c.is_packed_at_use()) {
    if (c.packs_a()) use.extents = {1, use.tiles()};
    const auto panel = tasks.end() - static_cast<std::ptrdiff_t>(loops.panel.size());
    const LoopRef tile = c.packs_a() ? fused(panel, tasks.end()) : tasks.back();
    use.outside = {fused(tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(loops.block_tasks)), tile};
  } else {
    use.outside = fuse_outside(schedule, tasks, loops.has_partial_tile, target);
  }
  const auto& [parallel, tile] = use.outside;
  // Of an open number, two at least: what a single tile asks for comes no sooner than by itself.
  if (is_open(schedule, tile) && !(tile == parallel)) use.extents.back() = 2;
  return use;
}

// While tiles use a panel, each asks for an equal part of the next one, in the loop along k that has a line for each
// iteration.
void prefetch_in_parts(Schedule& schedule, const PanelUse& use, const Buffer& panels, int64_t panel_bytes) {
  const auto& [outside, extents, all_along_k] = use;
  std::vector<LoopRef> reduce = all_along_k;
  const int64_t tiles = use.tiles();
  const bool is_one = outside.parallel == outside.tile;
  if (!is_one && extents.back() > 1) schedule.annotate(outside.tile, prefetch_parts_attribute, extents.back());
  if (const int64_t parts = is_one ? tiles : tiles / extents.back(); parts > 1)
    schedule.annotate(outside.parallel, prefetch_parts_attribute, parts);
  std::erase_if(reduce, [&](const LoopRef& loop) { return extent_of(schedule, loop) == 1; });
  size_t inner = 0;
  for (int64_t steps = extent_of(schedule, reduce[0]); inner + 1 < reduce.size(); ++inner) {
    steps *= extent_of(schedule, reduce[inner + 1]);
    if (steps * tiles * line_bytes > panel_bytes) break;
  }
  schedule.annotate(reduce[inner], prefetch_next_attribute, BufferBytes{{panels->name, panel_bytes}});
}

// B comes from memory, or from the cache that all cores share, when a panel is read for the first time: while the tiles
// of one panel compute, the next one is on its way to the second cache, where both have to stay.  The decision
// "panel_prefetch": 0 not, 1 each tile asks for all of it, 2 for its part of it.
void prefetch_next_panel(Schedule& schedule, const Plan& c, const ContractionLoops& loops, const PanelUse& use,
                         const Buffer& panels, const Target& target) {
  // What a pass made of words stays in a cache as a rule: nobody has measured that asking for it pays.
  const bool is_panelled = c.packing == Packing::constant || (c.packing == Packing::ahead && !c.atom.instruction);
  const bool is_open_k =
      std::any_of(c.reduce.begin(), c.reduce.end(), [&](const Var& v) { return c.analysis.is_open(v); });
  const int64_t steps = c.k_steps(), panel_bytes = c.k_count() * c.panel() * panels->dtype.bytes();
  const auto a_shape = const_shape(c.read_a().buffer);
  const int64_t a_bytes = a_shape ? element_count(*a_shape) * c.read_a().buffer->dtype.bytes() : target.l2.bytes;
  const int64_t beside = std::min(a_bytes, target.l2.bytes / 4);  // of A: more of it is a stream
  const int64_t rows = count_most_iterations(c.analysis, c.rows);
  if (!is_panelled || is_open_k || c.is_grouped() || c.panels() < 2) return;
  if (rows < 2 * c.tile_rows() && !c.atom.is_on_tiles()) return;
  const LoopRef inner = loops.innermost(schedule);
  if (extent_of(schedule, inner) == 1) return;
  // Where tiles are many, asking takes longer in all of them than one waits.
  constexpr int64_t most_tiles = 32;
  const bool fits = 2 * panel_bytes + beside <= target.l2.bytes * 3 / 4 && rows <= most_tiles * c.tile_rows();
  const double tile_cycles = static_cast<double>(steps * c.tile_rows()) * c.tile.vectors / target.fma_ports;
  const double waits = std::max(0.0, static_cast<double>(panel_bytes) / target.core_memory_rate - tile_cycles);
  const int64_t tiles = use.tiles();
  std::vector<Candidate> candidates{{{0}, 1 + std::min(0.2, waits / (tile_cycles * static_cast<double>(tiles)))},
                                    {{1}, fits ? 1.02 : 1.05}};
  // A part costs a tile a line a few steps, which nothing was seen to lose by.  Of a single tile the part is all of it,
  // which is asked of products of tiles only.
  const bool has_parts = (tiles > 1 || c.atom.is_on_tiles()) && steps > 1 && c.batch.empty(),
             parts_fit = panel_bytes <= target.l2.bytes / 2;
  // Of an open number of tiles each iteration along k computes what its part is: nothing beside the multiply-adds of
  // large tiles, but those of 12 vectors took 1.2 times as long (Zen 3).
  constexpr double cycles_to_ask = 5, most_asking = 0.15;
  double iterations = 1;
  for (const LoopRef& loop : loops.reduce) iterations *= static_cast<double>(extent_of(schedule, loop));
  const bool has_open_parts = is_open(schedule, use.outside.tile) && !c.atom.instruction;
  const double asking = has_open_parts ? cycles_to_ask * iterations / tile_cycles : 0;
  if (has_parts) candidates.push_back({{2}, (parts_fit ? 1 : 1.05) + asking});
  const bool asks_in_parts = has_parts && parts_fit && asking <= most_asking;
  const int64_t how = schedule.decide("panel_prefetch", candidates, {asks_in_parts ? 2 : fits ? 1 : 0})[0];
  if (how == 1) prefetch_ahead(schedule, inner, panels, panel_bytes);
  if (how == 2) prefetch_in_parts(schedule, use, panels, panel_bytes);
}

// What the tile's epilogue reads besides the sums comes while these are made: a residual is as large as the result.
void prefetch_epilogue(Schedule& schedule, const BlockRef& out, const LoopRef& tile, const Target& target) {
  for (const Access& read : analyse(schedule.node(out)).reads) {
    if (!schedule.func().is_parameter(read.buffer) || read.buffer->is_constant) continue;
    if (least_bytes(read.buffer) >= target.l2.bytes / 4) prefetch_ahead(schedule, tile, read.buffer, 0);
  }
}

}  // namespace

std::optional<Var> Plan::axis_around() const {
  if (atom.is_on_tiles()) return rows.size() > 1 ? std::optional(rows[rows.size() - 2]) : std::nullopt;
  return atom.instruction ? std::nullopt : axis_around_rows(*this);
}

std::vector<int64_t> Plan::usual_rows() const {
  if (!has_rows() || !analysis.is_open(rows.back())) return {};
  // Where rows are few, tiles should be even: sides of maps for images of 224, which count twice, are so for 256, 320
  // and 512 as well.  One row is that of a usual batch, which says nothing of others.
  constexpr int64_t few_rows = 64, of_text = 128;
  const int64_t typical = analysis.typical_extent(rows.back());
  if (typical > 1 && typical < few_rows)
    return {typical, typical, divide_up(typical * 256, 224), divide_up(typical * 320, 224),
            divide_up(typical * 512, 224)};
  const int64_t usual = typical > 1 ? typical : of_text;
  return {usual / 16, usual / 4, usual, 4 * usual};
}

const SplitAxis* Plan::find_split(const Var& k) const {
  const auto found = std::find_if(split.begin(), split.end(), [&](const SplitAxis& s) { return s.axis == k; });
  return found == split.end() ? nullptr : &*found;
}

void apply_plan(Schedule& schedule, const BlockRef& block, const Plan& c, const Target& target) {
  const PackedOperands packed = pack_operands(schedule, block, c, target);
  const ContractionLoops loops = order_loops(schedule, block, c, target);
  const PanelUse use = fuse_tasks(schedule, c, loops, target);
  const auto& [parallel, tile] = use.outside;
  const std::vector<BlockRef> out = write_tile(schedule, block, c, tile, loops.reduce.front(), target);
  if (c.skipped > 0) schedule.skip_padding(block, loops.reduce[c.skipped - 1]);
  if (!c.is_across && c.has_rows())
    for (const BlockRef& last : out) prefetch_epilogue(schedule, last, tile, target);
  if (c.is_memory_bound)
    prefetch_from_memory(schedule, packed.panels, count_most_iterations(c.analysis, c.rows), loops.innermost(schedule),
                         target);
  else
    prefetch_next_panel(schedule, c, loops, use, packed.panels.buffer, target);
  for (const LoopRef& loop : loops.tile) schedule.unroll(loop);
  if (c.atom.instruction)
    schedule.tensorize(c.atom.spans_rows() ? loops.atom.front() : loops.atom.back(), c.atom.instruction->name);
  if (!c.atom.spans_rows()) schedule.vectorize(loops.atom.front());
  const auto lanes = static_cast<int>(c.atom.n);
  if (c.packing == Packing::panel)
    pack_at(schedule, *packed.b, parallel, dimension_of(c.read_b(), c.vector_axis), lanes);
  if (c.packs_a()) pack_at(schedule, *packed.a, parallel, dimension_of(c.read_a(), c.rows.back()), c.tile.rows);
  share_out(schedule, parallel);
}

bool schedule_contraction(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                          const Target& target) {
  const auto tries = [&](auto&& plan_of) {
    return apply_template(schedule, [&](Schedule& attempt) {
      const std::optional<Plan> plan = plan_of(attempt);
      if (plan) apply_plan(attempt, block, *plan, target);
      return plan.has_value();
    });
  };
  if (tries([&](Schedule& attempt) { return plan_on_tile_unit(attempt, block, analysis, target); })) return true;
  if (tries([&](Schedule& attempt) { return plan_of_words(attempt, block, analysis, target); })) return true;
  const auto parts = decide_parts(schedule, block, analysis, target);
  const auto of_parts = [&](Schedule& separated) {
    separate_parts(separated, block, *parts);
    return plan_of_multiply_adds(separated, block, analyse(separated.node(block)), target);
  };
  return (parts && tries(of_parts)) ||
         tries([&](Schedule& attempt) { return plan_of_multiply_adds(attempt, block, analysis, target); });
}

}  // namespace tw::cpu
