#include "relay_ir/view.h"

#include <algorithm>
#include <numeric>

#include "relay_ir/op.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

constexpr int64_t alignment = 64;

bool is_output(const Graph& graph, ValueId id) {
  return std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
}

// Where the elements of a slice are neighbours: axes before the outermost one that is not 1 have one position, those
// behind it all.
std::optional<int64_t> slice_offset(const Graph& graph, const Node& node) {
  const Value &x = graph.values[node.inputs[0]], &y = graph.values[node.outputs[0]];
  const auto from = static_shape(x.type), to = static_shape(y.type);
  if (!from || !to || x.constant || x.channel_block != 0 || y.channel_block != 0) return std::nullopt;
  if (is_output(graph, node.outputs[0])) return std::nullopt;
  const auto outermost = std::find_if(to->begin(), to->end(), [](int64_t extent) { return extent != 1; });
  if (outermost != to->end()) {
    const auto at = outermost - to->begin();
    if (!std::equal(outermost + 1, to->end(), from->begin() + at + 1, from->end())) return std::nullopt;
  }
  const auto uses = axes_of(graph, node)[0];
  int64_t offset = 0, stride = x.type.dtype.bytes();
  for (size_t d = uses.size(); d-- > 0; stride *= (*from)[d]) {
    if (uses[d].axis != static_cast<int>(d)) return std::nullopt;
    if (uses[d].kind == AxisUse::Kind::same) continue;
    if (uses[d].runs.empty() || uses[d].runs[0].step != 1) return std::nullopt;
    offset += uses[d].runs[0].from * stride;
  }
  return offset % alignment == 0 ? std::optional(offset) : std::nullopt;
}

// Whether all of the node's input that is used is this part: then no more of it need be computed.
bool is_all_that_is_used(const Graph& graph, const Node& node) {
  const Uses uses(graph);
  const ValueId x = node.inputs[0];
  return uses.producer[x] >= 0 && uses.is_used_once(x);
}

std::optional<Expr> part_offset(const Graph& graph, const Node& node) {
  const Value &x = graph.values[node.inputs[0]], &y = graph.values[node.outputs[0]];
  if (x.constant || x.channel_block != 0 || y.channel_block != 0) return std::nullopt;
  if (is_output(graph, node.outputs[0]) || is_all_that_is_used(graph, node)) return std::nullopt;
  const auto element = node.op->facts.part(make_call(graph, node));
  return element ? std::optional(simplify(*element * x.type.dtype.bytes())) : std::nullopt;
}

}  // namespace

std::optional<Expr> view_offset(const Graph& graph, const Node& node) {
  if (node.op->kind == OpKind::view) return Expr(0);
  if (node.op->facts.part) return part_offset(graph, node);
  const auto offset = is_strided(graph, node) ? slice_offset(graph, node) : std::nullopt;
  return offset ? std::optional(Expr(*offset)) : std::nullopt;
}

std::vector<ValueId> viewed_values(const Graph& graph) {
  std::vector<ValueId> viewed(graph.values.size());
  std::iota(viewed.begin(), viewed.end(), 0);
  for (const Node& node : graph.nodes) {
    if (view_offset(graph, node)) viewed[node.outputs[0]] = viewed[node.inputs[0]];
  }
  return viewed;
}

}  // namespace tw::relay
