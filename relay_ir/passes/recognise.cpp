// Composite operators from the debris that exporters make of them.
//
//   s = sigmoid(x); y = multiply(x, s)                    ⇒  y = silu(x)
//   c = x - reduce_mean(x); y = c / sqrt(reduce_mean(c * c) + e) · scale + bias   ⇒  y = layer_norm(x, scale, bias)
//   matmul(softmax(matmul(q, transpose(k)) · scale + mask), v)                    ⇒  attention(q, k, v, mask)
//
// The tables are recognise_activation.cpp, recognise_norm.cpp and recognise_attention.cpp.
//
// Results differ from the debris' by rounding only.  What is no longer used is left for eliminate_dead.
#include "relay_ir/passes/recognise.h"

#include <unordered_map>

#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

using Table = std::unordered_map<std::string, std::vector<Recognition>>;  // by the operator of the result

void add_rows(Table& table, const Recognition& row, const Pattern& root) {
  if (root->kind == Pattern::Node::Kind::either) {
    for (const Pattern& alternative : root->children) add_rows(table, row, alternative);
    return;
  }
  check(root->kind == Pattern::Node::Kind::op, "recognise: a pattern's result is an operator's");
  std::vector<Recognition>& rows = table[root->op];
  if (rows.empty() || rows.back().pattern.get() != row.pattern.get()) rows.push_back(row);
}

const Table& table() {
  static const Table rows = [] {
    Table result;
    for (const auto& family : {activation_recognitions(), norm_recognitions(), attention_recognitions()}) {
      for (const Recognition& row : family) add_rows(result, row, row.pattern);
    }
    return result;
  }();
  return rows;
}

ValueId recognised(GraphCopy& copy, const Uses& uses, const Node& node) {
  const auto rows = table().find(node.op->name);
  if (rows == table().end()) return no_value;
  for (const Recognition& row : rows->second) {
    const auto match = find_match(copy.from(), uses, row.pattern, node.outputs[0]);
    if (!match) continue;
    Site site(copy, uses, node, *match);
    const ValueId result = row.build(site);
    if (result == no_value) continue;
    check(copy.to().values[result].type == site.result_type(), "recognise: a result keeps its type");
    return result;
  }
  return no_value;
}

}  // namespace

Graph recognise(const Graph& graph) {
  GraphCopy copy(graph);
  const Uses uses(graph);
  return copy.rewrite([&](const Node& node) { return recognised(copy, uses, node); });
}

}  // namespace tw::relay
