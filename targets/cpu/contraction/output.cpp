#include "targets/cpu/contraction/output.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

// A tile that goes through memory.
struct StackTile {
  BlockRef copy;              // of the registers to memory
  std::vector<BlockRef> out;  // what is made of it: the epilogue, or a copy
  Buffer in_registers;        // both are still stored as the result is
  std::string in_memory;
};

StackTile keep_on_stack(Schedule& schedule, const BlockRef& block, const LoopRef& tile) {
  const std::string result = written_by(schedule, block)->name;
  StackTile on_stack;
  on_stack.out = find_epilogues(schedule, block).blocks;
  const bool has_epilogue = !on_stack.out.empty();
  if (!has_epilogue) on_stack.out = {schedule.cache_write(block, result, Scope::stack)};
  on_stack.in_memory = written_by(schedule, block)->name;
  on_stack.copy = schedule.cache_write(block, on_stack.in_memory, Scope::register_);
  on_stack.in_registers = written_by(schedule, block);
  schedule.reverse_compute_at(on_stack.copy, tile);
  for (const BlockRef& out : on_stack.out) schedule.reverse_compute_at(out, tile);
  if (has_epilogue) schedule.set_scope(on_stack.in_memory, Scope::stack);
  keep_results_between(schedule, on_stack.out, Scope::stack);
  return on_stack;
}

// Vectors of a tile in memory along its rows, for some of its columns at a time.
void vectorize_columns(Schedule& schedule, const BlockRef& out, const Contraction& c, const LoopRef& tile, int lanes) {
  std::vector<LoopRef> order = loops_below(schedule, out, tile);
  // Takes the innermost loop along the axis out of the order, in parts of `lanes` where it is longer.
  const auto take = [&](const Var& axis) -> std::optional<LoopRef> {
    const Var own = analyse(schedule.node(out)).spatial().at(position_of(c.analysis, axis));
    const auto loop = innermost_within(schedule, out, tile, own);
    if (!loop) return std::nullopt;
    std::erase(order, *loop);
    if (extent_of(schedule, *loop) <= lanes) return loop;
    const auto parts = schedule.split(*loop, {std::nullopt, lanes});
    order.push_back(parts[0]);
    return parts[1];
  };
  const auto row = take(c.rows.back()), column = take(c.vector_axis);
  order = in_order(order, column, row);
  if (order.size() > 1) schedule.reorder(order);
  if (column) schedule.unroll(*column);
  if (row) schedule.vectorize(*row);
}

// The layout of tiles of the unit: blocks of columns outside, then everything else, one tile's columns last.  That of
// matrices has blocks of rows, too: those that are left out are padding.
IndexMap tile_map(const Plan& c, size_t rank, size_t axis) {
  IndexMap map = layout_of(rank);
  const Expr& j = map.from[axis];
  map.to = {floor_div(j, c.panel()), floor_mod(floor_div(j, c.atom.n), c.tile.vectors)};
  std::vector<Expr> last;
  for (size_t d = 0; d < rank; ++d) {
    const Expr& i = map.from[d];
    if (d == axis) continue;
    if (c.atom.is_matrix() && d == position_of(c.analysis, c.rows.back())) {
      map.to.push_back(floor_div(i, c.tile_rows()));
      map.to.push_back(floor_mod(floor_div(i, c.atom.m), c.tile.rows));
      last.push_back(floor_mod(i, c.atom.m));
    } else {
      map.to.push_back(i);
    }
  }
  map.to.insert(map.to.end(), last.begin(), last.end());
  map.to.push_back(floor_mod(j, c.atom.n));
  return map;
}

// A block on whole tiles of the unit, or matrices: loops over tiles, then a tile's rows and columns, which are one
// instruction.
void tensorize_tiles(Schedule& schedule, const BlockRef& block, const Plan& c, const LoopRef& tile,
                     const std::string& instruction) {
  const std::vector<Var> axes = analyse(schedule.node(block)).spatial();
  std::vector<LoopRef> over, last;
  for (size_t d = 0; d < axes.size(); ++d) {
    std::vector<LoopRef> loops = loops_below(schedule, block, tile, axes[d]);
    const bool is_row = d == position_of(c.analysis, c.rows.back());
    if (is_row || d == position_of(c.analysis, c.vector_axis)) {
      if (loops.size() == 1) loops = schedule.split(loops[0], {std::nullopt, is_row ? c.atom.m : c.atom.n});
      last.insert(is_row ? last.begin() : last.end(), loops.back());
      loops.pop_back();
    }
    over.insert(over.end(), loops.begin(), loops.end());
  }
  schedule.reorder(in_order(over, last));
  for (const LoopRef& loop : over) schedule.unroll(loop);
  schedule.tensorize(last[0], instruction);
}

}  // namespace

