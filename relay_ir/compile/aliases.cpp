#include "relay_ir/compile/aliases.h"

#include <algorithm>
#include <set>

#include "relay_ir/compile/layout.h"
#include "relay_ir/in_place.h"
#include "relay_ir/op.h"
#include "relay_ir/view.h"
#include "runtime/memory.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

Aliases aliases_of(const Graph& graph) {
  Aliases aliases;
  aliases.offset.assign(graph.values.size(), Expr(0));
  for (size_t id = 0; id < graph.values.size(); ++id) aliases.root.push_back(static_cast<ValueId>(id));
  for (const Node& node : graph.nodes) {
    const auto offset = is_in_place(node) ? std::optional(Expr(0)) : view_offset(graph, node);
    if (!offset) continue;
    check(graph.values[node.inputs[0]].channel_block == 0, "compile: views are of values in row-major layout");
    aliases.root[node.outputs[0]] = aliases.root[node.inputs[0]];
    aliases.offset[node.outputs[0]] = simplify(aliases.offset[node.inputs[0]] + *offset);
  }
  return aliases;
}

// What kernels make, that is no output and updates nothing in place.
std::set<ValueId> made_by_kernels(const Graph& graph, const std::vector<Group>& groups, const Aliases& aliases) {
  const auto is_update = [&](int index) { return is_in_place(graph.nodes[index]); };
  std::set<ValueId> made;
  for (const Group& group : groups) {
    if (!control_of(graph, group) && std::ranges::none_of(group.nodes, is_update))
      made.insert(group.outputs.begin(), group.outputs.end());
  }
  for (const ValueId id : graph.outputs) made.erase(aliases.root[id]);
  return made;
}

// Where the parts of a concatenation begin in the result's bytes; nothing where they are not its bytes one after the
// other, or not at multiples of what memory begins at.
std::optional<std::vector<Expr>> offsets_of_parts(const Graph& graph, const Node& node) {
  if (!joins_end_to_end(graph, node) || is_in_place(node)) return std::nullopt;
  const int64_t block = graph.values[node.outputs[0]].channel_block;
  if (block > 0 && joined_axis(graph, node) != 1) return std::nullopt;
  const auto is_multiple = [](const Expr& e, int64_t of) { return is_const_int(simplify(floor_mod(e, of)), 0); };
  std::vector<Expr> offsets;
  Expr offset(0);
  for (const ValueId id : node.inputs) {
    const Value& part = graph.values[id];
    if (part.channel_block != block || (block > 0 && !is_multiple(part.type.shape[1], block))) return std::nullopt;
    if (!is_multiple(offset, static_cast<int64_t>(storage_alignment))) return std::nullopt;
    offsets.push_back(offset);
    offset = simplify(offset + storage_bytes(part));
  }
  return offsets;
}

// Concatenations whose parts kernels make where they lie in the result: no kernel copies them.
void join_in_place(const Graph& graph, std::vector<Group>& groups, Aliases& aliases) {
  if (std::ranges::any_of(graph.nodes, overwrites)) return;  // order_groups asks who makes a value
  const std::set<ValueId> made = made_by_kernels(graph, groups, aliases);
  std::erase_if(groups, [&](const Group& group) {
    if (group.nodes.size() != 1 || !group.copies.empty()) return false;
    const Node& node = graph.nodes[group.nodes[0]];
    const auto offsets = offsets_of_parts(graph, node);
    if (!offsets) return false;
    const auto variables = free_vars(storage_bytes(graph.values[node.outputs[0]]));
    std::vector<ValueId> roots;  // of the parts
    for (const ValueId id : node.inputs) {
      const ValueId root = aliases.root[id];
      const Expr bytes = storage_bytes(graph.values[id]);
      // Memory is given when the first part is made.
      const auto is_of_part = [&](const Var& v) { return uses_var(bytes, v); };
      const bool is_all =
          is_known_equal(storage_bytes(graph.values[root]), bytes) && is_const_int(aliases.offset[id], 0);
      const bool is_first = std::ranges::count(roots, root) == 0;
      if (!made.contains(root) || !is_all || !is_first || !std::ranges::all_of(variables, is_of_part)) return false;
      roots.push_back(root);
    }
    for (size_t part = 0; part < roots.size(); ++part) {
      for (size_t id = 0; id < aliases.root.size(); ++id) {
        if (aliases.root[id] != roots[part]) continue;
        aliases.root[id] = node.outputs[0];
        aliases.offset[id] = simplify(aliases.offset[id] + (*offsets)[part]);
      }
    }
    return true;
  });
}

// Where a loop leaves what it carries depends on the number of its steps.
std::set<ValueId> carried_results(const Graph& graph) {
  std::set<ValueId> results;
  for (const Node& node : graph.nodes) {
    if (!is_loop(node)) continue;
    results.insert(node.outputs.begin(), node.outputs.begin() + static_cast<ptrdiff_t>(carried_by(node)));
  }
  return results;
}

// By the group that makes it, element by element, or by a group of its own.
void copy_output(const Graph& graph, std::vector<Group>& groups, ValueId output, ValueId copy) {
  const auto makes_it = [&](const Group& group) {
    const auto is_by_element = [&](int index) {
      const Node& node = graph.nodes[index];
      return node.op->kind == OpKind::elementwise || node.op->kind == OpKind::contraction || is_strided(graph, node);
    };
    return !group.nodes.empty() && std::all_of(group.nodes.begin(), group.nodes.end(), is_by_element) &&
           std::find(group.outputs.begin(), group.outputs.end(), output) != group.outputs.end();
  };
  const auto maker = std::find_if(groups.begin(), groups.end(), makes_it);
  if (maker == groups.end()) {
    groups.push_back({{}, {output}, {copy}, {{copy, output}}, "copy of " + graph.values[output].name});
    return;
  }
  maker->outputs.push_back(copy);
  maker->copies[copy] = output;
}

}  // namespace

Aliases resolve_aliases(Graph& graph, std::vector<Group>& groups, const std::map<std::string, std::string>& in_place) {
  Aliases aliases = aliases_of(graph);
  join_in_place(graph, groups, aliases);
  std::set<ValueId> taken = carried_results(graph);
  taken.insert(graph.inputs.begin(), graph.inputs.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.outputs.size(); ++i) names.push_back(graph.output_name(i));
  graph.output_names = std::move(names);
  std::set<std::string> updated;  // inputs; of an output that is listed twice the first is in place
  std::map<std::string, size_t> inputs;
  for (size_t i = 0; i < graph.inputs_of_caller(); ++i) inputs[graph.values[graph.inputs[i]].name] = i;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    ValueId& output = graph.outputs[i];
    const ValueId root = aliases.root[output];
    const auto shared = in_place.find(graph.output_names[i]);
    if (shared != in_place.end() && updated.insert(shared->second).second) {
      aliases.in_place[i] = static_cast<int32_t>(inputs.at(shared->second));
      continue;
    }
    const bool is_whole = is_known_equal(storage_bytes(graph.values[root]), storage_bytes(graph.values[output]));
    if (!graph.is_constant(root) && is_whole && taken.insert(root).second) continue;
    const ValueId copy = graph.add_value(graph.output_names[i], graph.values[output].type);
    copy_output(graph, groups, output, copy);
    aliases.root.push_back(copy);
    aliases.offset.emplace_back(0);
    output = copy;
  }
  return aliases;
}

}  // namespace tw::relay
