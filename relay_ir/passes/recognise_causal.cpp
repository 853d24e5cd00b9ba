// A constant mask under which the first query sees some keys and each next one sees one more is a number: nothing is
// read of it, and kernels go over those keys alone that some query of theirs sees.
//
//   attention(q, k, v, mask)   ⇒   attention(q, k, v) {causal = 1}
#include "relay_ir/op.h"
#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

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

Graph recognise_causal(const Graph& graph) {
  Graph result = graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!node.op->leaves_open("query_tile") || node.inputs.size() < 4 || node.attributes.get_int("causal") != 0)
      continue;
    const ValueId mask = node.inputs[3];
    const auto rows_of = [&](int input) {
      const std::vector<Expr>& shape = graph.values[node.inputs[input]].type.shape;
      return as_int(shape[shape.size() - 2]);
    };
    const auto queries = rows_of(0), keys = rows_of(1);
    if (mask == no_value || !graph.is_constant(mask) || !queries || !keys) continue;
    const auto seen = causal_keys(*graph.values[mask].constant, *queries, *keys, node.attributes.get_float("masked"));
    if (!seen) continue;
    result.nodes[i].inputs.resize(3);
    result.nodes[i].attributes.set("causal", *seen);
  }
  return result;
}

}  // namespace tw::relay
