// Attention over many keys, cut into parts.  Of one query: scores of a part stay in the first cache, and where heads
// are few parts are what the workers share.  Of many: a part of k and v stays in the second cache for a block of
// queries.
//
//   attention(q, k, v)   ⇒   attention(q, k, v) {part = 256}
#include <algorithm>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "targets/analysis/even_rows.h"

namespace tw::relay {
namespace {

// The largest divisor of `keys` from most / 2 to most that is a number of whole vectors; `most` if there is none.
int64_t even_part(int64_t keys, int64_t most, int64_t lanes) {
  for (int64_t part = most; part >= most / 2; part -= lanes) {
    if (keys % part == 0) return part;
  }
  return most;
}

// Keys of a part; 0: all of them together.
int64_t choose_part(const Graph& graph, const Node& node, const Target& target) {
  const auto q = static_shape(graph.values[node.inputs[0]].type), k = static_shape(graph.values[node.inputs[1]].type);
  if (!q || !k || element_count(*q) == 0 || element_count(*k) == 0) return 0;
  const size_t rank = q->size();
  const int64_t lanes = target.lanes(f32), size = q->back(), keys = (*k)[rank - 2],
                heads = element_count(*k) / keys / size;
  const int64_t queries = (*q)[rank - 2];
  if (queries > 1) {
    // In parts when k and v would leave the second cache between tiles of queries; these have no guards.
    const int64_t columns = element_count(*static_shape(graph.values[node.inputs[2]].type)) / keys / heads;
    const bool is_long = keys * (size + columns) * 4 > target.l2.bytes / 2 && keys >= 1024 && queries > 96;
    return is_long && analysis::even_rows(queries, target) > 0 ? even_part(keys, 256 - 256 % lanes, lanes) : 0;
  }
  // Scores are dot products along whole vectors.
  if (size % lanes != 0 || size < 2 * lanes) return 0;
  const int64_t group = (*q)[rank - 3] / (*k)[rank - 3];
  // A part's scores, before and after masking, and its weights take a half of the first cache.
  const int64_t bytes_of_key = 3 * 4 * group;
  const bool is_long = keys * bytes_of_key > target.l1.bytes, has_few_heads = heads < 2 * target.threads;
  if (!is_long && !has_few_heads) return 0;  // the join would take longer than it saves
  // Its ends cost about as much as some keys.
  constexpr int64_t least = 64, most = 1024;
  int64_t part = std::clamp(target.l1.bytes / 2 / bytes_of_key, least, most);
  // As many as keep all workers busy to the end.
  part = std::max(least, std::min(part, keys * heads / (4 * target.threads)));
  part -= part % lanes;
  if (part == 0 || keys < 2 * part) return 0;
  return even_part(keys, part, lanes);
}

}  // namespace

Graph cut_attention(const Graph& graph, const PassContext& context) {
  Graph result = graph;
  for (Node& node : result.nodes) {
    if (node.op->name == "attention") node.attributes.set("part", choose_part(graph, node, context.target));
  }
  return result;
}

}  // namespace tw::relay
