#include "relay_ir/op_facts.h"

#include <algorithm>

#include "relay_ir/op.h"

namespace tw::relay {
namespace {

using Kind = AxisUse::Kind;

bool is_one_to_one(const AxisUse& use) {
  return use.kind == Kind::same || (use.kind == Kind::runs && use.runs.size() <= 1);
}

// Elements of its input along as many axes.
bool may_move(const Graph& graph, const Node& node) {
  return node.op->kind == OpKind::injective && node.op->facts.rounding == Rounding::moves && node.outputs.size() == 1 &&
         node.inputs.size() == 1 &&
         graph.values[node.inputs[0]].type.rank() == graph.values[node.outputs[0]].type.rank();
}

}  // namespace

OpFacts plain_facts(AxesFunction axes, Rounding rounding, int operands) {
  return {.axes = axes,
          .rounding = rounding,
          .operands = operands,
          .linear = not_linear,
          .update = makes_all_anew,
          .part = no_part,
          .takes_strides = false};
}

OpFacts linear_facts(AxesFunction axes, Rounding rounding, int operands, LinearFunction linear) {
  OpFacts facts = plain_facts(axes, rounding, operands);
  facts.linear = linear;
  return facts;
}

OpFacts updated_facts(UpdateFunction update, int operands) {
  OpFacts facts = plain_facts(unknown_axes, Rounding::exact, operands);
  facts.update = update;
  return facts;
}

OpFacts part_facts(AxesFunction axes, PartFunction part) {
  OpFacts facts = plain_facts(axes, Rounding::moves);
  facts.part = part;
  return facts;
}

AxisUse same_axis(int axis) {
  return {.kind = Kind::same, .axis = axis};
}
AxisUse whole_axis(int axis) {
  return {.kind = Kind::whole, .axis = axis};
}
AxisUse fixed_axis() {
  return {.kind = Kind::fixed};
}

AxisUses unknown_axes(const OpCall& call) {
  const size_t rank = call.outputs.empty() ? 0 : call.outputs[0].shape.size();
  return AxisUses(call.inputs.size(), std::vector<AxisUse>(rank));
}

AxisUses broadcast_axes(const OpCall& call) {
  AxisUses uses = unknown_axes(call);
  for (size_t i = 0; i < uses.size(); ++i) {
    const std::vector<Expr>& shape = call.inputs[i].shape;
    const size_t skip = uses[i].size() - shape.size();
    for (size_t d = 0; d < uses[i].size(); ++d) {
      const bool is_one = d < skip || (is_const_int(shape[d - skip], 1) && !is_const_int(call.outputs[0].shape[d], 1));
      uses[i][d] = is_one ? fixed_axis() : same_axis(static_cast<int>(d - skip));
    }
  }
  return uses;
}

AxisUses aligned_axes(const OpCall& call) {
  AxisUses uses = unknown_axes(call);
  for (size_t d = 0; d < uses[0].size(); ++d) uses[0][d] = same_axis(static_cast<int>(d));
  return uses;
}

AxisUses axes_of(const Graph& graph, const Node& node) {
  return node.op->facts.axes(make_call(graph, node));
}

std::optional<Linear> linear_of(const Graph& graph, const Node& node) {
  return node.op->facts.linear ? node.op->facts.linear(make_call(graph, node)) : std::nullopt;
}

bool is_strided(const Graph& graph, const Node& node) {
  if (!may_move(graph, node)) return false;
  const auto uses = axes_of(graph, node)[0];
  return std::all_of(uses.begin(), uses.end(), is_one_to_one);
}

bool is_permutation(const Graph& graph, const Node& node) {
  if (!may_move(graph, node)) return false;
  const auto uses = axes_of(graph, node)[0];
  bool is_other_order = false;
  for (size_t d = 0; d < uses.size(); ++d) {
    if (uses[d].kind != Kind::same) return false;
    is_other_order = is_other_order || uses[d].axis != static_cast<int>(d);
  }
  return is_other_order;
}

bool joins_whole(const Graph& graph, const Node& node) {
  if (node.op->kind != OpKind::injective || node.outputs.size() != 1 || node.inputs.size() < 2) return false;
  const AxisUses uses = axes_of(graph, node);
  for (size_t i = 0; i < uses.size(); ++i) {
    const auto joined =
        std::find_if(uses[i].begin(), uses[i].end(), [](const AxisUse& u) { return u.kind == Kind::runs; });
    if (joined == uses[i].end()) return false;
    const auto extent = as_int(graph.values[node.inputs[i]].type.shape[static_cast<size_t>(joined->axis)]);
    if (!joined->runs.empty() && (joined->runs.size() > 1 || joined->runs[0].count != extent)) return false;
  }
  return true;
}

int joined_axis(const Graph& graph, const Node& node) {
  const auto uses = axes_of(graph, node)[0];
  return static_cast<int>(std::ranges::find(uses, Kind::runs, &AxisUse::kind) - uses.begin());
}

bool joins_end_to_end(const Graph& graph, const Node& node) {
  if (!joins_whole(graph, node)) return false;
  const std::vector<Expr>& shape = graph.values[node.outputs[0]].type.shape;
  return std::all_of(shape.begin(), shape.begin() + joined_axis(graph, node),
                     [](const Expr& extent) { return is_const_int(extent, 1); });
}

}  // namespace tw::relay
