// 3×3 convolutions with stride 1 and known weights by Winograd's minimal filtering, where that is predicted to be
// faster and its rounding error is small.
//
//   conv(x, w, pads)   ⇒   winograd_conv(x, G w Gᵀ, pads, tile)
//
// The transformed weights are 4 times (m = 2: 16/9 times) the size of the original ones.  In deep layers with few tiles
// they are used faster than memory brings them: there the smaller tile or the direct sum is faster, and the process
// stays small.
#include <algorithm>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/winograd.h"

namespace tw::relay {
namespace {

constexpr double largest_error = 5e-5;  // of the output's magnitude

struct Shape3x3 {
  int64_t batch, inputs, outputs, rows, columns;  // of the output map
};

std::optional<Shape3x3> match(const Graph& graph, const Node& node) {
  if (node.op->name != "conv" || !graph.is_constant(node.inputs[1])) return std::nullopt;
  if (!node.attributes.get_string("result").empty()) return std::nullopt;  // of small elements
  const NDArray& weight = *graph.values[node.inputs[1]].constant;
  if (weight.dtype() != f32 || weight.rank() != 4 || weight.shape()[2] != 3 || weight.shape()[3] != 3)
    return std::nullopt;
  const auto is_one = [&](const char* name) {
    const auto& values = node.attributes.get_ints(name);
    return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 1; });
  };
  if (node.attributes.get_int("groups") != 1 || !is_one("strides") || !is_one("dilations")) return std::nullopt;
  const Shape out = smallest_shape(graph.values[node.outputs[0]].type);
  return Shape3x3{out[0], weight.shape()[1], weight.shape()[0], out[2], out[3]};
}

// Cycles, by the large terms, of all workers together: work divides among them.  Whatever a cache could hold of one
// layer, the other layers' weights come in between: each run reads them from memory.

double weight_cycles(double bytes, const Target& target) {
  return bytes / std::min(target.memory_rate, std::max(1, target.threads) * target.core_memory_rate);
}

double weight_bytes(const Shape3x3& s, double elements_a_pair) {
  return 4.0 * elements_a_pair * s.inputs * s.outputs;
}

double predict_direct(const Shape3x3& s, const Target& target) {
  const double products = 9.0 * s.batch * s.rows * s.columns * s.inputs * s.outputs;
  return std::max(products / target.lanes(f32) / target.fma_ports / std::max(1, target.threads),
                  weight_cycles(weight_bytes(s, 9), target));
}

double predict_winograd(const Shape3x3& s, const WinogradTransform& transform, const Target& target) {
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto vectors = [&](int64_t channels) { return static_cast<double>(divide_up(channels, target.lanes(f32))); };
  const double points = transform.size() * transform.size(), ports = target.fma_ports;
  const double tiles =
      static_cast<double>(s.batch * divide_up(s.rows, transform.tile) * divide_up(s.columns, transform.tile));
  // Register tiles of few rows wait for their loads.
  const double products = points * tiles * s.inputs * vectors(s.outputs) / ports * std::max(1.0, 6.0 / tiles);
  // A load, a store, and on average 3 multiply-adds each for rows and columns.
  const double transforms = points * tiles * (vectors(s.inputs) + vectors(s.outputs)) * (2.0 + 6.0 / ports);
  const double workers = std::max(1, target.threads), bytes = weight_bytes(s, points);
  // What is added to the weights is also loaded once more at the start and stays: it has to save its own reading.
  const double added = weight_cycles(bytes - weight_bytes(s, 9), target);
  return std::max(products / workers, weight_cycles(bytes, target)) + transforms / workers + added;
}

struct Choice {
  int64_t tile;
  NDArray weight;  // transformed
};

// The fastest of the tiles that beat the direct convolution and round well enough.
std::optional<Choice> choose(const Shape3x3& shape, const NDArray& weight, const Target& target) {
  if (shape.inputs < target.lanes(f32) || shape.outputs < target.lanes(f32)) return std::nullopt;
  const double limit = 0.9 * predict_direct(shape, target);
  std::vector<std::pair<double, int64_t>> candidates;
  for (const int64_t tile : {2, 4}) {
    const double cycles = predict_winograd(shape, winograd_transform(tile), target);
    if (cycles < limit) candidates.emplace_back(cycles, tile);
  }
  std::sort(candidates.begin(), candidates.end());
  for (const auto& [cycles, tile] : candidates) {
    const WinogradTransform& transform = winograd_transform(tile);
    NDArray transformed = winograd_weight(weight, transform);
    if (winograd_error(weight, transformed, transform) <= largest_error) return Choice{tile, std::move(transformed)};
  }
  return std::nullopt;
}

}  // namespace

Graph choose_winograd(const Graph& graph, const Target& target) {
  if (target.kind == TargetKind::cuda || target.lanes(f32) < 4 || !target.has_fma) return graph;
  GraphCopy copy(graph);
  for (const Node& node : graph.nodes) {
    const auto shape = match(graph, node);
    const auto choice = shape ? choose(*shape, *graph.values[node.inputs[1]].constant, target) : std::nullopt;
    if (!choice) {
      copy.copy(node);
      continue;
    }
    NodeAttributes attributes;
    attributes.set("tile", choice->tile);
    std::vector<int64_t> pads = node.attributes.get_ints("pads");
    if (pads.empty()) pads.assign(4, 0);
    attributes.set("pads", pads);
    const ValueId constant = copy.to().add_constant(node.name + ".winograd", choice->weight);
    copy.set(node.outputs[0], copy.add(node, "winograd_conv", {copy[node.inputs[0]], constant}, attributes)[0]);
  }
  return copy.finish();
}

}  // namespace tw::relay
