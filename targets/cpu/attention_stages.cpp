#include "targets/cpu/attention_stages.h"

#include <algorithm>

#include "runtime/rounding.h"
#include "targets/cpu/contraction/packing.h"
#include "tensor_ir/match.h"

namespace tw::cpu::attention {
namespace {

bool is_stage(const BlockRef& block) {
  return block.name.starts_with("attention");
}

// The join of lanes' partial results: the block's loops are … results, lane.
void join_lanes(Schedule& schedule, const BlockRef& block, const LoopRef& tile) {
  const LoopRef lane = schedule.loops(block).back();
  schedule.decompose_reduction(block, lane);
  for (const LoopRef& loop : loops_below(schedule, block, tile)) {
    if (!(loop == lane)) schedule.unroll(loop);
  }
  schedule.vectorize(lane);
}

// The innermost, reduced loop of the block: lanes make partial results in registers within `tile`, those of all results
// side by side, and are joined there.  The lanes are the partial results' last dimension: a vector each.
BlockRef reduce_in_registers(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes) {
  const LoopRef along = schedule.loops(block).back();
  const int rank = analyse(schedule.node(block)).write.buffer.rank();
  const BlockRef partial = schedule.rfactor(schedule.split(along, {std::nullopt, lanes})[1], rank);
  const std::vector<LoopRef> around = schedule.loops(partial);
  if (std::find(around.begin(), around.end(), tile) == around.end()) schedule.compute_at(partial, tile);
  const BlockAnalysis analysis = analyse(schedule.node(partial));
  schedule.set_scope(analysis.write.buffer->name, Scope::register_);
  const LoopRef reduced = loops_of(schedule, partial, analysis.reduce().at(0)).at(0);
  std::vector<LoopRef> loops = loops_below(schedule, partial, tile);
  std::erase(loops, reduced);
  loops.insert(loops.begin(), reduced);
  schedule.reorder(loops);
  const BlockRef init = schedule.decompose_reduction(partial, reduced);
  const size_t axis = position_of(analysis, Var::of(analysis.write.indices.back()));
  vectorize_below(schedule, init, tile, axis, lanes);
  vectorize_below(schedule, partial, reduced, axis, lanes);
  join_lanes(schedule, block, tile);
  return partial;
}

// The block that makes the keys, where they are a part of something else or lie in another order.
std::optional<BlockRef> find_move_of_keys(const Schedule& schedule) {
  const Buffer keys = analyse(schedule.node(scores)).reads.at(1).buffer;
  for (const BlockRef& block : schedule.blocks())
    if (!is_stage(block) && written_by(schedule, block) == keys) return block;
  return std::nullopt;
}

}  // namespace

void unroll_all(Schedule& schedule, const std::vector<LoopRef>& loops) {
  for (const LoopRef& loop : loops) schedule.unroll(loop);
}

void inline_moves(Schedule& schedule) {
  const std::optional<BlockRef> of_keys = find_move_of_keys(schedule);
  for (const BlockRef& block : schedule.blocks()) {
    const bool is_last = block == schedule.blocks().back();
    if (!is_last && block != of_keys && (!is_stage(block) || block == result)) schedule.compute_inline(block);
  }
}

void inline_keys(Schedule& schedule) {
  if (const auto move = find_move_of_keys(schedule)) schedule.compute_inline(*move);
}

Extents extents_of(const Schedule& schedule) {
  const BlockAnalysis of_scores = analyse(schedule.node(scores)), of_mixed = analyse(schedule.node(mixed));
  const std::vector<Var> axes = of_scores.spatial();  // batch …, head of k, group, query, part if there are, key
  const size_t parts = has_block(schedule, joined) ? 1 : 0;
  const auto extent = [&](size_t from_last) { return of_scores.extent(axes[axes.size() - 1 - from_last]); };
  return {extent(2 + parts), extent(1 + parts), extent(0), of_scores.extent(of_scores.reduce().at(0)),
          of_mixed.extent(of_mixed.spatial().back())};
}

BlockRef finish_scores(Schedule& schedule, Scope scope) {
  return has_block(schedule, masked) ? masked : schedule.cache_write(scores, written_by(schedule, scores)->name, scope);
}

Tile decide_tile(Schedule& schedule, const Extents& e, const TileChoice& choice, int lanes, const Target& target) {
  constexpr double worst_cost = 2;  // of a candidate, by the best one's
  constexpr int64_t most_keys = 4;
  const int64_t rows = e.queries > 1 ? e.queries : e.group;
  const int64_t column_vectors = divide_up(e.columns, lanes), key_vectors = divide_up(e.keys, lanes);
  // Keys and values have the second cache to themselves: three quarters of it, where other sweeps count on half.
  Sweep sweep{.swept_bytes = e.keys * (e.size + e.columns) * f32.bytes() * 2 / 3};
  // One step an iteration: the loop's own instructions take part of its time.
  constexpr double loop_cycles = 1;
  const auto cost = [&](const RegisterTile& tile, int64_t vectors, int64_t k) {
    sweep.row_stride = k * f32.bytes();  // of queries, or of weights
    const auto steps = static_cast<double>(divide_up(rows, tile.rows) * divide_up(vectors, tile.vectors) * k);
    return tile_cost(tile, rows, vectors, k, target, sweep) + loop_cycles * steps;
  };
  // Scores and weights of a tile's rows pass by five times, and once more for each panel of columns: for nothing in the
  // first cache.
  const auto waiting = [&](const RegisterTile& of_columns) {
    const auto row_bytes = static_cast<double>(e.keys) * f32.bytes();
    if (2 * row_bytes * of_columns.rows <= 0.8 * static_cast<double>(target.l1.bytes)) return 0.0;
    const auto passes = static_cast<double>(5 + divide_up(column_vectors, of_columns.vectors));
    return static_cast<double>(rows) * row_bytes * passes / target.l2.rate;
  };
  std::vector<Candidate> candidates;
  for (const RegisterTile& of_columns : tiles_that_fit(rows, column_vectors, target)) {
    if (of_columns.rows > choice.most_rows || (choice.divides_rows && rows % of_columns.rows != 0)) continue;
    const double mixing = cost(of_columns, column_vectors, e.keys) + waiting(of_columns);
    if (!choice.has_keys) candidates.push_back({{of_columns.rows, of_columns.vectors, 0}, mixing});
    for (int keys = 1; choice.has_keys && keys <= std::min(key_vectors, most_keys); ++keys) {
      const RegisterTile of_keys{of_columns.rows, keys};
      if (!fits_registers(of_keys, target) || (choice.divides_keys && key_vectors % keys != 0)) continue;
      candidates.push_back({{of_columns.rows, of_columns.vectors, keys}, mixing + cost(of_keys, key_vectors, e.size)});
    }
  }
  const Candidate best = *std::ranges::min_element(candidates, {}, &Candidate::cost);
  std::erase_if(candidates, [&](const Candidate& c) { return c.cost > worst_cost * best.cost; });
  const Choice decided = schedule.decide("attention_tile", candidates, best.value);
  return {static_cast<int>(decided[0]), static_cast<int>(decided[1]), static_cast<int>(decided[2])};
}

std::optional<Output> match_output(const Schedule& schedule, const BlockRef& source_block) {
  const BlockRef last = schedule.blocks().back();
  const BlockAnalysis analysis = analyse(schedule.node(last));
  const Buffer source = written_by(schedule, source_block);
  const auto read = std::find_if(analysis.reads.begin(), analysis.reads.end(),
                                 [&](const Access& access) { return access.buffer == source; });
  if (read == analysis.reads.end() || read->indices.size() < 4) return std::nullopt;
  const size_t rank = read->indices.size();
  Var heads, queries, columns;
  std::vector<Var> batch;
  for (const Var& v : analysis.spatial()) {
    // The head of k, and the query head of it: one of them is 0 where there is a single one.
    if (uses_var(read->indices[rank - 4], v) || uses_var(read->indices[rank - 3], v)) {
      heads = v;
    } else if (read->indices[rank - 2].get() == v.get()) {
      queries = v;
    } else if (read->indices[rank - 1].get() == v.get()) {
      columns = v;
    } else {
      batch.push_back(v);
    }
  }
  if (!heads.is_defined() || !queries.is_defined() || !columns.is_defined()) return std::nullopt;
  Output output{last,
                {},
                loops_of(schedule, last, heads).at(0),
                loops_of(schedule, last, queries).at(0),
                loops_of(schedule, last, columns).at(0)};
  for (const Var& v : batch) output.batch.push_back(loops_of(schedule, last, v).at(0));
  return output;
}

BlockRef pack_keys(Schedule& schedule, int64_t width, Scope scope) {
  const BlockAnalysis analysis = analyse(schedule.node(scores));
  const Access& read = analysis.reads.at(1);
  const Var key = analysis.spatial().back(), element = analysis.reduce().at(0);
  IndexMap map = layout_of(read.indices.size());
  Expr of_key, of_element;
  for (size_t d = 0; d < read.indices.size(); ++d) {
    if (read.uses(key) && uses_var(read.indices[d], key)) {
      of_key = map.from[d];
    } else if (uses_var(read.indices[d], element)) {
      of_element = map.from[d];
    } else {
      map.to.push_back(map.from[d]);
    }
  }
  map.to.insert(map.to.end(), {floor_div(of_key, width), of_element, floor_mod(of_key, width)});
  const std::optional<BlockRef> move = find_move_of_keys(schedule);  // the copy is what the scores read from now on
  const BlockRef copy = pack_copy(schedule, scores, read, scope, map);
  if (move) schedule.compute_inline(*move);
  return copy;
}

void reduce_rows(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes) {
  if (extent_of(schedule, schedule.loops(block).back()) >= 2 * lanes) reduce_in_registers(schedule, block, tile, lanes);
}

LoopRef dot_products(Schedule& schedule, const LoopRef& tile, int lanes) {
  std::vector<LoopRef> loops = loops_below(schedule, scores, tile);  // … group, query, key, element
  const LoopRef key = loops[loops.size() - 2];
  loops.erase(loops.end() - 2);
  loops.insert(loops.begin(), key);
  schedule.reorder(loops);
  const BlockRef partial = reduce_in_registers(schedule, scores, key, lanes);
  schedule.unroll(loops_of(schedule, partial, analyse(schedule.node(partial)).reduce().at(0)).at(0));
  return key;
}

void vectorize_keys(Schedule& schedule, const BlockRef& block, int lanes) {
  const LoopRef along = schedule.loops(block).back();
  schedule.vectorize(extent_of(schedule, along) > lanes ? schedule.split(along, {std::nullopt, lanes})[1] : along);
}

void skip_unseen_keys(Schedule& schedule, const LoopRef& tile, int64_t panel) {
  constexpr int64_t few_keys = 32;  // of which there is little to leave out
  if (!has_block(schedule, masked) || !schedule.is_masked(masked)) return;
  const BlockAnalysis analysis = analyse(schedule.node(masked));
  const size_t parts = has_block(schedule, joined) ? 1 : 0;
  const Var query = analysis.spatial().at(analysis.spatial().size() - 2 - parts);
  const auto& chosen = *schedule.node(masked).body.as<Store>()->value.as<Select>();
  if (uses_var(chosen.condition, query) && extents_of(schedule).keys > std::max(few_keys, panel))
    schedule.skip_masked(masked, tile);
}

}  // namespace tw::cpu::attention
