// [batch, seq] where batch is 0   ⇒   [0, seq] where 0 ≤ seq, all of it;
//              where seq is 0     ⇒   [batch, 0] where 1 ≤ batch, of which what does not depend on seq is left
#include "relay_ir/compile/empty_runs.h"

#include <algorithm>
#include <optional>

#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

// …and the graphs within, of those that are left.
Graph without_empty(const Graph& graph) {
  Graph result = fold_empty(graph);
  for (Node& node : result.nodes)
    for (Graph& region : node.regions) region = without_empty(region);
  return result;
}

// Nothing: no run has these sizes, or a node cannot be had there.
std::optional<SpecialGraph> try_specialise(const Graph& model, const Profile& profile, bool others_may_be_empty) {
  try {
    SpecialGraph special = specialise(model, profile, others_may_be_empty);
    special.graph = eliminate_dead(without_empty(special.graph));
    const auto is_possible = [&](ValueId id) {
      const std::vector<Expr>& shape = special.graph.values[id].type.shape;
      return std::none_of(shape.begin(), shape.end(), [](const Expr& dim) { return as_int(dim).value_or(0) < 0; });
    };
    const std::vector<ValueId>& outputs = special.graph.outputs;
    if (!std::all_of(outputs.begin(), outputs.end(), is_possible)) return std::nullopt;
    return special;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::shape) throw;
    return std::nullopt;
  }
}

size_t work_left(const Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.outputs.empty() || std::any_of(node.outputs.begin(), node.outputs.end(),
                                               [&](ValueId id) { return !has_no_elements(graph.values[id].type); });
  });
}

}  // namespace

std::vector<SpecialGraph> empty_runs(const Graph& model) {
  struct Empty {
    std::string symbol;
    int64_t high;
    std::optional<SpecialGraph> graph;  // whatever the others are
    size_t work;
  };
  std::vector<Empty> all;
  for (const Var& symbol : model.symbols) {
    if (!may_be_empty(symbol)) continue;
    auto graph = try_specialise(model, {{symbol.name(), {0, 0}}}, true);
    const size_t work = graph ? work_left(graph->graph) : 0;
    all.push_back({symbol.name(), dimension_bounds(symbol).high, std::move(graph), work});
  }
  std::stable_sort(all.begin(), all.end(), [](const Empty& a, const Empty& b) { return a.work < b.work; });
  std::vector<SpecialGraph> runs;
  Profile earlier;  // which have elements in the runs that come later
  for (size_t i = 0; i < all.size(); ++i) {
    auto& [symbol, high, graph, work] = all[i];
    Profile profile{{symbol, {0, 0}}};
    // Where others have elements, as is usual, kernels may rely on that.
    if (graph && work > 0) {
      if (auto usual = try_specialise(model, profile, false)) runs.push_back(*std::move(usual));
      if (i + 1 == all.size()) break;
      profile.insert(earlier.begin(), earlier.end());
      graph = try_specialise(model, profile, true);
    }
    if (graph) runs.push_back(*std::move(graph));
    earlier[symbol] = {1, high};
  }
  return runs;
}

}  // namespace tw::relay
