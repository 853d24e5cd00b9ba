#include "relay_ir/compile/network_plan.h"

#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "relay_ir/in_place.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

// Where the values of a graph are, by those whose bytes they share.
class Places {
 public:
  Places(const Graph& graph, const Aliases& aliases, PlanMaker& plan) : graph_(graph), aliases_(aliases), plan_(plan) {
    for (size_t i = 0; i < graph.inputs_of_caller(); ++i) {
      const Value& value = graph.values[graph.inputs[i]];
      at_[graph.inputs[i]] = plan.add_input(value.name, value.type);
    }
    if (graph.has_random_state) at_[graph.inputs.back()] = plan.random_state();
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const ValueId id = graph.outputs[i];
      const auto input = aliases.in_place.find(i);
      at_[aliases.root[id]] = plan.add_output(graph.output_name(i), graph.values[id].type,
                                              input == aliases.in_place.end() ? -1 : input->second);
    }
    plan.set_lists(graph);
  }

  // Of a region, whose inputs and outputs lie there.
  Places(const PlannedGraph& region, PlanMaker& plan, const std::vector<BufferUse>& inputs,
         const std::vector<BufferUse>& outputs)
      : graph_(region.graph), aliases_(region.aliases), plan_(plan) {
    for (size_t i = 0; i < inputs.size(); ++i) at_[graph_.inputs[i]] = inputs[i];
    for (size_t i = 0; i < outputs.size(); ++i) at_[aliases_.root[graph_.outputs[i]]] = outputs[i];
  }

  // `layouts`: that a kernel reads a constant in.
  BufferUse use(ValueId id, const std::vector<IndexMap>& layouts = {}) {
    const ValueId root = aliases_.root[id];
    const auto offset = as_int(aliases_.offset[id]);
    if (graph_.is_constant(root) && offset && static_shape(graph_.values[id].type))
      return plan_.add_constant(graph_.values[id].name, constant(id, *offset), layouts);
    if (graph_.is_constant(root) && at_.count(root) == 0)
      at_[root] = plan_.add_constant(graph_.values[root].name, *graph_.values[root].constant, {});
    if (at_.count(root) == 0) at_[root] = plan_.add_temporary(storage_bytes(graph_.values[root]));
    BufferUse use = at_[root];
    use.offset = use.offset.plus(plan_.size_of(aliases_.offset[id]));
    use.bytes = plan_.extent_of(storage_bytes(graph_.values[id]));
    return use;
  }
  void place(ValueId id, const BufferUse& use) { at_[id] = use; }

  // Memory for a value twice, of which a loop's steps read one and write the other; or once, where it stays.
  void place_twice(ValueId id, const PlannedGraph::Room& room) {
    if (at_.count(id) == 0) at_[id] = plan_.add_temporary(stride(room.bytes) * (room.stays ? 1 : 2));
  }
  // …the one of that number.
  BufferUse one_of_two(ValueId id, const PlannedGraph::Room& room, const Expr& which) {
    BufferUse use = at_.at(id);
    if (!room.stays) use.offset = use.offset.plus(plan_.size_of(which * stride(room.bytes)));
    use.bytes = plan_.extent_of(storage_bytes(graph_.values[id]));
    return use;
  }

  // The same where the two get memory in each step: where the value is when no step is done, or all are, and before
  // one.
  void place_growing(ValueId id, const PlannedGraph::Room& room) {
    if (at_.count(id) > 0) return;
    if (room.stays) {
      before_[id] = at_[id] = plan_.add_growing(room.after);
    } else {
      std::tie(before_[id], at_[id]) = plan_.add_growing(room.bytes, room.after);
    }
  }
  BufferUse before_step(ValueId id) { return before_.at(id); }
  BufferUse after_step(ValueId id) { return at_.at(id); }

 private:
  static Expr stride(const Expr& room) { return floor_div(room + 63, 64) * 64; }

  // A view that no pass has folded is the same bytes with the view's shape.
  NDArray constant(ValueId id, int64_t offset) const {
    if (graph_.is_constant(id)) return *graph_.values[id].constant;
    const NDArray& whole = *graph_.values[aliases_.root[id]].constant;
    auto* begin = static_cast<std::byte*>(const_cast<void*>(whole.data())) + offset;
    return {whole.dtype(), *static_shape(graph_.values[id].type), begin, std::make_shared<const NDArray>(whole)};
  }

  const Graph& graph_;
  const Aliases& aliases_;
  PlanMaker& plan_;
  std::unordered_map<ValueId, BufferUse> at_, before_;
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

class NetworkPlan {
 public:
  NetworkPlan(const std::vector<ScheduledFunc>& funcs, PlanMaker& plan) : funcs_(funcs), plan_(plan) {}

