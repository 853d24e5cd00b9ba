// Attention over many keys, split into parts whose results are joined (split-KV; Dao et al., "Flash-Decoding for
// long-context inference").  Of one query: scores of a part stay in the first cache, and where heads are few parts are
// what the workers share.  Of many: a part of k and v stays in the second cache for a block of queries.
//
//   attention(q, k, v)   ⇒   attention(q, k, v) decided "split_kv=256"
#include <algorithm>
#include <set>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "runtime/rounding.h"

namespace tw::relay {
namespace {

constexpr int64_t whole = 0;  // a choice beside the parts
constexpr int64_t least = 64, most = 1024;

struct Shapes {
  int64_t heads, group, queries, keys, size, columns;  // heads of k, those of q to each of them, columns of v
};

std::optional<Shapes> shapes_of(const Graph& graph, const Node& node) {
  std::vector<Shape> shapes;
  for (int i = 0; i < 3; ++i) {
    const auto shape = static_shape(graph.values[node.inputs[i]].type);
    if (!shape || element_count(*shape) == 0) return std::nullopt;
    shapes.push_back(*shape);
  }
  const Shape &q = shapes[0], &k = shapes[1];
  const size_t rank = q.size();
  return Shapes{element_count(k) / k[rank - 2] / k[rank - 1],
                q[rank - 3] / k[rank - 3],
                q[rank - 2],
                k[rank - 2],
                k[rank - 1],
                shapes[2].back()};
}

// The largest divisor of `keys` from longest / 2 to longest that is a number of whole vectors; if there is none, as
// many keys as leave the fewest places without one.
int64_t even_part(int64_t keys, int64_t longest, int64_t lanes) {
  for (int64_t part = longest; part >= longest / 2; part -= lanes) {
    if (keys % part == 0) return part;
  }
  const int64_t parts = divide_up(keys, longest);
  return (keys + parts * lanes - 1) / (parts * lanes) * lanes;
}

// The part that suits, about; 0: none does.
struct Preference {
  int64_t part = 0;
  bool splits = false;  // by analysis: the join takes less than it saves
};

// Of a key: its scores, before and after masking, and its weights.
int64_t score_bytes(const Shapes& s) {
  return 3 * 4 * s.group;
}

Preference prefer(const Shapes& s, const Target& target) {
  const int64_t lanes = target.lanes(f32);
  if (s.queries > 1) {
    // In parts when k and v would leave the second cache between tiles of queries.
    constexpr int64_t part = 256;  // whole vectors
    const bool is_large = s.keys * (s.size + s.columns) * 4 > target.l2.bytes / 2;
    // Places without a key cost more than parts save.
    const bool is_even = s.keys % even_part(s.keys, part, lanes) == 0;
    return {s.keys >= 2 * part ? part : 0, is_large && is_even && s.queries > 96};
  }
  // Scores are dot products along whole vectors.
  if (s.size % lanes != 0 || s.size < 2 * lanes) return {};
  const bool is_long = s.keys * score_bytes(s) > target.l1.bytes, has_few_heads = s.heads < 2 * target.threads;
  int64_t part = std::clamp(target.l1.bytes / 2 / score_bytes(s), least, most);  // a half of the first cache
  // As many as keep all workers busy to the end.
  part = std::max(least, std::min(part, s.keys * s.heads / (4 * target.threads)));
  part -= part % lanes;
  return {s.keys >= 2 * part ? part : 0, is_long || has_few_heads};
}

// In the time of a key of one head, of a worker.
double predict(const Shapes& s, int64_t part, const Target& target) {
  constexpr double end = 16;    // of a part and its join
  constexpr double away = 1.2;  // times as long where the next cache has it
  const int64_t parts = part == whole ? 1 : divide_up(s.keys, part), keys = part == whole ? s.keys : part;
  const int64_t tasks = s.queries > 1 ? target.threads : s.heads * parts;  // queries are enough for all workers
  const double rounds = static_cast<double>(divide_up(tasks, target.threads) * (s.queries > 1 ? parts : 1));
  const bool is_near =
      s.queries > 1 ? keys * (s.size + s.columns) * 4 <= target.l2.bytes / 2 : keys * score_bytes(s) <= target.l1.bytes;
  return rounds * (static_cast<double>(keys) * (is_near ? 1 : away) + (part == whole ? 0 : end));
}

}  // namespace

Graph split_kv(const Graph& graph, const PassContext& context) {
  const int64_t lanes = context.target.lanes(f32);
  Graph result = graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!graph.nodes[i].op->leaves_open("split_kv")) continue;
    const auto shapes = shapes_of(graph, graph.nodes[i]);
    if (!shapes) continue;
    const Preference preferred = prefer(*shapes, context.target);
    if (preferred.part == 0) continue;
    std::set<int64_t> parts{whole};
    for (const int64_t about : {preferred.part / 2, preferred.part, 2 * preferred.part})
      if (about >= least && shapes->keys >= 2 * about)
        parts.insert(even_part(shapes->keys, about - about % lanes, lanes));
    std::vector<Candidate> candidates;
    for (const int64_t part : parts) candidates.push_back({{part}, predict(*shapes, part, context.target)});
    const int64_t analytic = preferred.splits ? even_part(shapes->keys, preferred.part, lanes) : whole;
    result.nodes[i].decisions["split_kv"] = context.decide(graph, {i}, "split_kv", candidates, {analytic});
  }
  return result;
}

}  // namespace tw::relay
