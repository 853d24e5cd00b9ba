// Attention over keys that are cut into parts, of one query (decoding with a long cache): parts are computed side by
// side, then joined.
//
//   for part of head parallel {                         [batch, head of k, part]
//     query = scale · q                                 of the heads that share the head of k: the rows
//     for key of part { S[rows, key] = query · k }      dot products along the elements; k streams through
//     max = largest of S, weights = e^(S - max), sum
//     for columns { mixed[part] = weights · v }         a register tile; v streams through
//   }
//   for head parallel {
//     share[part] = e^(max[part] - top)
//     for columns { out = (share · mixed) / (share · sum) }
//   }
// Of many queries: a part of k and v stays in the second cache while it serves a block of them.
//
//   K = kᵀ in panels of keys                            a copy
//   for block of queries parallel {                     [batch, head, block]
//     for part of keys { for rows in block by R {
//       query = scale · q[rows]
//       S[rows, part] = query · K                       register tiles
//       max[rows, part], weights = e^(S - max), sum[rows, part]
//       mixed[rows, part] = weights · v                 register tiles
//     }}
//     share, joined, out as above                       of the block
//   }
//
// Under a causal mask loops over the keys of a part end behind the last one that some row sees, before the first if
// none does.
#include "runtime/rounding.h"
#include "targets/cpu/attention_stages.h"

