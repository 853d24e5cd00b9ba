// What no output needs goes.  Inputs stay: they are the model's signature.  A number that is read is needed by the
// sizes that are made of it, and where it has to be equal to something always.
//
//   a = exp(x); b = log(x); return b   ⇒   b = log(x); return b
#include <algorithm>
#include <unordered_set>

#include "relay_ir/pass.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

using Variables = std::unordered_set<Var>;

void note(const std::vector<Expr>& dims, Variables& used) {
  for (const Expr& dim : dims)
    for (const Var& var : free_vars(dim)) used.insert(var);
}

void note(const Graph& graph, Variables& used);

// What sizes in the node are made of.
void note(const Graph& graph, const Node& node, Variables& used) {
  for (const ValueId id : node.outputs) note(graph.values[id].type.shape, used);
  for (const auto& [name, value] : node.attributes.all())
    if (const auto* dims = std::get_if<std::vector<Expr>>(&value)) note(*dims, used);
  for (const Graph& region : node.regions) note(region, used);
}

void note(const Graph& graph, Variables& used) {
  for (const Equality& equal : graph.equalities) note({equal.a, equal.b}, used);
  for (const Node& node : graph.nodes) note(graph, node, used);
}

}  // namespace

Graph eliminate_dead(const Graph& graph) {
  const Uses uses(graph);
  const bool reads_numbers =
      variables_of(graph).size() > graph.symbols.size() || std::any_of(graph.nodes.begin(), graph.nodes.end(), is_item);
  Variables used;
  for (const Equality& equal : graph.equalities) note({equal.a, equal.b}, used);
  std::vector<bool> is_needed(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (is_item(graph.nodes[i])) {
      const Expr& number = number_of(graph.nodes[i]);
      is_needed[i] = number.kind() != NodeKind::Var ||
                     std::find(graph.symbols.begin(), graph.symbols.end(), Var::of(number)) != graph.symbols.end();
    }
    for (const Var& number : numbers_read_by(graph, graph.nodes[i]))
      is_needed[i] = is_needed[i] || used.count(number) > 0;
    for (const ValueId id : graph.nodes[i].outputs) {
      if (uses.is_output[id]) is_needed[i] = true;
      for (const int user : uses.users[id]) {
        if (is_needed[user]) is_needed[i] = true;
      }
    }
    if (reads_numbers && is_needed[i]) note(graph, graph.nodes[i], used);
  }
  GraphCopy copy(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (is_needed[i]) copy.copy(graph.nodes[i]);
  }
  return copy.finish();
}

}  // namespace tw::relay
