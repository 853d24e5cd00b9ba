// Inverted residual blocks: a 1×1 convolution makes many channels of few, and a depthwise convolution is all that reads
// them.  Where the many would leave the cores' second caches in between, fusion makes both one group, which makes them
// strip by strip where they are used (targets/cpu/inverted_residual.cpp).  It is decided so: by analysis where the way
// through the common cache is predicted to take longer than making the strips' common rows twice.
//
//   e = conv(x, w1)                        e = conv(x, w1)
//   a = clip(e + b)                   ⇒    a = clip(e + b)
//   y = conv(a, w2) {groups = c}           y = conv(a, w2) {groups = c} decided "fuse_expansion=1"
#include <algorithm>
#include <cmath>
#include <set>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

constexpr char expansion[] = "fuse_expansion";  // the decision
constexpr int64_t apart = 0, fused = 1;

struct Pair {
  std::vector<size_t> nodes;  // the expansion, what works on its elements, the depthwise convolution
  int64_t inputs, channels, pixels, result_pixels, window, rows, halo;  // halo: rows that neighbouring strips share
};

// The shape of a convolution's weight, where it and its data are f32 images of known size.
std::optional<Shape> weight_of(const Graph& graph, const Node& node) {
  const auto form = linear_of(graph, node);
  if (!form || form->filter_axis != 0 || !graph.is_constant(node.inputs[1])) return std::nullopt;
  const TensorType& data = graph.values[node.inputs[0]].type;
  const Shape weight = graph.values[node.inputs[1]].constant->shape();
  if (data.dtype != f32 || graph.values[node.inputs[1]].type.dtype != f32 || weight.size() != 4) return std::nullopt;
  if (!node.attributes.get_string("result").empty() || !static_shape(data)) return std::nullopt;
  return weight;
}

bool is_expansion(const Graph& graph, const Node& node) {
  if (!weight_of(graph, node)) return false;
  const auto uses = axes_of(graph, node)[0];
  return uses[1].kind == AxisUse::Kind::whole && uses[2].is_same(2) && uses[3].is_same(3);
}

bool is_depthwise(const Graph& graph, const Node& node) {
  if (!node.op->leaves_open(expansion) || !weight_of(graph, node)) return false;
  const auto uses = axes_of(graph, node)[0];
  return uses[1].is_same(1) && std::all_of(uses.begin() + 2, uses.end(), [](const AxisUse& use) {
           return use.kind == AxisUse::Kind::window && use.size > 1 && use.dilation == 1;
         });
}

// From the depthwise convolution back to the one expansion that all its data comes from, element by element.
std::optional<Pair> match(const Graph& graph, const Uses& uses, size_t depthwise) {
  const Node& node = graph.nodes[depthwise];
  if (!is_depthwise(graph, node)) return std::nullopt;
  const TensorType& type = graph.values[node.inputs[0]].type;
  std::set<size_t> members{depthwise};
  std::vector<ValueId> open{node.inputs[0]};
  std::optional<size_t> expansion;
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    const int producer = uses.producer[value];
    if (producer < 0 || !(graph.values[value].type == type)) return std::nullopt;
    if (!members.insert(static_cast<size_t>(producer)).second) continue;
    const Node& made = graph.nodes[producer];
    if (made.op->kind == OpKind::elementwise) {
      std::copy_if(made.inputs.begin(), made.inputs.end(), std::back_inserter(open),
                   [&](ValueId id) { return id != no_value && !graph.is_constant(id); });
    } else if (is_expansion(graph, made) && !expansion) {
      expansion = static_cast<size_t>(producer);
    } else {
      return std::nullopt;
    }
  }
  for (const size_t member : members) {
    if (member == depthwise) continue;
    const ValueId value = graph.nodes[member].outputs[0];
    const auto& users = uses.users[value];
    const bool is_inside = std::all_of(users.begin(), users.end(), [&](int u) { return members.count(u) != 0; });
    if (uses.is_output[value] || !is_inside) return std::nullopt;
  }
  const Shape before = *static_shape(type), after = *static_shape(graph.values[node.outputs[0]].type);
  const Shape window = graph.values[node.inputs[1]].constant->shape();
  Pair pair;
  pair.nodes.assign(members.begin(), members.end());
  pair.inputs = graph.values[graph.nodes[*expansion].inputs[1]].constant->shape()[1];
  pair.channels = before[1];
  pair.pixels = before[0] * before[2] * before[3], pair.result_pixels = after[0] * after[2] * after[3];
  pair.window = window[2] * window[3];
  pair.rows = before[2];
  pair.halo = std::max<int64_t>(0, window[2] - axes_of(graph, node)[0][2].stride);
  return pair;
}

// Cycles of a worker, without what both ways share.
std::vector<Candidate> candidates_of(const Pair& p, const Target& target) {
  constexpr double waits = 0.6;  // of the way there and back: stores do not, and loads are foreseen
  const double workers = std::max(1, target.threads), vectors = static_cast<double>(p.channels) / target.lanes(f32);
  const double product = static_cast<double>(p.pixels * p.inputs) * vectors / target.fma_ports / workers;
  const double sum = static_cast<double>(p.result_pixels * p.window) * vectors / target.fma_ports / workers;
  const double bytes = 4.0 * static_cast<double>(p.pixels * p.channels) / workers, near = 0.5 * target.l2.bytes;
  const double way = bytes > near ? waits * 2 * bytes / target.l3.rate : 0;
  // Strips of one vector of channels that stay in the second cache.
  const double vector_bytes = 4.0 * static_cast<double>(p.pixels) * target.lanes(f32);
  const double strips =
      std::max(std::ceil(vector_bytes / (0.25 * target.l2.bytes)), std::min(2.0, 2 * workers / vectors));
  const double again = product * static_cast<double>(p.halo) * (strips - 1) / static_cast<double>(p.rows);
  return {{{apart}, product + sum + way}, {{fused}, product + sum + again}};
}

}  // namespace

Graph fuse_expansions(const Graph& graph, const PassContext& context) {
  const Target& target = context.target;
  if (target.lanes(f32) < 4) return graph;
  const Uses uses(graph);
  Graph result = graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto pair = match(graph, uses, i);
    // Channels fill whole vectors.
    if (!pair || pair->channels % target.lanes(f32) != 0) continue;
    const std::vector<Candidate> candidates = candidates_of(*pair, target);
    result.nodes[i].decisions[expansion] =
        context.decide(graph, pair->nodes, expansion, candidates, fastest_way(candidates));
  }
  return result;
}

}  // namespace tw::relay
