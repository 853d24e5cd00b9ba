#include "relay_ir/compile/planned_graph.h"

#include <algorithm>

#include "relay_ir/compile/layout.h"
#include "relay_ir/compile/merge_axes.h"
#include "relay_ir/compile/name_extents.h"
#include "relay_ir/compile/over_steps.h"
#include "relay_ir/compile/plan_maker.h"
#include "relay_ir/in_place.h"
#include "targets/backend.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"

namespace tw::relay {
namespace {

// What has no elements, and says no number that others read.
void drop_empty(const Graph& graph, std::vector<Group>& groups) {
  std::erase_if(groups, [&](const Group& group) {
    const Node* control = control_of(graph, group);
    if (control && !numbers_read_by(graph, *control).empty()) return false;
    return !group.outputs.empty() && std::all_of(group.outputs.begin(), group.outputs.end(), [&](ValueId id) {
      return is_const_int(storage_bytes(graph.values[id]), 0);
    });
  });
}

bool has_few_steps(const Node& loop) {
  constexpr int64_t most_steps = 1 << 10;
  return bounds_of(steps_of(loop)).high.value_or(DimensionBounds{}.high) <= most_steps;
}

bool has_sizes_of(const Graph& graph, const Var& number) {
  const auto is_of_number = [&](const Expr& dim) { return uses_var(dim, number); };
  return std::ranges::any_of(graph.values,
                             [&](const Value& value) { return std::ranges::any_of(value.type.shape, is_of_number); }) ||
         std::ranges::any_of(graph.nodes, [&](const Node& node) {
           return std::ranges::any_of(node.regions, [&](const Graph& inner) { return has_sizes_of(inner, number); });
         });
}

// A loop carries copies, which its steps may overwrite.
void copy_carried(PlannedGraph& planned) {
  std::vector<Group> groups;
  for (Group& group : planned.groups) {
    const Node* control = control_of(planned.graph, group);
    if (control && is_loop(*control)) {
      std::vector<ValueId>& copies = planned.carried[control->name];
      const Graph& region = control->regions[0];
      const Var& number = region.symbols.back();
      if (condition_of(*control) != no_value && !has_few_steps(*control) && has_sizes_of(region, number))
        planned.grown.emplace(control->name, dimension("grown", {0}));
      const auto grown = planned.grown.find(control->name);
      Substitution after;
      for (const LoopSize& size : sizes_of(*control)) {
        const Var next = dimension("next_" + size.within.name(), {0});
        after[size.within] = next;
        planned.next[control->name].push_back(next);
      }
      for (size_t i = 0; i < carried_by(*control); ++i) {
        const ValueId from = control->inputs[1 + i];
        const Value value = planned.graph.values[from];
        copies.push_back(planned.graph.add_value(value.name, value.type));
        const Expr bytes = storage_bytes(region.values[region.inputs[i]]), steps = max(steps_of(*control), Expr(0));
        const bool grows = grown != planned.grown.end() && uses_var(bytes, number);
        const Expr room =
            grows ? simplify(substitute(bytes, {{number, grown->second}})) : most_over(bytes, number, steps);
        const bool is_of_steps =
            grows || std::ranges::any_of(after, [&](const auto& size) { return uses_var(bytes, size.first); });
        planned.room[copies.back()] = {control->name, room, is_of_steps ? simplify(substitute(room, after)) : Expr()};
        planned.aliases.root.push_back(copies.back());
        planned.aliases.offset.emplace_back(0);
        if (!is_const_int(storage_bytes(value), 0))
          groups.push_back({{}, {from}, {copies.back()}, {{copies.back(), from}}, "copy of " + value.name});
      }
    }
    groups.push_back(std::move(group));
  }
  planned.groups = std::move(groups);
}

// What a step only adds something to, behind all that is there, stays where it lies: pairs of what the region gives and
// takes.  Who reads the old elements finds them there whenever.
std::map<std::string, std::string> append_in_place(const Node& loop, Graph& region) {
  std::map<std::string, std::string> pairs;
  const Uses uses(region);
  const size_t first = condition_of(loop) == no_value ? 0 : 1;
  for (size_t i = 0; i < carried_by(loop); ++i) {
    const ValueId before = region.inputs[i], after = region.outputs[first + i];
    if (uses.producer[after] < 0 || std::ranges::count(region.outputs, after) > 1) continue;
    Node& node = region.nodes[uses.producer[after]];
    const bool appends = joins_end_to_end(region, node) && region.values[after].channel_block == 0;
    if (!appends || node.inputs[0] != before) continue;
    node.decisions["in_place"] = {1};
    pairs[region.output_name(first + i)] = region.values[before].name;
  }
  return pairs;
}

// What a loop keeps of each step lies where all steps' do, one after the other.
void align_kept(const Node& loop, PlannedGraph& region) {
  const size_t kept = loop.outputs.size() - carried_by(loop);
  const std::vector<ValueId>& outputs = region.graph.outputs;
  for (size_t i = outputs.size() - kept; i < outputs.size(); ++i) {
    const Value& value = region.graph.values[outputs[i]];
    const auto bytes = as_int(storage_bytes(value));
    const int64_t alignment = bytes ? *bytes & -*bytes : value.type.dtype.bytes();
    region.alignment[region.aliases.root[outputs[i]]] = std::max<int64_t>(alignment, 1);
  }
}

// At a multiple of what a value begins, if that is less than `usual`, which kernels assume of other values.
int64_t alignment_of(const PlannedGraph& planned, ValueId id, int64_t usual) {
  const auto own = planned.alignment.find(planned.aliases.root[id]);
  int64_t alignment = own == planned.alignment.end() ? usual : std::min(usual, own->second);
  const auto is_multiple = [&] { return is_const_int(simplify(floor_mod(planned.aliases.offset[id], alignment)), 0); };
  while (alignment > planned.graph.values[id].type.dtype.bytes() && !is_multiple()) alignment /= 2;
  return alignment;
}

// What regions use lies where it does outside of them; what a loop carries in memory of its own.
void align_used(const Node& node, const PlannedGraph& planned, std::vector<PlannedGraph>& regions, int64_t usual) {
  for (size_t i = is_loop(node) ? carried_by(node) : 0; 1 + i < node.inputs.size(); ++i) {
    const int64_t alignment = alignment_of(planned, node.inputs[1 + i], usual);
    if (alignment == usual) continue;
    for (PlannedGraph& region : regions) region.alignment[region.graph.inputs[i]] = alignment;
  }
}

// Whether the steps of a loop find its constants in the cache that cores share, where others leave them some room.
bool stays_cached(const PlannedGraph& region, const Target& target) {
  int64_t bytes = 0;
  for (const Value& value : region.graph.values)
    if (value.constant) bytes += value.constant->byte_size();
  return bytes <= target.l3.bytes / 4 * 3;
}

// What kernels may assume of where their buffers are.  Of the alignment they assume it of every value, so that equal
// layers are equal work wherever they stand.
Func with_facts_of_buffers(Func func, const PlannedGraph& planned, const Group& group, int alignment, bool is_cached) {
  const std::vector<ValueId> values = buffer_values(planned.graph, group);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_constant = planned.graph.is_constant(values[i]);
    if (is_constant && !is_cached) continue;
    BufferNode node = *func.buffers[i].get();
    if (!is_constant) node.alignment = alignment_of(planned, values[i], alignment);
    node.is_cached = is_constant;
    const Buffer known{std::move(node)};
    func.body = replace_buffer(func.body, func.buffers[i], known);
    func.buffers[i] = known;
  }
  return func;
}

}  // namespace