namespace tw::cpu {
namespace {

using namespace attention;

// Axes of Σ weights · v, from the end: column, part, query, group, head of k, batch ….
enum AxisFromEnd : size_t { column_axis = 1, query_axis = 3, group_axis = 4 };

// Σ weights · v of one part within `task`: a tile in registers whose rows are the innermost ones of the axis `of_rows`.
// `out` takes it from there to memory.
void mix_values(Schedule& schedule, const BlockRef& out, const LoopRef& task, AxisFromEnd of_rows, const Tile& tile,
                int lanes, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(mixed));
  const size_t end = analysis.spatial().size(), axis = end - of_rows, last = end - column_axis;
  const Access values = analysis.reads.at(analysis.reads[0].uses(analysis.spatial()[last]) ? 0 : 1);
  const std::vector<Var> axes = analyse(schedule.node(out)).spatial();
  const LoopRef of_row = own_loop(schedule, out, axes[axis]), of_column = own_loop(schedule, out, axes[last]);
  std::vector<LoopRef> order = loops_below(schedule, out, task);
  std::erase(order, of_row), std::erase(order, of_column);
  const auto rows = schedule.split(of_row, {std::nullopt, tile.rows});
  const auto columns = schedule.split(of_column, {std::nullopt, tile.columns, lanes});
  schedule.reorder(in_order(order, rows[0], columns[0], rows[1], columns[1], columns[2]));
  const LoopRef key = tile_in_registers(schedule, mixed, columns[0], lanes, target);
  vectorize_below(schedule, out, columns[0], last, lanes);
  prefetch_from_memory(schedule, values, analysis.extent(analysis.spatial()[axis]), key, target);
}

// Parts are joined as a product sums: how many there are matters to a tile as little as the length of a long sum.
constexpr int64_t long_sum = 1 << 8;

void join_parts(Schedule& schedule, const Output& output, int lanes, const Target& target) {
  const int64_t vectors = divide_up(extent_of(schedule, output.columns), lanes);
  const auto columns =
      schedule.split(output.columns, {std::nullopt, choose_tile(1, vectors, long_sum, target).vectors, lanes});
  const std::vector<LoopRef> outer = in_order(output.batch, output.heads, output.queries);
  schedule.reorder(in_order(outer, columns));
  const LoopRef head = schedule.fuse(outer);
  tile_in_registers(schedule, joined, columns[0], lanes, target);
  schedule.unroll(columns[1]);
  schedule.vectorize(columns[2]);
  for (const BlockRef& stage : {total, share, top}) {
    schedule.compute_at(stage, head);
    set_scope_of(schedule, stage, Scope::stack);
  }
  vectorize_keys(schedule, share, lanes);
  share_out(schedule, head);
}

// Blocks of about as many tiles, which a part of k and v serves while it is in the second cache.
int64_t tiles_of_block(int64_t queries, int64_t rows) {
  constexpr int64_t most = 8;
  const int64_t tiles = divide_up(queries, rows);
  return divide_up(tiles, divide_up(tiles, most));
}

void schedule_one_query(Schedule& schedule, const Output& output, const Extents& extents, int lanes,
                        const Target& target) {
  inline_keys(schedule);
  const Access keys = analyse(schedule.node(scores)).reads.at(1);
  const BlockRef scored = finish_scores(schedule, Scope::stack);
  const BlockRef out = schedule.cache_write(mixed, written_by(schedule, mixed)->name, Scope::register_);
  const std::vector<LoopRef> loops = schedule.loops(scored);
  const auto group = loops.end() - 4;  // group, query, part, key
  std::vector<LoopRef> outer(loops.begin(), group);
  outer.push_back(group[2]);
  schedule.reorder(in_order(outer, group[0], group[1], group[3]));
  const LoopRef task = schedule.fuse(outer);
  // Stages to where the scores are, first to last, and what the scores are made of.
  for (const BlockRef& stage : {largest, weights, sum, mixed, out}) schedule.reverse_compute_at(stage, task);
  for (const BlockRef& stage : {scores, query}) schedule.compute_at(stage, task);
  for (const BlockRef& stage : {scores, query, scored, weights}) set_scope_of(schedule, stage, Scope::stack);
  const Tile tile = decide_tile(schedule, extents, {.has_keys = false}, lanes, target);
  mix_values(schedule, out, task, group_axis, tile, lanes, target);
  reduce_rows(schedule, sum, task, lanes);
  vectorize_keys(schedule, weights, lanes);
  reduce_rows(schedule, largest, task, lanes);
  vectorize_keys(schedule, scored, lanes);
  const LoopRef key = dot_products(schedule, task, lanes);
  prefetch_from_memory(schedule, keys, extents.group, key, target);
  vectorize_keys(schedule, query, lanes);
  share_out(schedule, task);
  join_parts(schedule, output, lanes, target);
}

void schedule_many_queries(Schedule& schedule, const Output& output, const Extents& extents, int lanes,
                           const Target& target) {
  const TileChoice choice{.divides_rows = false, .divides_keys = true};
  const Tile tile = decide_tile(schedule, extents, choice, lanes, target);
  const int64_t tiles = tiles_of_block(extents.queries, tile.rows), panel = tile.keys;
  const BlockRef copy = pack_keys(schedule, panel * lanes, Scope::global);
  schedule_elementwise(schedule, copy, target);

  const BlockRef scored = finish_scores(schedule, Scope::register_);
  const BlockRef out = schedule.cache_write(mixed, written_by(schedule, mixed)->name, Scope::register_);
  const std::vector<LoopRef> loops = schedule.loops(scored);
  const auto query_loop = loops.end() - 3;  // query, part, key
  const auto queries = schedule.split(query_loop[0], {std::nullopt, tiles, tile.rows});
  const auto keys = schedule.split(query_loop[2], {std::nullopt, panel, lanes});
  std::vector<LoopRef> outer(loops.begin(), query_loop);
  outer.push_back(queries[0]);
  schedule.reorder(in_order(outer, query_loop[1], queries[1], keys[0], queries[2], keys[1], keys[2]));
  const LoopRef task = schedule.fuse(outer), row = queries[1];
  for (const BlockRef& stage : {largest, weights, sum, mixed, out}) schedule.reverse_compute_at(stage, row);
  for (const BlockRef& stage : {top, share, total, joined, output.block}) schedule.reverse_compute_at(stage, task);
  tile_in_registers(schedule, scores, keys[0], lanes, target);
  schedule.compute_at(query, row);
  for (const BlockRef& stage : {query, scored, weights, largest, sum, out, top, share, total}) {
    set_scope_of(schedule, stage, Scope::stack);
  }
  schedule.unroll(queries[2]);
  schedule.unroll(keys[1]);
  schedule.vectorize(keys[2]);
  vectorize_keys(schedule, query, lanes);
  mix_values(schedule, out, row, query_axis, tile, lanes, target);
  reduce_rows(schedule, sum, row, lanes);
  vectorize_keys(schedule, weights, lanes);
  reduce_rows(schedule, largest, row, lanes);
  skip_unseen_keys(schedule, row, panel * lanes);
  // The join, row by row.
  vectorize_keys(schedule, share, lanes);
  const LoopRef of_column = schedule.loops(output.block).back();
  const auto columns = schedule.split(of_column, {std::nullopt, tile.columns, lanes});
  tile_in_registers(schedule, joined, columns[0], lanes, target);
  schedule.unroll(columns[1]);
  schedule.vectorize(columns[2]);
  share_out(schedule, task);
}

}  // namespace

bool schedule_attention_parts(Schedule& schedule, const Target& target) {
  inline_moves(schedule);
  const auto output = match_output(schedule, joined);
  const int lanes = target.lanes(written_by(schedule, scores)->dtype);
  const Extents extents = extents_of(schedule);
  if (!output) return false;
  if (extents.queries == 1 && extents.size % lanes == 0 && extents.size >= 2 * lanes) {
    schedule_one_query(schedule, *output, extents, lanes, target);
    return true;
  }
  const bool is_last_column = output->columns == schedule.loops(output->block).back();
  if (extents.keys % lanes == 0 && is_last_column) {
    schedule_many_queries(schedule, *output, extents, lanes, target);
    return true;
  }
  return false;
}

}  // namespace tw::cpu
