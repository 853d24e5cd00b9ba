// Attention, whole: scores of a few queries at a time, which never leave the core's caches.
//
//   for head parallel {                                 [batch, head], and chunks of queries
//     K = kᵀ in panels of keys                          on the worker's stack
//     for rows in queries by R {
//       query = scale · q[rows]
//       for panel of keys { S[rows, panel] = query · K } a register tile, mask applied while it is in registers
//       largest, weights = e^(S - largest), sum          R rows at once, partial results in registers
//       for columns { out[rows] = (weights · v) / sum }  a register tile
//     }
//   }
//
// Under a causal mask all loops over keys end behind the last one that some row sees.
//
// One query a head (decoding): the rows are the query heads that share a head of k; k is read once, so it is not
// packed: scores are dot products along its rows.  Of many keys: attention_parts.cpp.
#include <algorithm>
#include <bit>

#include "runtime/rounding.h"
#include "targets/cpu/attention_stages.h"
#include "targets/cpu/contraction/packing.h"

namespace tw::cpu {

using namespace attention;

namespace {

// Where their number is open, a last tile has code of its own for each that may be left.
constexpr int most_open_rows = 6;

// Into how many chunks the tiles of a head's queries go: fewer heads than threads, or a few more, would leave threads
// without work.  Each chunk packs the keys of its head again.
int64_t choose_chunks(int64_t heads, int64_t tiles, const Tile& tile, int threads) {
  constexpr double packing_rows = 4;  // what packing takes, as rows of queries
  const auto time = [&](int64_t chunks) {
    const auto rows = static_cast<double>(divide_up(tiles, chunks) * tile.rows);
    return static_cast<double>(divide_up(heads * chunks, threads)) * (rows + packing_rows);
  };
  int64_t best = 1;
  for (int64_t chunks = 2; chunks <= std::min<int64_t>(tiles, threads); ++chunks) {
    if (time(chunks) < time(best)) best = chunks;
  }
  return best;
}

}  // namespace

bool schedule_attention(Schedule& schedule, const Target& target) {
  if (!has_block(schedule, mixed) || !has_block(schedule, scores)) return false;
  if (has_block(schedule, joined)) return schedule_attention_parts(schedule, target);
  inline_moves(schedule);
  const auto matched = match_output(schedule, mixed);
  const Extents extents = extents_of(schedule);
  if (!matched || extents.group * extents.queries * extents.keys * extents.size * extents.columns == 0) return false;
  const Output& output = *matched;
  const int lanes = target.lanes(written_by(schedule, mixed)->dtype);

  // Rows of a tile: queries of one head or, where there is one query only, heads that share their keys.
  const bool is_decoding = extents.queries == 1;
  const bool packs_keys = !is_decoding || extents.size % lanes != 0 || extents.size < 2 * lanes;
  TileChoice choice{.has_keys = packs_keys, .divides_rows = is_decoding};
  if (is_open(schedule, output.queries)) choice.most_rows = most_open_rows;
  const Tile tile = decide_tile(schedule, extents, choice, lanes, target);

  // The result's loops: [batch, head, …] | rows, columns | the tile.
  std::vector<LoopRef> outer = output.batch, within;
  std::optional<LoopRef> row_tile;
  if (is_decoding) {
    const auto heads = schedule.split(output.heads, {std::nullopt, tile.rows});
    outer.push_back(heads[0]);
    within = {heads[1], output.queries};
  } else {
    outer.push_back(output.heads);
    const int64_t tiles = divide_up(extents.queries, tile.rows);
    const int64_t chunks = choose_chunks(count_iterations(schedule, outer), tiles, tile, target.threads);
    if (is_open(schedule, output.queries)) {
      const auto queries = schedule.split(output.queries, {std::nullopt, tile.rows});
      row_tile = queries[0];
      within = {queries[1]};
    } else {
      const auto queries = schedule.split(output.queries, {std::nullopt, divide_up(tiles, chunks), tile.rows});
      outer.push_back(queries[0]);
      row_tile = queries[1];
      within = {queries[2]};
    }
  }
  // No wider than a head: no lanes of small ones are masked.
  const int column_lanes =
      static_cast<int>(std::min<int64_t>(lanes, std::bit_ceil(static_cast<uint64_t>(extents.columns))));
  const auto columns = schedule.split(output.columns, {std::nullopt, tile.columns, column_lanes});
  schedule.reorder(in_order(outer, row_tile, columns[0], within, columns[1], columns[2]));
  const LoopRef task = as_one(schedule, outer);
  const LoopRef row = row_tile.value_or(task);

  // Stages to where their consumers are, last first.
  const BlockRef scored = finish_scores(schedule, Scope::register_);
  tile_in_registers(schedule, mixed, columns[0], column_lanes, target);
  unroll_all(schedule, within);
  schedule.unroll(columns[1]);
  schedule.vectorize(columns[2]);
  for (const BlockRef& stage : {sum, weights, largest, scored}) {
    schedule.compute_at(stage, row);
    set_scope_of(schedule, stage, Scope::stack);
  }
  if (packs_keys) {
    const BlockAnalysis of_scores = analyse(schedule.node(scores));
    const int key_axis = dimension_of(of_scores.reads.at(1), of_scores.spatial().back());
    const BlockRef copy = pack_keys(schedule, static_cast<int64_t>(tile.keys) * lanes, Scope::stack);
    std::vector<LoopRef> loops = loops_below(schedule, scored, row);
    const auto keys = schedule.split(loops.back(), {std::nullopt, tile.keys, lanes});
    loops.pop_back();
    schedule.reorder(in_order(keys[0], loops, keys[1], keys[2]));
    tile_in_registers(schedule, scores, keys[0], lanes, target);
    pack_at(schedule, copy, task, key_axis, lanes);
    unroll_all(schedule, loops);
    schedule.unroll(keys[1]);
    schedule.vectorize(keys[2]);
  } else {
    inline_keys(schedule);
    schedule.compute_at(scores, row);
    set_scope_of(schedule, scores, Scope::stack);
    dot_products(schedule, row, lanes);
    vectorize_keys(schedule, scored, lanes);
  }
  schedule.compute_at(query, row);
  set_scope_of(schedule, query, Scope::stack);
  vectorize_keys(schedule, query, lanes);
  vectorize_keys(schedule, weights, lanes);
  reduce_rows(schedule, largest, row, lanes);
  reduce_rows(schedule, sum, row, lanes);
  if (!is_decoding) skip_unseen_keys(schedule, row, static_cast<int64_t>(tile.keys) * lanes);
  share_out(schedule, task);
  return true;
}

}  // namespace tw::cpu