PlannedGraph plan_groups(Graph graph, const std::map<std::string, std::string>& in_place,
                         const std::set<std::string>& unfused) {
  PlannedGraph planned;
  planned.graph = std::move(graph);
  planned.groups = fuse(planned.graph, unfused);
  planned.aliases = resolve_aliases(planned.graph, planned.groups, in_place);
  drop_empty(planned.graph, planned.groups);
  order_groups(planned.graph, planned.groups);
  copy_carried(planned);
  for (const Group& group : planned.groups) {
    const Node* control = control_of(planned.graph, group);
    if (!control) continue;
    std::vector<PlannedGraph>& regions = planned.regions[control->name];
    for (Graph region : control->regions) {
      const auto pairs = is_loop(*control) ? append_in_place(*control, region) : std::map<std::string, std::string>();
      regions.push_back(plan_groups(std::move(region), pairs, unfused));
    }
    if (!is_loop(*control)) continue;
    align_kept(*control, regions[0]);
    for (const auto& [output, input] : regions[0].aliases.in_place)
      planned.room.at(planned.carried.at(control->name)[static_cast<size_t>(input)]).stays = true;
  }
  return planned;
}

void for_each_group(const PlannedGraph& planned,
                    const std::function<void(const Graph& graph, const Group& group, size_t func)>& visit) {
  for (size_t i = 0; i < planned.groups.size(); ++i) {
    const Node* control = control_of(planned.graph, planned.groups[i]);
    if (!control) {
      visit(planned.graph, planned.groups[i], planned.func_of[i].func);
      continue;
    }
    for (const PlannedGraph& region : planned.regions.at(control->name)) for_each_group(region, visit);
  }
}

void UniqueFuncs::add(PlannedGraph& planned, bool is_cached) {
  for (const Group& group : planned.groups) {
    if (const Node* control = control_of(planned.graph, group)) {
      std::vector<PlannedGraph>& regions = planned.regions.at(control->name);
      align_used(*control, planned, regions, caller_alignment(target_));
      for (PlannedGraph& region : regions) add(region, is_loop(*control) ? stays_cached(region, target_) : is_cached);
      planned.func_of.emplace_back();
      continue;
    }
    Func func =
        with_facts_of_buffers(lower_group(planned.graph, group), planned, group, caller_alignment(target_), is_cached);
    auto [named, parameters] = name_extents(merge_axes(func));
    planned.func_of.push_back({add(std::move(named)), std::move(parameters)});
  }
}

size_t UniqueFuncs::add(Func func) {
  std::vector<size_t>& equal = by_hash_[structural_hash(func)];
  const auto found = std::find_if(equal.begin(), equal.end(), [&](size_t i) {
    return funcs_[i].attributes == func.attributes && structural_equal(funcs_[i], func);
  });
  if (found != equal.end()) return *found;
  equal.push_back(funcs_.size());
  funcs_.push_back(std::move(func));
  return funcs_.size() - 1;
}

}  // namespace tw::relay
