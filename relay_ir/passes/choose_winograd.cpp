// 3×3 convolutions with stride 1 or 2 and known weights by Winograd's minimal filtering, where its rounding error is
// small and it is decided so: by analysis where it is predicted to be faster.
//
//   conv(x, w, pads, stride, dilation)   ⇒   winograd_conv(x, G w Gᵀ, pads, stride, dilation, tile)
//
// Of three dimensions those that take each slice, and in which the window has 3×3 elements in a slice.
//
// Where the target multiplies operands of fewer bits faster than f32, and these are asked for, the direct sum is of
// them: the filtering, which stays in f32, has more to beat.
//
// The transformed weights are 4 times (m = 2: 16/9 times) the size of the original ones.  In deep layers with few tiles
// they are used faster than memory brings them: there the smaller tile or the direct sum is faster, and the process
// stays small.
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

struct Shape3x3 {
  int64_t images, inputs, outputs, rows, columns;  // of the output map, slices as images; inputs of a group
  int64_t slices;                                  // of the window
  int64_t stride, dilation, groups;
  bool is_open;  // sizes are such as maps usually have

  int64_t summed() const { return slices * inputs; }
};

std::optional<Shape3x3> match(const Graph& graph, const Node& node) {
  const auto form = linear_of(graph, node);
  if (!form || form->filter_axis != 0 || !graph.is_constant(node.inputs[1])) return std::nullopt;
  if (!node.attributes.get_string("result").empty()) return std::nullopt;  // of small elements
  const NDArray& weight = *graph.values[node.inputs[1]].constant;
  const int rank = weight.rank();
  if (weight.dtype() != f32 || (rank != 4 && rank != 5)) return std::nullopt;
  const auto uses = axes_of(graph, node)[0];
  const AxisUse &row = uses[rank - 2], &first = uses[2];
  const auto is_of_three = [&](const AxisUse& use) {
    return use.kind == AxisUse::Kind::window && use.size == 3 && use.stride == row.stride &&
           use.dilation == row.dilation && (use.stride == 1 || (use.stride == 2 && use.dilation == 1));
  };
  if (!std::all_of(uses.end() - 2, uses.end(), is_of_three)) return std::nullopt;
  const bool has_slices = rank == 5;
  const bool is_every_slice = first.kind == AxisUse::Kind::window && first.stride == 1 && first.dilation == 1;
  if (has_slices && !first.is_same(2) && !is_every_slice) return std::nullopt;
  const TensorType& type = graph.values[node.outputs[0]].type;
  const Shape out = typical_shape(type);
  return Shape3x3{.images = has_slices ? out[0] * out[2] : out[0],
                  .inputs = weight.shape()[1],
                  .outputs = weight.shape()[0],
                  .rows = out[rank - 2],
                  .columns = out[rank - 1],
                  .slices = has_slices ? weight.shape()[2] : 1,
                  .stride = row.stride,
                  .dilation = row.dilation,
                  .groups = form->groups,
                  .is_open = !static_shape(type)};
}

int64_t count_tiles(const Shape3x3& s, int64_t tile) {
  const auto tiles_along = [&](int64_t size) { return s.dilation * divide_up(size, tile * s.dilation); };
  return s.images * tiles_along(s.rows) * tiles_along(s.columns);
}

double transformed_bytes(const Shape3x3& s, int64_t tile) {
  const double size = winograd_transform(tile, s.stride).size();
  return size * size * static_cast<double>(count_tiles(s, tile) * s.groups * s.inputs * f32.bytes());
}

