// Attention in tiles of queries and keys, whose parts are joined by an online softmax: for targets whose threads share
// what is staged (Dao, "FlashAttention-2", 2023).  No array has an element for each pair of a query and a key.
//
//   attention(q, k, v)   ⇒   attention(q, k, v) decided "query_tile=64 split_kv=64"
//
// Where products of tf32 are asked for, those of tiles are such.
#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "runtime/rounding.h"
#include "targets/analysis/attention_tile.h"

namespace tw::relay {
namespace {

constexpr int64_t most_elements = 128;     // of a row, whose results are in registers
constexpr int64_t most_keys_of_few = 512;  // where blocks are few

}  // namespace

Graph tile_attention(const Graph& graph, const PassContext& context) {
  using namespace analysis;
  Graph result = graph;
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
  }
  return result;
}

}  // namespace tw::relay