std::vector<BlockRef> write_tile(Schedule& schedule, const BlockRef& block, const Plan& c, const LoopRef& tile,
                                 const LoopRef& first_k, const Target& target) {
  const size_t axis = position_of(c.analysis, c.vector_axis);
  const DType dtype = c.analysis.write.buffer->dtype;
  const int width = static_cast<int>(c.atom.n), lanes = target.lanes(dtype);
  if (!c.is_across && !c.atom.spans_rows()) {
    const Epilogue epilogue = find_epilogues(schedule, block);
    const size_t axis_of_result = epilogue.blocks.empty() ? axis : epilogue.axis(axis).value();
    const std::vector<BlockRef> out = keep_in_registers(schedule, block, tile, axis);
    const BlockRef init = schedule.decompose_reduction(block, first_k);
    vectorize_below(schedule, init, tile, axis, width);
    for (const BlockRef& last : out) vectorize_below(schedule, last, tile, axis_of_result, c.stored_lanes(lanes));
    return out;
  }
  const auto [copy, out, in_registers, in_memory] = keep_on_stack(schedule, block, tile);
  const size_t rank = in_registers->shape.size();
  schedule.transform_layout(in_registers->name, c.atom.spans_rows() ? tile_map(c, rank, axis) : axis_last(rank, axis));
  schedule.transform_layout(in_memory, c.atom.is_on_tiles() ? tile_map(c, rank, axis) : axis_last(rank, axis));
  const BlockRef init = schedule.decompose_reduction(block, first_k);
  const std::string suffix = dtype == f32 ? "_f32" : "_i32";
  if (c.atom.is_on_tiles()) {
    tensorize_tiles(schedule, init, c, tile, "tile_zero" + suffix);
    tensorize_tiles(schedule, copy, c, tile, "tile_store" + suffix);
  } else {
    if (c.atom.is_matrix())
      tensorize_tiles(schedule, init, c, tile, "matrix_zero" + suffix);
    else
      vectorize_below(schedule, init, tile, axis, width);
    vectorize_below(schedule, copy, tile, axis, width);
  }
  for (const BlockRef& last : out) {
    if (c.is_across) {
      vectorize_columns(schedule, last, c, tile, lanes);
      continue;
    }
    vectorize_in_memory(schedule, last, tile, axis, lanes);
    if (!c.analysis.is_open(c.rows.back())) continue;
    // What fills up the last tile is left out.
    const Var row = analyse(schedule.node(last)).spatial().at(position_of(c.analysis, c.rows.back()));
    skip_beyond(schedule, loops_below(schedule, last, tile, row));
  }
  return out;
}

int64_t decide_k_unroll(Schedule& schedule, int64_t extent, int64_t multiply_adds, int64_t analytic, bool has_rest,
                        const Target& target) {
  constexpr int64_t most_steps = 32, long_loop = 8;
  const double step = std::max<double>(static_cast<double>(multiply_adds) / target.fma_ports, target.fma_latency);
  std::vector<Candidate> candidates;
  for (int64_t steps = 1; steps <= std::min(extent, most_steps); ++steps) {
    const bool is_few = std::has_single_bit(static_cast<uint64_t>(steps));
    const bool divides = extent % steps == 0 && (is_few || steps == extent);
    if (!divides && !(has_rest && is_few && extent >= long_loop * steps)) continue;
    // What a loop takes for itself, of which most hides behind the arithmetic.
    candidates.push_back({{steps}, 1 + 0.4 / (step * static_cast<double>(steps))});
  }
  return schedule.decide("k_unroll", candidates, {analytic})[0];
}

LoopRef tile_in_registers(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes,
                          const Target& target, std::optional<size_t> vector_axis) {
  schedule.compute_at(block, tile);
  set_scope_of(schedule, block, Scope::register_);
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const size_t rank = analysis.write.buffer->shape.size(), axis = vector_axis.value_or(analysis.spatial().size() - 1);
  if (vector_axis && axis + 1 < rank) schedule.transform_layout(analysis.write.buffer->name, axis_last(rank, axis));
  std::vector<LoopRef> loops = loops_below(schedule, block, tile);
  const auto summed = static_cast<std::ptrdiff_t>(analysis.reduce().size());
  const std::vector<LoopRef> results(loops.begin(), loops.end() - summed);
  loops.erase(loops.begin(), loops.end() - summed);
  constexpr int64_t few_steps = 4, long_sum = 32;
  const int64_t extent = extent_of(schedule, loops.back());
  const int64_t multiply_adds = divide_up(count_iterations(schedule, results), lanes);
  const int64_t analytic = extent >= long_sum ? few_steps : std::gcd(extent, few_steps);
  const int64_t count = decide_k_unroll(schedule, extent, multiply_adds, analytic, true, target);
  const auto steps = schedule.split(loops.back(), {std::nullopt, count});
  const LoopRef k = loops.back() = steps[0];
  schedule.reorder(in_order(loops, steps[1], results));
  const BlockRef init = schedule.decompose_reduction(block, loops[0]);
  vectorize_below(schedule, init, tile, axis, lanes);
  vectorize_below(schedule, block, k, axis, lanes);
  return k;
}

}  // namespace tw::cpu