// Cycles, by the large terms, of all workers together: work divides among them.
double predict(const Shape3x3& s, int64_t tile, Precision of_direct, const Target& target) {
  const double workers = std::max(1, target.threads), ports = target.fma_ports;
  const double memory_rate = std::min(target.memory_rate, workers * target.core_memory_rate);
  // Whatever a cache could hold of one layer, the other layers' weights come in between: each run reads them from
  // memory.  `bytes`: for an input channel and an output channel.
  const auto weight_cycles = [&](double bytes) { return bytes * s.summed() * s.outputs / memory_rate; };
  const double direct_bytes = 9.0 * storage_of(of_direct).bytes();
  if (tile == direct) {
    // The direct sum leaves out what the outer elements of a wide window find in the padding.
    const auto elements = [&](int64_t size) {
      return 1.0 + 2.0 * static_cast<double>(std::max<int64_t>(0, size - s.dilation)) / static_cast<double>(size);
    };
    const double products = (s.dilation == 1 ? 9.0 : elements(s.rows) * elements(s.columns)) * s.images * s.rows *
                            s.columns * s.summed() * s.outputs / product_rate(of_direct, target);
    return std::max(products / target.lanes(f32) / ports / workers, weight_cycles(direct_bytes));
  }
  const auto vectors = [&](int64_t channels) { return static_cast<double>(divide_up(channels, target.lanes(f32))); };
  const double size = winograd_transform(tile, s.stride).size(), points = size * size, bytes = points * f32.bytes();
  const auto tiles = static_cast<double>(count_tiles(s, tile));
  // Register tiles of few rows wait for their loads.
  const double products = points * tiles * s.summed() * vectors(s.outputs) / ports * std::max(1.0, 6.0 / tiles);
  // A load, a store, and on average 3 multiply-adds each for rows and columns.
  const double transforms = points * tiles * (vectors(s.groups * s.inputs) + vectors(s.outputs)) * (2.0 + 6.0 / ports);
  // Data that several slices of the result are made of wait in memory.
  const double waiting = s.slices > 1 ? 2 * transformed_bytes(s, tile) / memory_rate : 0;
  // What is added to the weights is also loaded once more at the start and stays: it has to save its own reading.
  const double added = weight_cycles(bytes - direct_bytes);
  return std::max(products / workers, weight_cycles(bytes)) + transforms / workers + waiting + added;
}

// The direct sum, and the tiles that round well enough.
std::vector<Candidate> admissible(const Shape3x3& shape, const NDArray& weight, Precision of_direct,
                                  const PassContext& context) {
  const Target& target = context.target;
  std::vector<Candidate> candidates{{{direct}, predict(shape, direct, of_direct, target)}};
  const int64_t lanes = target.lanes(f32);
  if (shape.inputs < lanes || shape.outputs < lanes) return candidates;
  // Vectors are of one group, which reads whole vectors; sums over only one do not pay for the transforms.
  const bool has_whole_vectors = shape.inputs % lanes == 0 && shape.outputs / shape.groups % lanes == 0;
  if (shape.groups > 1 && (!has_whole_vectors || shape.inputs == lanes)) return candidates;
  for (const int64_t tile : {2, 4}) {
    // The transformed data of all slices: of the larger tile 9/4 times the map, whose size may be known in a run only.
    if (shape.slices > 1 && (shape.is_open ? tile == 2 : transformed_bytes(shape, tile) > most_waiting_bytes)) continue;
    if (context.allows(winograd, {tile}) &&
        winograd_error(weight, winograd_transform(tile, shape.stride)) <= largest_error)
      candidates.push_back({{tile}, predict(shape, tile, of_direct, target)});
  }
  return candidates;
}

}  // namespace

Graph choose_winograd(const Graph& graph, const PassContext& context) {
  const Target& target = context.target;
  if (target.lanes(f32) < 4 || !target.has_fma) return graph;
  if (context.precision == Precision::f16) return graph;  // asked for to save memory, which transformed weights take
  const Precision of_direct = product_rate(context.precision, target) >= 1 ? context.precision : Precision::f32;
  std::vector<std::vector<Candidate>> candidates(graph.nodes.size());
  for_each_in_parallel(graph.nodes.size(), 0, [&](size_t i) {
    const Node& node = graph.nodes[i];
    if (const auto shape = match(graph, node))
      candidates[i] = admissible(*shape, *graph.values[node.inputs[1]].constant, of_direct, context);
  });
  GraphCopy copy(graph);
  return copy.rewrite([&](const Node& node) {
    const size_t i = &node - graph.nodes.data();
    if (candidates[i].empty()) return no_value;
    const int64_t tile = context.decide(graph, {i}, winograd, candidates[i], fastest_way(candidates[i])).at(0);
    if (tile == direct) return no_value;
    std::vector<int64_t> pads = node.attributes.get_ints("pads");
    const NDArray& weight = *graph.values[node.inputs[1]].constant;
    if (pads.empty()) pads.assign(2 * (weight.rank() - 2), 0);
    const AxisUse use = axes_of(graph, node)[0].back();
    const ValueId constant =
        copy.to().add_constant(node.name + ".winograd", winograd_weight(weight, winograd_transform(tile, use.stride)));
    return copy.add(node, "winograd_conv", {copy[node.inputs[0]], constant},
                    attributes_of({{"tile", tile},
                                   {"pads", pads},
                                   {"dilation", use.dilation},
                                   {"stride", use.stride},
                                   {"slices", weight.rank() == 5 ? weight.shape()[2] : 1},
                                   {"groups", linear_of(graph, node)->groups}}))[0];
  });
}

}  // namespace tw::relay
