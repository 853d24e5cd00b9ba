// Convolutions of windows of 3×3, or 3 along one axis, with stride 1 or 2 and known weights by Winograd's minimal
// filtering, where its rounding error is small and it is decided so: by analysis where it is predicted to be faster.
//
//   conv(x, w, pads, stride, dilation)   ⇒   winograd_conv(x, G w Gᵀ, pads, stride, dilation, tile)
//
// Of three axes two are filtered at most; along the first the window may be of any extent.
//
// Where the target multiplies operands of fewer bits faster than f32, and these are asked for, the direct sum is of
// them: the filtering, which stays in f32, has more to beat.
//
// The transformed weights are 4 times (m = 2: 16/9 times) the size of the original ones, or twice (4/3 times) along one
// axis.  In deep layers with few tiles they are used faster than memory brings them: there the smaller tile or the
// direct sum is faster, and the process stays small.
#include <algorithm>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/winograd.h"
#include "runtime/rounding.h"
#include "tensor_ir/parallel.h"

namespace tw::relay {
namespace {

constexpr char winograd[] = "winograd";           // the decision
constexpr double largest_error = 5e-5;            // of the output's magnitude
constexpr int64_t direct = 0;                     // a choice beside the tiles
constexpr double most_waiting_bytes = 256 << 20;  // of transformed data in memory

struct Filtering {
  int64_t images, inputs, outputs;  // maps of filtered axes; inputs of a group
  std::vector<int64_t> sizes;       // of the output along the filtered axes
  int64_t slices;                   // of the window
  int64_t stride, dilation, groups;
  bool is_open;  // sizes are such as maps usually have

