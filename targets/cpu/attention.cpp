// Attention, whole: scores of a few queries at a time, which never leave the core's caches.
//
//   for head parallel {                                 [batch, head], and chunks of queries where heads are few
//     K = kᵀ in panels of keys                          on the worker's stack
//     for rows in queries by R {
//       query = scale · q[rows]
//       for panel of keys { S[rows, panel] = query · K } a register tile, mask applied while it is in registers
//       largest, weights = e^(S - largest), sum          R rows at once, partial results in registers
//       for columns { out[rows] = (weights · v) / sum }  a register tile
//     }
//   }
//
// One query a head (decoding): the rows are the query heads that share a head of k; k is read once, so it is not
// packed: scores are dot products along its rows.
//
// The blocks are those of relay_ir's operator attention (ops/attention_op.cpp), known by their names.
#include <algorithm>

#include "targets/cpu/default_schedule.h"
#include "targets/cpu/tile_model.h"
#include "tensor_ir/match.h"

namespace tw::cpu {
namespace {

const BlockRef query{"attention_query"}, scores{"attention_scores"}, masked{"attention_masked"},
    largest{"attention_max"}, weights{"attention_weights"}, total{"attention_sum"}, mixed{"attention_mixed"},
    result{"attention"};

bool is_stage(const BlockRef& block) {
  return block.name.starts_with("attention");
}

std::vector<LoopRef> loops_below(const Schedule& schedule, const BlockRef& block, const LoopRef& loop) {
  std::vector<LoopRef> loops = schedule.loops(block);
  loops.erase(loops.begin(), std::find(loops.begin(), loops.end(), loop) + 1);
  return loops;
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

void unroll_all(Schedule& schedule, const std::vector<LoopRef>& loops) {
  for (const LoopRef& loop : loops) schedule.unroll(loop);
}

// Transposes and slices of the operands become indices of the stages, and those of the result indices of the last one.
void inline_moves(Schedule& schedule) {
  for (const BlockRef& block : schedule.blocks()) {
    const bool is_last = block == schedule.blocks().back();
    if (!is_last && (!is_stage(block) || block == result)) schedule.compute_inline(block);
  }
}

// How the last block runs over the result.
struct Output {
  BlockRef block;
  std::vector<LoopRef> batch;
  LoopRef heads, queries, columns;
};

std::optional<Output> match_output(const Schedule& schedule) {
  const BlockRef last = schedule.blocks().back();
  const BlockAnalysis analysis = analyse(schedule.node(last));
  const Buffer& source = analyse(schedule.node(mixed)).write.buffer;
  const auto read = std::find_if(analysis.reads.begin(), analysis.reads.end(),
                                 [&](const Access& access) { return access.buffer == source; });
  if (read == analysis.reads.end() || read->indices.size() < 4) return std::nullopt;
  const size_t rank = read->indices.size();
  Var heads, queries, columns;
  std::vector<Var> batch;
  for (const Var& v : analysis.spatial()) {
    if (uses_var(read->indices[rank - 4], v)) {
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

// Extents: of the stages' own axes.
struct Extents {
  int64_t group, queries, keys, size, columns;
};

Extents extents_of(const Schedule& schedule) {
  const BlockAnalysis of_scores = analyse(schedule.node(scores)), of_mixed = analyse(schedule.node(mixed));
  const std::vector<Var> axes = of_scores.spatial();
  const auto extent = [&](size_t from_last) { return of_scores.extent(axes[axes.size() - 1 - from_last]); };
  return {extent(2), extent(1), extent(0), of_scores.extent(of_scores.reduce().at(0)),
          of_mixed.extent(of_mixed.spatial().back())};
}

// Many rows and two vectors: keys and values stream from the second cache, and each vector of them serves all rows.  Of
// the tallest tiles the one whose last rows are most in use.
RegisterTile tall_tile(int64_t rows, int64_t vectors, const Target& target) {
  RegisterTile tile{1, static_cast<int>(std::min<int64_t>(vectors, 2))};
  const int most = std::max(1, (target.vector_registers - 2 - tile.vectors) / tile.vectors);
  const auto computed = [&](int64_t r) { return (rows + r - 1) / r * r; };
  tile.rows = static_cast<int>(std::min<int64_t>(rows, std::min(most, 12)));
  for (int r = tile.rows - 1; r >= (tile.rows * 2 + 2) / 3; --r) {
    if (computed(r) < computed(tile.rows)) tile.rows = r;
  }
  return tile;
}

// As many vectors beside `rows` as registers hold, without a last panel of little use.
int vectors_beside(int rows, int64_t vectors, const Target& target) {
  int best = 1;
  const auto waste = [&](int v) { return (vectors + v - 1) / v * v - vectors; };
  for (int v = 1; v <= std::min<int64_t>(vectors, 4); ++v) {
    if (rows * v + v + 1 <= target.vector_registers - 1 && waste(v) <= waste(best)) best = v;
  }
  return best;
}

// A copy of k as panels of `width` keys, each [element][key].
BlockRef pack_keys(Schedule& schedule, int64_t width) {
  const BlockAnalysis analysis = analyse(schedule.node(scores));
  const Access& read = analysis.reads.at(1);
  const Var key = analysis.spatial().back(), element = analysis.reduce().at(0);
  IndexMap map;
  Expr of_key, of_element;
  for (size_t d = 0; d < read.indices.size(); ++d) {
    map.from.push_back(Var("d" + std::to_string(d)));
    if (read.uses(key) && uses_var(read.indices[d], key)) {
      of_key = map.from[d];
    } else if (uses_var(read.indices[d], element)) {
      of_element = map.from[d];
    } else {
      map.to.push_back(map.from[d]);
    }
  }
  map.to.insert(map.to.end(), {floor_div(of_key, width), of_element, floor_mod(of_key, width)});
  const BlockRef copy = schedule.cache_read(scores, read.buffer->name, Scope::stack);
  schedule.transform_layout(analyse(schedule.node(copy)).write.buffer->name, map);
  return copy;
}

// rows × columns of a contraction within `tile`, kept in registers: its own loops there are … rows, columns, reduced.
void tile_in_registers(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes) {
  schedule.compute_at(block, tile);
  schedule.set_scope(analyse(schedule.node(block)).write.buffer->name, Scope::register_);
  std::vector<LoopRef> loops = loops_below(schedule, block, tile);
  const LoopRef reduced = loops.back();
  loops.pop_back();
  loops.insert(loops.begin(), reduced);
  schedule.reorder(loops);
  const BlockRef init = schedule.decompose_reduction(block, reduced);
  const size_t axis = analyse(schedule.node(block)).spatial().size() - 1;
  vectorize_below(schedule, init, tile, axis, lanes);
  vectorize_below(schedule, block, reduced, axis, lanes);
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

// Largest or sum of each row.
void reduce_rows(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes) {
  if (extent_of(schedule, schedule.loops(block).back()) >= 2 * lanes) reduce_in_registers(schedule, block, tile, lanes);
}

// Scores as dot products along the elements, key by key.
void dot_products(Schedule& schedule, const LoopRef& tile, int lanes) {
  std::vector<LoopRef> loops = loops_below(schedule, scores, tile);  // … group, query, key, element
  const LoopRef key = loops[loops.size() - 2];
  loops.erase(loops.end() - 2);
  loops.insert(loops.begin(), key);
  schedule.reorder(loops);
  const BlockRef partial = reduce_in_registers(schedule, scores, key, lanes);
  schedule.unroll(loops_of(schedule, partial, analyse(schedule.node(partial)).reduce().at(0)).at(0));
}

void vectorize_keys(Schedule& schedule, const BlockRef& block, int lanes) {
  const LoopRef along = schedule.loops(block).back();
  if (extent_of(schedule, along) > lanes) {
    schedule.vectorize(schedule.split(along, {std::nullopt, lanes})[1]);
  } else {
    schedule.vectorize(along);
  }
}

}  // namespace

bool schedule_attention(Schedule& schedule, const Target& target) {
  if (!has_block(schedule, mixed) || !has_block(schedule, scores)) return false;
  inline_moves(schedule);
  const auto matched = match_output(schedule);
  const Extents extents = extents_of(schedule);
  if (!matched || extents.group * extents.queries * extents.keys * extents.size * extents.columns == 0) return false;
  const Output& output = *matched;
  const int lanes = target.lanes(analyse(schedule.node(mixed)).write.buffer->dtype);
  const auto vectors = [&](int64_t extent) { return (extent + lanes - 1) / lanes; };

  // Rows of a tile: queries of one head or, where there is one query only, heads that share their keys.
  const bool is_decoding = extents.queries == 1;
  const int64_t rows = is_decoding ? extents.group : extents.queries;
  RegisterTile tile = is_decoding ? choose_tile(rows, vectors(extents.columns), extents.keys, target)
                                  : tall_tile(rows, vectors(extents.columns), target);
  if (is_decoding) {
    while (extents.group % tile.rows != 0) --tile.rows;
  }
  const bool packs_keys = !is_decoding || extents.size % lanes != 0 || extents.size < 2 * lanes;

  // The result's loops: [batch, head, …] | rows, columns | the tile.
  std::vector<LoopRef> outer = output.batch, within;
  std::vector<LoopRef> order = outer;
  std::optional<LoopRef> row_tile;
  if (is_decoding) {
    const auto heads = schedule.split(output.heads, {std::nullopt, tile.rows});
    outer.push_back(heads[0]);
    within = {heads[1], output.queries};
  } else {
    outer.push_back(output.heads);
    const int64_t tiles = (extents.queries + tile.rows - 1) / tile.rows, heads = count_iterations(schedule, outer);
    // Few heads: each is several tasks, all of which pack its keys.
    const int64_t chunks = heads >= target.threads ? 1 : std::min(tiles, (target.threads + heads - 1) / heads);
    if (is_open(schedule, output.queries)) {
      const auto queries = schedule.split(output.queries, {std::nullopt, tile.rows});
      row_tile = queries[0];
      within = {queries[1]};
    } else {
      const auto queries = schedule.split(output.queries, {std::nullopt, (tiles + chunks - 1) / chunks, tile.rows});
      outer.push_back(queries[0]);
      row_tile = queries[1];
      within = {queries[2]};
    }
  }
  const auto columns = schedule.split(output.columns, {std::nullopt, tile.vectors, lanes});
  order = outer;
  if (row_tile) order.push_back(*row_tile);
  order.push_back(columns[0]);
  order.insert(order.end(), within.begin(), within.end());
  order.insert(order.end(), {columns[1], columns[2]});
  schedule.reorder(order);
  const LoopRef task = outer.size() > 1 ? schedule.fuse(outer) : outer[0];
  const LoopRef row = row_tile.value_or(task);

  // Stages to where their consumers are, last first.
  const bool has_mask = has_block(schedule, masked);
  const BlockRef scored =
      has_mask ? masked
               : schedule.cache_write(scores, analyse(schedule.node(scores)).write.buffer->name, Scope::register_);
  tile_in_registers(schedule, mixed, columns[0], lanes);
  unroll_all(schedule, within);
  schedule.unroll(columns[1]);
  schedule.vectorize(columns[2]);
  for (const BlockRef& stage : {total, weights, largest, scored}) {
    schedule.compute_at(stage, row);
    schedule.set_scope(analyse(schedule.node(stage)).write.buffer->name, Scope::stack);
  }
  if (packs_keys) {
    const int panel = vectors_beside(tile.rows, vectors(extents.keys), target);
    const BlockRef copy = pack_keys(schedule, static_cast<int64_t>(panel) * lanes);
    std::vector<LoopRef> loops = loops_below(schedule, scored, row);
    const auto keys = schedule.split(loops.back(), {std::nullopt, panel, lanes});
    loops.pop_back();
    std::vector<LoopRef> tiled{keys[0]};
    tiled.insert(tiled.end(), loops.begin(), loops.end());
    tiled.insert(tiled.end(), {keys[1], keys[2]});
    schedule.reorder(tiled);
    tile_in_registers(schedule, scores, keys[0], lanes);
    schedule.compute_at(copy, task);
    unroll_all(schedule, loops);
    schedule.unroll(keys[1]);
    schedule.vectorize(keys[2]);
  } else {
    schedule.compute_at(scores, row);
    schedule.set_scope(analyse(schedule.node(scores)).write.buffer->name, Scope::stack);
    dot_products(schedule, row, lanes);
    vectorize_keys(schedule, scored, lanes);
  }
  schedule.compute_at(query, row);
  schedule.set_scope(analyse(schedule.node(query)).write.buffer->name, Scope::stack);
  vectorize_keys(schedule, query, lanes);
  vectorize_keys(schedule, weights, lanes);
  reduce_rows(schedule, largest, row, lanes);
  reduce_rows(schedule, total, row, lanes);
  share_out(schedule, task);
  return true;
}

}  // namespace tw::cpu
