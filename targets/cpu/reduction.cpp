// Reductions that are no contraction with a broadcast operand: sums, extrema, pooling, depthwise convolution, dot
// products.
//
// Over a spatial axis that is contiguous in memory the lanes are independent results, whose data may be gathered. Where
// only the reduced axis is contiguous, each lane makes a partial result (rfactor), and a second block joins them.
#include <algorithm>

#include "targets/cpu/contraction/tile_model.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/match.h"

namespace tw::cpu {
namespace {

constexpr int64_t largest_stride = 4;  // of vectors that are put together from a few loads

bool moves_by_zero_or_one(const BlockAnalysis& analysis, const Var& v, int granule) {
  return std::all_of(analysis.reads.begin(), analysis.reads.end(), [&](const Access& read) {
    const auto stride = unit_stride(read, v, analysis.iters, granule);
    return stride && (*stride == 0 || *stride == 1);
  });
}

// Weights that move with the vector axis, but not by one element (a depthwise filter [c, 1, kh, kw]), become vectors.
void pack_filters(Schedule& schedule, const BlockAnalysis& analysis, const Var& axis, int lanes) {
  std::vector<Buffer> packed;  // a table may be read several times
  for (const Access& read : analysis.reads) {
    if (!read.buffer->is_constant || !read.uses(axis)) continue;
    if (std::find(packed.begin(), packed.end(), read.buffer) != packed.end()) continue;
    if (unit_stride(read, axis, analysis.iters, lanes) == 1) continue;
    const int dimension = dimension_of(read, axis);
    if (dimension < 0) continue;
    IndexMap map = layout_of(read.indices.size());
    map.to.push_back(floor_div(map.from[dimension], lanes));
    for (size_t d = 0; d < read.indices.size(); ++d)
      if (static_cast<int>(d) != dimension) map.to.push_back(map.from[d]);
    map.to.push_back(floor_mod(map.from[dimension], lanes));
    schedule.transform_layout(read.buffer->name, map);
    packed.push_back(read.buffer);
  }
}

// Without such a row: vectors side by side that are summed together, of `extent` lanes and more in `others` places.
// They hide each other's latency, and memory is read in longer pieces.
int64_t decide_vectors(Schedule& schedule, int64_t extent, int64_t others, int lanes, const Target& target) {
  constexpr int64_t most_vectors = 16, usual_vectors = 8, tasks_a_thread = 2;
  std::vector<Candidate> candidates;
  int64_t best = 1;
  for (int64_t vectors = 1; vectors <= most_vectors; vectors *= 2) {
    if (extent % (vectors * lanes) != 0 && vectors > 1) break;
    if (vectors <= usual_vectors && extent / (vectors * lanes) * others >= tasks_a_thread * target.threads)
      best = vectors;
    const auto n = static_cast<double>(vectors);
    candidates.push_back({{vectors}, std::max(n / target.load_ports, static_cast<double>(target.fma_latency)) / n});
  }
  return schedule.decide("vectors", candidates, {best})[0];
}

// Whether neighbours along `row` read some of the same: a filter, or overlapping windows.
bool shares_reads(const BlockAnalysis& analysis, const Var& row) {
  const std::vector<Var> reduce = analysis.reduce();
  return std::any_of(analysis.reads.begin(), analysis.reads.end(), [&](const Access& read) {
    if (!read.uses(row)) return true;
    return std::any_of(read.indices.begin(), read.indices.end(), [&](const Expr& index) {
      return uses_var(index, row) &&
             std::any_of(reduce.begin(), reduce.end(), [&](const Var& v) { return uses_var(index, v); });
    });
  });
}

// The loops outside of a tile as one to share out.  That over a row's tiles stays its own where their number is open:
// in order, addresses advance by constants, and the row's last tile is known by its number.
TileLoops fuse_around_tiles(Schedule& schedule, std::vector<LoopRef> outer, const std::optional<LoopRef>& row_tiles) {
  if (!row_tiles || !is_open(schedule, *row_tiles) || outer.size() < 2) {
    put_open_first(schedule, outer, true);
    const LoopRef all = as_one(schedule, outer);
    return {all, all};
  }
  std::erase(outer, *row_tiles);
  schedule.reorder(in_order(outer, *row_tiles));
  return {as_one(schedule, outer), *row_tiles};
}

std::vector<Var> without(std::vector<Var> axes, const std::vector<Var>& some) {
  std::erase_if(axes, [&](const Var& v) { return std::find(some.begin(), some.end(), v) != some.end(); });
  return axes;
}

// With a padded input, a task takes a strip of rows and pads its own part: the axis in front of the row's where the
// row's pixels are vectors of channels, and the row itself where the vectors are along the last axis.
struct Strip {
  Var axis;
  int64_t rows = 0;  // 0: padding stays a pass of its own
};

Strip choose_strip(Schedule& schedule, const BlockRef& padding, const BlockAnalysis& analysis, const Var& axis,
                   const Var& row, int lanes, const Target& target) {
  const std::vector<Var> spatial = analysis.spatial();
  const size_t at = position_of(analysis, axis), at_row = position_of(analysis, row);
  if (at_row > at + 1) {
    const Var& around = spatial[at_row - 1];
    const int64_t blocks = count_iterations(analysis, without(spatial, {row, around})) / lanes;
    return {around, decide_strip(schedule, padding, analysis, around, std::max<int64_t>(1, blocks), target)};
  }
  if (at_row + 1 != at || at + 1 != spatial.size() || spatial.size() < 3 || analysis.is_open(row)) return {};
  const int64_t blocks = count_iterations(analysis, without(spatial, {row, axis}));
  return {row, decide_strip(schedule, padding, analysis, row, blocks, target)};
}

// Lanes are independent results along `axis`; a few positions of another axis, or vectors side by side, hide the
// latency.
void schedule_over_spatial(Schedule& schedule, const BlockRef& block, const Var& axis, int lanes,
                           const Target& target) {
  pack_filters(schedule, analyse(schedule.node(block)), axis, lanes);
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const std::vector<Var> spatial = analysis.spatial();

  std::vector<LoopRef> outer, reduce;
  Var row_axis;
  for (const Var& v : spatial)
    if (!(v == axis) && analysis.extent(v) > 1) row_axis = v;
  // Rows that share nothing are streams of their own: a longer piece of one is better than a vector of each.
  const bool has_vectors = as_int(analysis.iter(axis).extent) && analysis.extent(axis) % (2 * lanes) == 0;
  if (row_axis.is_defined() && (has_vectors || analysis.is_open(row_axis)) && !shares_reads(analysis, row_axis))
    row_axis = Var();
  const int64_t window = analysis.extent(analysis.reduce().back());
  int rows = row_axis.is_defined() ? decide_rows(schedule, as_int(analysis.iter(row_axis).extent), window, target) : 1;
  const auto padding = find_padding(schedule, block);
  const auto [strip_axis, strip] = padding && row_axis.is_defined()
                                       ? choose_strip(schedule, *padding, analysis, axis, row_axis, lanes, target)
                                       : Strip();
  while (strip > 0 && strip_axis == row_axis && strip % rows != 0) --rows;

  int64_t vectors = 1;
  if (!row_axis.is_defined() && has_vectors) {
    const int64_t others = count_iterations(analysis, without(spatial, {axis}));
    vectors = decide_vectors(schedule, analysis.extent(axis), others, lanes, target);
  }
  std::optional<LoopRef> row, row_tiles;
  std::vector<LoopRef> lane = schedule.split(loops_of(schedule, block, axis).at(0), {std::nullopt, lanes});
  if (vectors > 1) {
    const auto parts = schedule.split(lane[0], {std::nullopt, vectors});
    lane[0] = parts[0], row = parts[1];
  }
  std::vector<LoopRef> inner;  // within a strip
  for (const Var& v : spatial) {
    std::vector<LoopRef>& here = inner.empty() ? outer : inner;
    if (v == axis) {
      here.push_back(lane[0]);
    } else if (strip > 0 && v == strip_axis) {
      const auto halves = schedule.split(loops_of(schedule, block, v).at(0), {std::nullopt, strip});
      outer.push_back(halves[0]), inner.push_back(halves[1]);
      if (analysis.is_open(v)) skip_beyond(schedule, {halves[1]});
      if (v == row_axis && rows > 1) {
        const auto parts = schedule.split(halves[1], {std::nullopt, rows});
        inner.back() = parts[0], row = parts[1];
      }
    } else if (row_axis.is_defined() && v == row_axis && rows > 1) {
      const auto halves = schedule.split(loops_of(schedule, block, v).at(0), {std::nullopt, rows});
      here.push_back(halves[0]), row = halves[1];
      row_tiles = halves[0];
    } else {
      here.push_back(loops_of(schedule, block, v).at(0));
    }
  }
  for (const Var& v : analysis.reduce()) reduce.push_back(loops_of(schedule, block, v).at(0));
  // Blocks of channels within image rows: what the worker reads it has mostly written itself (default_schedule.h).
  const auto at = std::find(outer.begin(), outer.end(), lane[0]);
  if (at != outer.end() && std::next(at) != outer.end()) std::iter_swap(at, std::next(at));
  schedule.reorder(in_order(outer, inner, reduce, row, lane[1]));
  put_open_first(schedule, outer, true);
  const size_t unrolled = decide_window_unroll(schedule, reduce, rows);
  auto [parallel, tile] = fuse_around_tiles(schedule, inner.empty() ? outer : inner, row_tiles);
  if (!inner.empty()) parallel = as_one(schedule, outer);
  const size_t position = position_of(analysis, axis);
  const std::vector<BlockRef> out = keep_in_registers(schedule, block, tile, position);
  const BlockRef init = schedule.decompose_reduction(block, reduce[0]);
  vectorize_below(schedule, init, tile, position, lanes);
  for (const BlockRef& last : out) vectorize_below(schedule, last, tile, position, lanes);
  for (size_t l = reduce.size() - unrolled; l < reduce.size(); ++l) schedule.unroll(reduce[l]);
  if (row) schedule.unroll(*row);
  schedule.vectorize(lane[1]);
  if (!inner.empty()) compute_padding_at(schedule, *padding, parallel, lanes);
  share_out(schedule, parallel);
}

// Where the element lies is read from memory.
bool is_looked_up(const Access& read) {
  return std::any_of(read.indices.begin(), read.indices.end(), [](const Expr& index) {
    bool has_load = false;
    visit(index, [&](const Load&) { has_load = true; });
    return has_load;
  });
}

// Lanes are partial results along the reduced axis; the results' own loops are shared out.
void schedule_over_reduced(Schedule& schedule, const BlockRef& block, const Var& axis, int lanes,
                           const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  std::vector<LoopRef> outer, reduce;
  for (const Var& v : analysis.spatial()) {
    for (const LoopRef& loop : loops_of(schedule, block, v)) outer.push_back(loop);
  }
  if (outer.empty()) return;  // one result: the template for a single row does not pay
  put_open_first(schedule, outer, true);
  for (const Var& v : analysis.reduce()) {
    if (!(v == axis)) reduce.push_back(loops_of(schedule, block, v).at(0));
  }
  schedule.reorder(in_order(outer, reduce, loops_of(schedule, block, axis).at(0)));
  const auto [parallel, tile] = fuse_shared(schedule, outer);
  reduce_in_lanes(schedule, block, tile, lanes);
  if (extent_of(schedule, parallel) >= target.threads) share_out(schedule, parallel);
}

}  // namespace

int decide_rows(Schedule& schedule, std::optional<int64_t> extent, int64_t window, const Target& target) {
  // What wide windows share grows with the positions, up to what the registers hold besides.
  constexpr int64_t usual = 8, wide = 5;
  const int64_t most = window < wide ? usual : std::max<int64_t>(usual, target.vector_registers * 7 / 16);
  std::vector<Candidate> candidates;
  int64_t best = 1;
  for (int64_t rows = 1; rows <= target.vector_registers / 2; ++rows) {
    if (extent.value_or(rows) % rows != 0) continue;
    if (rows <= most) best = rows;
    // A step loads the filter once and its share of the positions' data; a sum waits for its last step.
    const auto n = static_cast<double>(rows), w = static_cast<double>(std::clamp<int64_t>(window, 1, usual));
    const double step = std::max(
        {n / target.fma_ports, ((n + w - 1) / w + 1) / target.load_ports, static_cast<double>(target.fma_latency)});
    candidates.push_back({{rows}, step / n});
  }
  return static_cast<int>(schedule.decide("rows", candidates, {best})[0]);
}

size_t decide_window_unroll(Schedule& schedule, const std::vector<LoopRef>& reduce, int rows) {
  constexpr int64_t most_steps = 32, most_operations = 512;
  std::vector<Candidate> candidates{{{0}, 1}};
  int64_t steps = 1, window_row = 0;
  for (size_t n = 1; n <= reduce.size(); ++n) {
    const LoopRef& loop = reduce[reduce.size() - n];
    const int64_t extent = extent_of(schedule, loop);
    steps *= extent;
    if (is_open(schedule, loop) || steps > most_steps || steps * rows > most_operations) break;
    if (extent == 1) continue;
    candidates.push_back({{static_cast<int64_t>(n)}, rows > 1 ? 0.85 : 0.98});
    if (window_row == 0) window_row = static_cast<int64_t>(n);
  }
  return static_cast<size_t>(schedule.decide("window_unroll", candidates, {rows > 1 ? window_row : 0})[0]);
}

void reduce_in_lanes(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes) {
  const LoopRef reduced = schedule.loops(block).back();
  const int64_t extent = extent_of(schedule, reduced);
  if (extent < 2 * lanes) return;
  // Several vectors of partial results, where they lie together and there is work for them: one alone waits for itself
  // in each step.
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const bool lie_together = moves_by_zero_or_one(analysis, analysis.reduce().back(), 4 * lanes);
  const int width = extent >= 8 * lanes && lie_together ? 4 * lanes : lanes;
  const LoopRef join = schedule.split(reduced, {std::nullopt, width})[1];
  const BlockRef partial = schedule.rfactor(join, 0);
  const std::vector<LoopRef> around = schedule.loops(partial);
  if (std::find(around.begin(), around.end(), tile) == around.end()) schedule.compute_at(partial, tile);
  const BlockAnalysis inner = analyse(schedule.node(partial));
  const LoopRef lane = loops_of(schedule, partial, inner.spatial().at(0)).at(0);
  std::vector<LoopRef> reduce;
  for (const Var& v : inner.reduce()) {
    for (const LoopRef& loop : loops_of(schedule, partial, v)) reduce.push_back(loop);
  }
  schedule.reorder(in_order(reduce, lane));
  const BlockRef init = schedule.decompose_reduction(partial, reduce.at(0));
  vectorize_below(schedule, init, tile, 0, width);
  schedule.vectorize(lane);
  const LoopRef lanes_loop = schedule.loops(block).back();
  schedule.decompose_reduction(block, lanes_loop);
  schedule.vectorize(lanes_loop);
  schedule.set_scope(inner.write.buffer->name, Scope::register_);
}

bool schedule_reduction(Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (analysis.block_class != BlockClass::reduction && analysis.block_class != BlockClass::contraction) return false;
  const int lanes = compute_lanes(analysis.write.buffer->dtype, target);
  const std::vector<Var> spatial = analysis.spatial();
  const auto is_vector = [&](const Access& read, const Var& v, int width) {
    const auto stride = unit_stride(read, v, analysis.iters, width);
    return (stride && *stride >= 0 && *stride <= largest_stride) || read.buffer->is_constant;
  };
  // Vectors of small elements are as long as what is contiguous: blocks of a layout have lanes of f32.
  const auto schedule_over_results = [&](const auto& is_readable) {
    for (int width = lanes; width >= std::min(lanes, target.lanes(f32)); width /= 2) {
      for (auto v = spatial.rbegin(); v != spatial.rend(); ++v) {
        if (analysis.extent(*v) < 2 || result_stride(schedule, block, *v, width) != 1) continue;
        const auto reads_vectors = [&](const Access& read) { return is_readable(read, *v, width); };
        if (!std::all_of(analysis.reads.begin(), analysis.reads.end(), reads_vectors)) continue;
        schedule_over_spatial(schedule, block, *v, width, target);
        return true;
      }
    }
    return false;
  };
  if (schedule_over_results(is_vector)) return true;
  const std::vector<Var> reduce = analysis.reduce();
  for (auto v = reduce.rbegin(); v != reduce.rend(); ++v) {
    if (analysis.extent(*v) < 2 * lanes || !moves_by_zero_or_one(analysis, *v, static_cast<int>(analysis.extent(*v))))
      continue;
    schedule_over_reduced(schedule, block, *v, lanes, target);
    return true;
  }
  // What tables say to read is gathered, for several rows by one look at the tables.
  if (schedule_over_results(
          [&](const Access& read, const Var& v, int width) { return is_vector(read, v, width) || is_looked_up(read); }))
    return true;
  // Neither: results are shared out, each computed alone.
  std::vector<LoopRef> outer;
  for (const Var& v : spatial)
    for (const LoopRef& loop : loops_of(schedule, block, v)) outer.push_back(loop);
  if (outer.empty()) return true;
  const LoopRef parallel = fuse_shared(schedule, outer).parallel;
  if (extent_of(schedule, parallel) >= target.threads) share_out(schedule, parallel);
  return true;
}

}  // namespace tw::cpu