  int64_t summed() const { return slices * inputs; }
  int64_t window() const { return sizes.size() == 2 ? 9 : 3; }
  WinogradFilter filter(int64_t tile) const { return winograd_filter(tile, stride, sizes.size()); }
};

std::optional<Filtering> match(const Graph& graph, const Node& node) {
  const auto form = linear_of(graph, node);
  if (!form || form->filter_axis != 0 || !graph.is_constant(node.inputs[1])) return std::nullopt;
  if (!node.attributes.get_string("result").empty()) return std::nullopt;  // of small elements
  const NDArray& weight = *graph.values[node.inputs[1]].constant;
  if (weight.dtype() != f32 || weight.rank() < 3 || weight.rank() > 5) return std::nullopt;
  const std::vector<int64_t> window(weight.shape().begin() + 2, weight.shape().end());
  const std::vector<size_t> filtered = filtered_axes(window);
  if (filtered.empty()) return std::nullopt;
  const auto uses = axes_of(graph, node)[0];
  const AxisUse& last = uses[2 + filtered.back()];
  const TensorType& type = graph.values[node.outputs[0]].type;
  const Shape out = typical_shape(type);
  Filtering result{.images = out[0],
                   .inputs = weight.shape()[1],
                   .outputs = weight.shape()[0],
                   .sizes = {},
                   .slices = 1,
                   .stride = last.stride,
                   .dilation = last.dilation,
                   .groups = form->groups,
                   .is_open = !static_shape(type)};
  if (last.stride != 1 && (last.stride != 2 || last.dilation != 1)) return std::nullopt;
  for (size_t d = 0; d < window.size(); ++d) {
    const AxisUse& use = uses[2 + d];
    const bool is_window = use.kind == AxisUse::Kind::window;
    if (std::ranges::count(filtered, d) != 0) {
      if (!is_window || use.stride != last.stride || use.dilation != last.dilation) return std::nullopt;
      result.sizes.push_back(out[2 + d]);
    } else {
      const bool is_summed = d == 0 && window.size() == 3;
      const bool is_every_slice = is_window && use.stride == 1 && use.dilation == 1 && (is_summed || window[d] == 1);
      if (!use.is_same(static_cast<int>(2 + d)) && !is_every_slice) return std::nullopt;
      result.images *= out[2 + d], result.slices *= window[d];
    }
  }
  return result;
}

int64_t count_tiles(const Filtering& f, int64_t tile) {
  int64_t tiles = f.images;
  for (const int64_t size : f.sizes) tiles *= f.dilation * divide_up(size, tile * f.dilation);
  return tiles;
}

double transformed_bytes(const Filtering& f, int64_t tile) {
  return f.filter(tile).points() * static_cast<double>(count_tiles(f, tile) * f.groups * f.inputs * f32.bytes());
}

// Cycles, by the large terms, of all workers together: work divides among them.
double predict(const Filtering& f, int64_t tile, Precision of_direct, const Target& target) {
  const double workers = std::max(1, target.threads), ports = target.fma_ports;
  const double memory_rate = std::min(target.memory_rate, workers * target.core_memory_rate);
  // Whatever a cache could hold of one layer, the other layers' weights come in between: each run reads them from
  // memory.  `bytes`: for an input channel and an output channel.
  const auto weight_cycles = [&](double bytes) { return bytes * f.summed() * f.outputs / memory_rate; };
  const double direct_bytes = static_cast<double>(f.window() * storage_of(of_direct).bytes());
  if (tile == direct) {
    // The direct sum leaves out what the outer elements of a wide window find in the padding.
    double elements = f.images * f.summed() * f.outputs / product_rate(of_direct, target);
    for (const int64_t size : f.sizes) {
      const auto inside = static_cast<double>(std::max<int64_t>(0, size - f.dilation)) / static_cast<double>(size);
      elements *= size * (f.dilation == 1 ? 3 : 1 + 2 * inside);
    }
    return std::max(elements / target.lanes(f32) / ports / workers, weight_cycles(direct_bytes));
  }
  const auto vectors = [&](int64_t channels) { return static_cast<double>(divide_up(channels, target.lanes(f32))); };
  const double points = f.filter(tile).points(), bytes = points * f32.bytes();
  const auto tiles = static_cast<double>(count_tiles(f, tile)), axes = static_cast<double>(f.sizes.size());
  // Register tiles of few rows wait for their loads.
  const double products = points * tiles * f.summed() * vectors(f.outputs) / ports * std::max(1.0, 6.0 / tiles);
  // A load, a store, and on average 3 multiply-adds along each axis.  Where one axis is filtered, which saves half of
  // the products at best, what short sums take to begin and to leave counts as well: fitted to chains of layers of 16
  // to 512 channels, on a core alone and beside busy neighbours (Zen 4).
  const double moved = axes > 1 ? 2 : 29;
  const double transforms =
      points * tiles * (vectors(f.groups * f.inputs) + vectors(f.outputs)) * (moved + 3.0 * axes / ports);
  // Data that several slices of the result are made of wait in memory.
  const double waiting = f.slices > 1 ? 2 * transformed_bytes(f, tile) / memory_rate : 0;
  // What is added to the weights is also loaded once more at the start and stays: it has to save its own reading.
  const double added = weight_cycles(bytes - direct_bytes);
  return std::max(products / workers, weight_cycles(bytes)) + transforms / workers + waiting + added;
}

// What the direct sum multiplies.  Instructions on words of small elements need channels in granules of half a vector.
Precision precision_of_direct(const Filtering& f, const PassContext& context) {
  const bool has_words = f.inputs % (context.target.lanes(f32) / 2) == 0;
  return has_words && product_rate(context.precision, context.target) >= 1 ? context.precision : Precision::f32;
}

// The direct sum, and the tiles that round well enough.
std::vector<Candidate> admissible(const Filtering& f, const NDArray& weight, const PassContext& context) {
  const Target& target = context.target;
  const Precision of_direct = precision_of_direct(f, context);
  std::vector<Candidate> candidates{{{direct}, predict(f, direct, of_direct, target)}};
  const int64_t lanes = target.lanes(f32);
  if (f.inputs < lanes || f.outputs < lanes) return candidates;
  // Vectors are of one group, which reads whole vectors; sums over only one do not pay for the transforms.
  const bool has_whole_vectors = f.inputs % lanes == 0 && f.outputs / f.groups % lanes == 0;
  if (f.groups > 1 && (!has_whole_vectors || f.inputs == lanes)) return candidates;
  for (const int64_t tile : {2, 4}) {
    // The transformed data of all slices: of the larger tile 9/4 times the map, whose size may be known in a run only.
    if (f.slices > 1 && (f.is_open ? tile == 2 : transformed_bytes(f, tile) > most_waiting_bytes)) continue;
    if (context.allows(winograd, {tile}) && winograd_error(weight, f.filter(tile)) <= largest_error)
      candidates.push_back({{tile}, predict(f, tile, of_direct, target)});
  }
  return candidates;
}

}  // namespace

Graph choose_winograd(const Graph& graph, const PassContext& context) {
  const Target& target = context.target;
  if (target.lanes(f32) < 4 || !target.has_fma) return graph;
  if (context.precision == Precision::f16) return graph;  // asked for to save memory, which transformed weights take
  std::vector<std::optional<Filtering>> found(graph.nodes.size());
  std::vector<std::vector<Candidate>> candidates(graph.nodes.size());
  for_each_in_parallel(graph.nodes.size(), 0, [&](size_t i) {
    const Node& node = graph.nodes[i];
    if ((found[i] = match(graph, node)))
      candidates[i] = admissible(*found[i], *graph.values[node.inputs[1]].constant, context);
  });
  GraphCopy copy(graph);
  return copy.rewrite([&](const Node& node) {
    const size_t i = &node - graph.nodes.data();
    if (candidates[i].empty()) return no_value;
    const int64_t tile = context.decide(graph, {i}, winograd, candidates[i], fastest_way(candidates[i])).at(0);
    if (tile == direct) return no_value;
    const NDArray& weight = *graph.values[node.inputs[1]].constant;
    const std::vector<int64_t> window(weight.shape().begin() + 2, weight.shape().end());
    std::vector<int64_t> pads = node.attributes.get_ints("pads");
    if (pads.empty()) pads.assign(2 * window.size(), 0);
    const Filtering& f = *found[i];
    const ValueId constant = copy.to().add_constant(node.name + ".winograd", winograd_weight(weight, f.filter(tile)));
    return copy.add(node, "winograd_conv", {copy[node.inputs[0]], constant},
                    attributes_of({{"tile", tile},
                                   {"window", window},
                                   {"pads", pads},
                                   {"dilation", f.dilation},
                                   {"stride", f.stride},
                                   {"groups", f.groups}}))[0];
  });
}

}  // namespace tw::relay
