// Attention in tiles of queries and keys, whose parts are joined by an online softmax: for targets whose threads share
// what is staged (Dao, "FlashAttention-2", 2023).  No array has an element for each pair of a query and a key.
//
//   attention(q, k, v)         ⇒   attention(q, k, v) decided "query_tile=64 split_kv=64"
//   attention(q, k, v, mask)   ⇒   attention(q, k, v) {causal = 1} decided "query_tile=64 split_kv=64"
//
// Where products of tf32 are asked for, those of tiles are such.  The latter of a constant mask under which the first
// query sees the first key and each next one sees one more: then tiles go over those keys alone that some query of
// theirs sees, and read no mask.
#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "runtime/rounding.h"
#include "targets/analysis/attention_tile.h"

namespace tw::relay {
namespace {

constexpr int64_t most_elements = 128;                  // of a row, whose results are in registers
constexpr int64_t most_keys_of_few = 512;               // where blocks are few
constexpr double nothing = -1e9, nothing_f16 = -65504;  // added to a score, or in its place, it leaves no weight

// How many keys the mask lets the first query see, if each next one sees one more and nothing is added to scores.
std::optional<int64_t> causal_keys(const NDArray& mask, int64_t queries, int64_t keys, double masked) {
  const Shape& shape = mask.shape();
  if (shape.size() < 2 || mask.size() != queries * keys || shape.back() != keys || *(shape.rbegin() + 1) != queries)
    return std::nullopt;
  const bool is_bool = mask.dtype().is_bool();
  const double most = mask.dtype() == f16 ? nothing_f16 : nothing;
  if (is_bool && masked > nothing) return std::nullopt;
  const auto is_seen = [&](int64_t at) { return is_bool ? mask.get_int(at) != 0 : mask.get_float(at) == 0; };
  int64_t first = 0;
  while (first < keys && is_seen(first)) ++first;
  if (first == 0 || first == keys) return std::nullopt;
  for (int64_t at = 0; at < mask.size(); ++at) {
    const bool is_expected = at % keys < first + at / keys;
    if (is_seen(at) != is_expected || (!is_bool && !is_expected && mask.get_float(at) > most)) return std::nullopt;
  }
  return first;
}

}  // namespace

Graph tile_attention(const Graph& graph, const PassContext& context) {
  using namespace analysis;
  Graph result = graph;
  bool has_masks_left = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!node.op->leaves_open("query_tile")) continue;
    std::vector<Shape> shapes;  // open batches and lengths as they usually are
    bool has_known_rows = true;
    for (int input = 0; input < 3; ++input) {
      const TensorType& type = graph.values[node.inputs[input]].type;
      has_known_rows &= as_int(type.shape.back()).has_value();
      shapes.push_back(typical_shape(type));
    }
    if (!has_known_rows || element_count(shapes[0]) == 0 || element_count(shapes[1]) == 0) continue;
    const DType dtype = graph.values[node.inputs[0]].type.dtype;
    const int64_t queries = *(shapes[0].rbegin() + 1), keys = *(shapes[1].rbegin() + 1);
    const int64_t size = shapes[0].back(), columns = shapes[2].back();
    const auto fits = [](int64_t elements) { return elements % attention_granule == 0 && elements <= most_elements; };
    if (dtype.bytes() > 4 || !fits(size) || !fits(columns)) continue;
    const int64_t heads = element_count(shapes[0]) / queries / size;
    const int64_t tile = queries_of_tile(heads, queries, context.target);
    // Of a few queries keys are read once, which takes the time.
    const bool is_of_tf32 = context.precision == Precision::tf32 && dtype == f32 && tile > attention_granule &&
                            !is_named(node, context.kept_nodes);
    const int64_t part = keys_of_tile(keys, {tile, size, columns, dtype.bytes(), is_of_tf32}, context.target);
    // Few blocks that go over many keys leave most of the device idle.
    const int64_t blocks = heads * divide_up(queries, tile);
    if (part == 0 || (4 * blocks < context.target.threads && keys > most_keys_of_few)) continue;
    if (!context.allows("query_tile", {tile}) || !context.allows("split_kv", {part})) continue;
    result.nodes[i].decisions["query_tile"] = {tile};
    result.nodes[i].decisions["split_kv"] = {part};
    if (is_of_tf32) result.nodes[i].attributes.set("operands", std::string("tf32"));
    const ValueId mask = node.inputs.size() > 3 ? node.inputs[3] : no_value;
    if (mask == no_value || !graph.is_constant(mask) || node.attributes.get_int("causal") != 0) continue;
    const auto seen = causal_keys(*graph.values[mask].constant, queries, keys, node.attributes.get_float("masked"));
    if (!seen) continue;
    result.nodes[i].inputs.resize(3);
    result.nodes[i].attributes.set("causal", *seen);
    has_masks_left = true;
  }
  return has_masks_left ? eliminate_dead(result) : result;
}

}  // namespace tw::relay
