// Attention of one query over many keys, cut into parts: scores of a part stay in the first cache, and where heads are
// few parts are what the workers share.
//
//   attention(q, k, v)   ⇒   attention(q, k, v) {part = 256}
#include "relay_ir/passes/cut_attention.h"

#include <algorithm>

#include "relay_ir/op.h"

namespace tw::relay {
namespace {

// Keys of a part; 0: all of them together.
int64_t choose_part(const Graph& graph, const Node& node, const Target& target) {
  const auto q = static_shape(graph.values[node.inputs[0]].type), k = static_shape(graph.values[node.inputs[1]].type);
  if (!q || !k || element_count(*q) == 0 || element_count(*k) == 0) return 0;
  const size_t rank = q->size();
  const int64_t lanes = target.lanes(f32), size = q->back(), keys = (*k)[rank - 2], heads = element_count(*k) / keys / size;
  // Scores are dot products along whole vectors.
  if ((*q)[rank - 2] != 1 || size % lanes != 0 || size < 2 * lanes) return 0;
  const int64_t group = (*q)[rank - 3] / (*k)[rank - 3];
  // A part's scores, before and after masking, and its weights take a half of the first cache.
  const int64_t bytes_of_key = 3 * 4 * group;
  const bool is_long = keys * bytes_of_key > target.l1_bytes, has_few_heads = heads < 2 * target.threads;
  if (!is_long && !has_few_heads) return 0;  // the join would take longer than it saves
  // Its ends cost about as much as some keys.
  constexpr int64_t least = 64, most = 1024;
  int64_t part = std::clamp(target.l1_bytes / 2 / bytes_of_key, least, most);
  // As many as keep all workers busy to the end.
  part = std::max(least, std::min(part, keys * heads / (4 * target.threads)));
  part -= part % lanes;
  if (part == 0 || keys < 2 * part) return 0;
  for (int64_t even = part; even >= part / 2; even -= lanes) {
    if (keys % even == 0) return even;
  }
  return part;
}

}  // namespace

Graph cut_attention(const Graph& graph, const Target& target) {
  Graph result = graph;
  for (Node& node : result.nodes) {
    if (target.kind == TargetKind::cuda || node.op->name != "attention") continue;
    node.attributes.set("part", choose_part(graph, node, target));
  }
  return result;
}

}  // namespace tw::relay
