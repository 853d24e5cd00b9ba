#include "relay_ir/view.h"

#include <algorithm>

#include "relay_ir/op.h"

namespace tw::relay {
namespace {

constexpr int64_t alignment = 64;

// Where the elements of a slice are neighbours: axes before the outermost one that is not 1 have one position, those
// behind it all.
std::optional<int64_t> slice_offset(const Graph& graph, const Node& node) {
  const Value &x = graph.values[node.inputs[0]], &y = graph.values[node.outputs[0]];
  const auto from = static_shape(x.type), to = static_shape(y.type);
  if (!from || !to || x.constant || x.channel_block != 0 || y.channel_block != 0) return std::nullopt;
  if (std::find(graph.outputs.begin(), graph.outputs.end(), node.outputs[0]) != graph.outputs.end())
    return std::nullopt;
  for (const int64_t step : node.attributes.get_ints("steps")) {
    if (step != 1) return std::nullopt;
  }
  const auto outermost = std::find_if(to->begin(), to->end(), [](int64_t extent) { return extent != 1; });
  if (outermost != to->end()) {
    const auto at = outermost - to->begin();
    if (!std::equal(outermost + 1, to->end(), from->begin() + at + 1, from->end())) return std::nullopt;
  }
  const auto &axes = node.attributes.get_ints("axes"), &starts = node.attributes.get_ints("starts");
  int64_t offset = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t stride = x.type.dtype.bytes();
    for (size_t d = (axes[i] < 0 ? axes[i] + from->size() : axes[i]) + 1; d < from->size(); ++d) stride *= (*from)[d];
    offset += starts[i] * stride;
  }
  return offset % alignment == 0 ? std::optional(offset) : std::nullopt;
}

}  // namespace

std::optional<int64_t> view_offset(const Graph& graph, const Node& node) {
  if (node.op->kind == OpKind::view) return 0;
  return node.op->name == "slice" ? slice_offset(graph, node) : std::nullopt;
}

}  // namespace tw::relay
