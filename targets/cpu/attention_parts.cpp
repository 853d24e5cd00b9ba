// Attention of one query over keys that are cut into parts (decoding with a long cache): parts are computed side by
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
#include <algorithm>

#include "targets/cpu/attention_stages.h"

namespace tw::cpu {
namespace {

using namespace attention;

// Σ weights · v of one part: rows × columns in registers.
void mix_values(Schedule& schedule, const LoopRef& task, int lanes, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(mixed));
  const std::vector<Var> axes = analysis.spatial();  // batch …, head of k, group, query, part, column
  const Var group = axes[axes.size() - 4], column = axes.back();
  const Access values = analysis.reads.at(analysis.reads[0].uses(column) ? 0 : 1);
  RegisterTile tile = choose_tile(analysis.extent(group), (analysis.extent(column) + lanes - 1) / lanes,
                                  analysis.extent(analysis.reduce().at(0)), target);
  while (analysis.extent(group) % tile.rows != 0) --tile.rows;
  const LoopRef key = loops_of(schedule, mixed, analysis.reduce().at(0)).at(0);
  const LoopRef of_group = loops_of(schedule, mixed, group).back();
  const LoopRef of_column = loops_of(schedule, mixed, column).back();
  std::vector<LoopRef> order = loops_below(schedule, mixed, task);
  std::erase(order, key), std::erase(order, of_group), std::erase(order, of_column);
  const auto rows = schedule.split(of_group, {std::nullopt, tile.rows});
  const auto columns = schedule.split(of_column, {std::nullopt, tile.vectors, lanes});
  order.insert(order.end(), {rows[0], columns[0], key, rows[1], columns[1], columns[2]});
  schedule.reorder(order);
  const size_t axis = axes.size() - 1;
  const BlockRef out = keep_in_registers(schedule, mixed, columns[0], axis);
  const BlockRef init = schedule.decompose_reduction(mixed, key);
  vectorize_below(schedule, init, columns[0], axis, lanes);
  vectorize_below(schedule, out, columns[0], axis, lanes);
  prefetch_stream(schedule, values, analysis.extent(group), key, target);
  schedule.unroll(rows[1]);
  schedule.unroll(columns[1]);
  schedule.vectorize(columns[2]);
}

void join_parts(Schedule& schedule, const Output& output, int lanes, const Target& target) {
  const int64_t vectors = (extent_of(schedule, output.columns) + lanes - 1) / lanes;
  const auto columns = schedule.split(output.columns, {std::nullopt, choose_tile(1, vectors, 0, target).vectors, lanes});
  std::vector<LoopRef> outer = output.batch, order;
  outer.insert(outer.end(), {output.heads, output.queries});
  order = outer;
  order.insert(order.end(), columns.begin(), columns.end());
  schedule.reorder(order);
  const LoopRef head = schedule.fuse(outer);
  tile_in_registers(schedule, joined, columns[0], lanes);
  schedule.unroll(columns[1]);
  schedule.vectorize(columns[2]);
  for (const BlockRef& stage : {total, share, top}) {
    schedule.compute_at(stage, head);
    set_scope_of(schedule, stage, Scope::stack);
  }
  vectorize_keys(schedule, share, lanes);
  share_out(schedule, head);
}

}  // namespace

bool schedule_attention_parts(Schedule& schedule, const Target& target) {
  inline_moves(schedule);
  const auto output = match_output(schedule, joined);
  const BlockAnalysis analysis = analyse(schedule.node(scores));
  const std::vector<Var> axes = analysis.spatial();  // batch …, head of k, group, query, part, key
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  const int64_t size = analysis.extent(analysis.reduce().at(0)), queries = analysis.extent(axes[axes.size() - 3]);
  if (!output || queries != 1 || size % lanes != 0 || size < 2 * lanes) return false;
  const Access keys = analysis.reads.at(1);

  const BlockRef scored = has_block(schedule, masked)
                              ? masked
                              : schedule.cache_write(scores, analysis.write.buffer->name, Scope::stack);
  const std::vector<LoopRef> loops = schedule.loops(scored);
  const auto group = loops.end() - 4;  // group, query, part, key
  std::vector<LoopRef> outer(loops.begin(), group);
  outer.push_back(group[2]);
  std::vector<LoopRef> order = outer;
  order.insert(order.end(), {group[0], group[1], group[3]});
  schedule.reorder(order);
  const LoopRef task = schedule.fuse(outer);
  // Stages to where the scores are, first to last, and what the scores are made of.
  for (const BlockRef& stage : {largest, weights, sum, mixed}) schedule.reverse_compute_at(stage, task);
  for (const BlockRef& stage : {scores, query}) schedule.compute_at(stage, task);
  for (const BlockRef& stage : {scores, query, scored, weights}) set_scope_of(schedule, stage, Scope::stack);
  mix_values(schedule, task, lanes, target);
  reduce_rows(schedule, sum, task, lanes);
  vectorize_keys(schedule, weights, lanes);
  reduce_rows(schedule, largest, task, lanes);
  vectorize_keys(schedule, scored, lanes);
  const LoopRef key = dot_products(schedule, task, lanes);
  prefetch_stream(schedule, keys, analysis.extent(axes[axes.size() - 4]), key, target);
  vectorize_keys(schedule, query, lanes);
  share_out(schedule, task);
  join_parts(schedule, *output, lanes, target);
  return true;
}

}  // namespace tw::cpu
