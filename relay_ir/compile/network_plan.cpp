#include "relay_ir/compile/network_plan.h"

#include <unordered_map>

#include "relay_ir/in_place.h"

namespace tw::relay {
namespace {

// Where the values of a graph are, by those whose bytes they share.
class Places {
 public:
  Places(const Graph& graph, const Aliases& aliases, PlanMaker& plan) : graph_(graph), aliases_(aliases), plan_(plan) {
    for (const ValueId id : graph.inputs) at_[id] = plan.add_input(graph.values[id].name, graph.values[id].type);
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const ValueId id = graph.outputs[i];
      const auto input = aliases.in_place.find(i);
      at_[aliases.root[id]] = plan.add_output(graph.output_name(i), graph.values[id].type,
                                              input == aliases.in_place.end() ? -1 : input->second);
    }
  }

  // `layouts`: that a kernel reads a constant in.
  BufferUse use(ValueId id, const std::vector<IndexMap>& layouts) {
    const ValueId root = aliases_.root[id];
    if (graph_.is_constant(root)) return plan_.add_constant(graph_.values[id].name, constant(id), layouts);
    if (at_.count(root) == 0) at_[root] = plan_.add_temporary(storage_bytes(graph_.values[root]));
    BufferUse use = at_[root];
    use.offset = aliases_.offset[id];
    use.bytes = plan_.size_of(storage_bytes(graph_.values[id]));
    return use;
  }

 private:
  // A view that no pass has folded is the same bytes with the view's shape.
  NDArray constant(ValueId id) const {
    if (graph_.is_constant(id)) return *graph_.values[id].constant;
    const NDArray& whole = *graph_.values[aliases_.root[id]].constant;
    auto* begin = static_cast<std::byte*>(const_cast<void*>(whole.data())) + aliases_.offset[id];
    return {whole.dtype(), *static_shape(graph_.values[id].type), begin, std::make_shared<const NDArray>(whole)};
  }

  const Graph& graph_;
  const Aliases& aliases_;
  PlanMaker& plan_;
  std::unordered_map<ValueId, BufferUse> at_;
};

// That the group reads and writes; of an update in place what it writes and where.
Expr bytes_moved(const Graph& graph, const Group& group, const Aliases& aliases) {
  const bool is_update = group.nodes.size() == 1 && is_in_place(graph.nodes[group.nodes[0]]);
  Expr bytes = 0;
  for (const ValueId id : buffer_values(graph, group)) {
    const bool is_kept = is_update && aliases.root[id] == aliases.root[group.outputs[0]];
    if (!is_kept) bytes = bytes + storage_bytes(graph.values[id]);
  }
  return bytes;
}

}  // namespace

Plan plan_network(const Graph& graph, const std::vector<Group>& groups, const Aliases& aliases,
                  const std::vector<ScheduledFunc>& funcs, const std::vector<size_t>& func_of, const Target& target,
                  ConstantPool& constants) {
  PlanMaker plan(graph.name, graph.symbols, graph.equalities, target, constants);
  Places places(graph, aliases, plan);
  for (size_t i = 0; i < groups.size(); ++i) {
    const ScheduledFunc& func = funcs[func_of[i]];
    const std::vector<ValueId> values = buffer_values(graph, groups[i]);
    plan.add_steps(groups[i].name, func, bytes_moved(graph, groups[i], aliases),
                   [&](size_t position) { return places.use(values[position], func.layouts[position]); });
  }
  return std::move(plan).finish();
}

}  // namespace tw::relay