  void add(const PlannedGraph& planned, Places& places, bool is_within = false) {
    for (size_t i = 0; i < planned.groups.size(); ++i) {
      const Group& group = planned.groups[i];
      if (const Node* control = control_of(planned.graph, group)) {
        if (control->op->is_demand) {
          const BufferUse number = places.use(control->inputs[0]);
          if (is_within)
            add_demand(*control, number);
          else
            demands_.emplace_back(control, number);
        } else if (is_item(*control)) {
          plan_.add_read(control->name, places.use(control->inputs[0]), number_of(*control));
        } else if (control->op->is_on_host) {
          add_call(planned.graph, *control, places);
        } else {
          is_loop(*control) ? add_loop(planned, *control, places) : add_branch(planned, *control, places);
        }
        continue;
      }
      if (planned.room.count(group.outputs[0]) > 0) give_room(planned, group.outputs[0], places);
      const auto& [number, parameters] = planned.func_of[i];
      const ScheduledFunc& func = funcs_[number];
      const std::vector<ValueId> values = buffer_values(planned.graph, group);
      plan_.add_steps(group.name, func, parameters, bytes_moved(planned.graph, group, planned.aliases),
                      [&](size_t position) { return places.use(values[position], func.layouts[position]); });
    }
  }

  void end() {
    for (const auto& [node, number] : demands_) add_demand(*node, number);
  }

 private:
  void add_demand(const Node& node, const BufferUse& number) {
    plan_.add_demand(node.name, node.attributes.get_string("text"), number);
  }

  // For what a loop carries.
  void give_room(const PlannedGraph& planned, ValueId copy, Places& places) {
    const PlannedGraph::Room& room = planned.room.at(copy);
    if (!room.is_of_steps()) return places.place_twice(copy, room);
    begin(planned, room.loop);
    places.place_growing(copy, room);
  }

  // What sizes are before the first step of a loop that gives memory in each, once.
  void begin(const PlannedGraph& planned, const std::string& loop) {
    if (!begun_.emplace(&planned, loop).second) return;
    const auto node = std::ranges::find(planned.graph.nodes, loop, &Node::name);
    const auto grown = planned.grown.find(loop);
    if (grown != planned.grown.end()) plan_.add_set(loop, grown->second, Expr(0));
    std::vector<std::pair<Var, Expr>> first;
    for (const LoopSize& size : sizes_of(*node)) {
      plan_.announce(size.within);
      first.emplace_back(planned.next.at(loop)[first.size()], size_before(planned.graph, *node, size));
    }
    plan_.add_sets(loop, first);
  }

  void add_call(const Graph& graph, const Node& node, Places& places) {
    HostCall call{node.attributes.get_string("function"),
                  node.attributes.get_string("library"),
                  node.attributes.get_string("attributes"),
                  {},
                  static_cast<uint32_t>(node.outputs.size())};
    std::vector<BufferUse> buffers;
    std::vector<Expr> extents;
    const auto add = [&](ValueId id) {
      const TensorType& type = graph.values[id].type;
      call.arguments.push_back({type.dtype, static_cast<uint32_t>(type.rank())});
      extents.insert(extents.end(), type.shape.begin(), type.shape.end());
      buffers.push_back(places.use(id));
    };
    for (const ValueId id : node.inputs) add(id);
    for (const ValueId id : node.outputs) add(id);
    plan_.add_call(node.name, std::move(call), buffers, extents);
  }

  // Both regions read and write the same.
  void add_branch(const PlannedGraph& planned, const Node& node, Places& places) {
    const std::vector<PlannedGraph>& regions = planned.regions.at(node.name);
    const BufferUse condition = places.use(node.inputs[0]);
    std::vector<BufferUse> inputs, outputs;
    for (size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(places.use(node.inputs[i]));
    for (const ValueId id : node.outputs) outputs.push_back(places.use(id));
    auto branch = plan_.begin_branch(node.name, condition);
    add_way(planned, regions[0], inputs, outputs);
    branch = plan_.turn(branch);
    add_way(planned, regions[1], inputs, outputs);
    plan_.end_branch(branch);
  }

  void add_way(const PlannedGraph& around, const PlannedGraph& region, const std::vector<BufferUse>& inputs,
               const std::vector<BufferUse>& outputs) {
    announce_numbers(region.graph);
    for (const Equality& equal : own_equalities(region.graph, around.graph)) plan_.rely_on(equal);
    Places places(region, plan_, inputs, outputs);
    add(region, places, true);
  }

  // That a region reads: sizes of what is written before may be made of them.
  void announce_numbers(const Graph& region) {
    for (const Node& node : region.nodes)
      for (const Var& number : numbers_read_by(region, node)) plan_.announce(number);
  }

  void add_loop(const PlannedGraph& planned, const Node& node, Places& places) {
    const PlannedGraph& region = planned.regions.at(node.name)[0];
    const std::vector<ValueId>& carried = planned.carried.at(node.name);
    const Var number = region.graph.symbols.back();
    const Var done = dimension("done", {0});
    const Expr read = floor_mod(number, 2), written = Expr(1) - read;
    std::vector<BufferUse> used, kept;  // outside
    for (size_t i = 1 + carried.size(); i < node.inputs.size(); ++i) used.push_back(places.use(node.inputs[i]));
    for (size_t i = carried.size(); i < node.outputs.size(); ++i) kept.push_back(places.use(node.outputs[i]));
    for (const ValueId id : carried) give_room(planned, id, places);
    const std::vector<LoopSize> sizes = sizes_of(node);
    if (!sizes.empty()) begin(planned, node.name);
    const bool has_condition = condition_of(node) != no_value;
    std::optional<BufferUse> condition;
    if (has_condition) condition = places.use(node.inputs[0]);
    const auto grown = planned.grown.find(node.name);
    const auto loop = plan_.begin_loop(node.name, number, done, steps_of(node), condition,
                                       grown == planned.grown.end() ? std::nullopt : std::optional(grown->second));
    announce_numbers(region.graph);
    std::vector<std::pair<Var, Expr>> at_step, behind;
    for (size_t k = 0; k < sizes.size(); ++k) at_step.emplace_back(sizes[k].within, planned.next.at(node.name)[k]);
    plan_.add_sets(node.name, at_step);
    for (const Equality& equal : own_equalities(region.graph, planned.graph)) plan_.rely_on(equal);
    for (size_t k = 0; k < sizes.size(); ++k)
      plan_.set_when_known(node.name, planned.next.at(node.name)[k], size_after(node, sizes[k]));
    const auto before = [&](ValueId id) {
      const PlannedGraph::Room& room = planned.room.at(id);
      return room.is_of_steps() ? places.before_step(id) : places.one_of_two(id, room, read);
    };
    const auto after = [&](ValueId id, const Expr& which) {
      const PlannedGraph::Room& room = planned.room.at(id);
      return room.is_of_steps() ? places.after_step(id) : places.one_of_two(id, room, which);
    };
    std::vector<BufferUse> inputs, outputs;
    if (has_condition) outputs.push_back(plan_.add_temporary(1));
    for (const ValueId id : carried) {
      inputs.push_back(before(id));
      outputs.push_back(after(id, written));
    }
    inputs.insert(inputs.end(), used.begin(), used.end());
    const std::vector<int64_t>& reversed = node.attributes.get_ints("reversed");
    for (size_t i = 0; i < kept.size(); ++i) {
      const Expr bytes = storage_bytes(region.graph.values[region.graph.outputs[outputs.size()]]);
      const bool is_reversed = !reversed.empty() && reversed[i] != 0;
      const Expr place = is_reversed ? steps_of(node) - 1 - number : Expr(number);
      outputs.push_back(
          {kept[i].storage, kept[i].index, kept[i].offset.plus(plan_.size_of(place * bytes)), plan_.size_of(bytes)});
    }
    Places within(region, plan_, inputs, outputs);
    add(region, within, true);
    plan_.end_loop(loop, has_condition ? std::optional(outputs[0]) : std::nullopt);
    for (const Expr& asked : node.attributes.get_dims("done"))
      plan_.add_set(node.name, Var::of(asked), done, loop.counter);
    for (size_t k = 0; k < sizes.size(); ++k) {
      const Var& next = planned.next.at(node.name)[k];
      if (sizes[k].behind.kind() != NodeKind::Var || plan_.is_known(sizes[k].behind)) {
        plan_.rely_on({next, sizes[k].behind, "node `" + node.name + "`"});
      } else {
        behind.emplace_back(Var::of(sizes[k].behind), next);
      }
    }
    plan_.add_sets(node.name, behind);
    for (size_t i = 0; i < carried.size(); ++i) places.place(node.outputs[i], after(carried[i], floor_mod(done, 2)));
  }

  const std::vector<ScheduledFunc>& funcs_;
  PlanMaker& plan_;
  // Of the whole network's groups, not of those within control flow.  They end a run behind all else that it does, so
  // that nothing waits for them.
  std::vector<std::pair<const Node*, BufferUse>> demands_ = {};
  std::set<std::pair<const PlannedGraph*, std::string>> begun_;  // loops, of which it is said how large things begin
};

}  // namespace

Plan plan_network(const PlannedGraph& planned, const std::vector<ScheduledFunc>& funcs, const Target& target,
                  ConstantPool& constants) {
  PlanMaker plan(planned.graph.name, planned.graph.symbols, planned.graph.equalities, target, constants);
  const std::vector<Var> variables = variables_of(planned.graph);
  for (size_t i = planned.graph.symbols.size(); i < variables.size(); ++i) plan.announce(variables[i]);
  Places places(planned.graph, planned.aliases, plan);
  NetworkPlan network(funcs, plan);
  network.add(planned, places);
  network.end();
  return std::move(plan).finish();
}

}  // namespace tw::relay
