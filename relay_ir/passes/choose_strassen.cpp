// Large products of rows and known weights by Strassen's algorithm, where it is decided so: by analysis where it is
// predicted to be faster.  Each level multiplies an eighth less.
//
//   matmul(x, w), conv(x, w) of windows of 1
//     ⇒   strassen_product(x, sums of w's blocks, scale of w's columns) {levels}
//
// The sums are 7/4 times the size of the weights a level.  Where there are few rows they are used faster than memory
// brings them: there fewer levels or the plain product are faster, and the process stays small.
//
// Rows that are summed are neighbours in one image or one sequence: no row of one image meets one of another.  Rows and
// columns much smaller than what they are summed with are scaled for it: a sum is rounded as its largest term is.
#include <algorithm>
#include <cmath>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/strassen.h"
#include "runtime/rounding.h"
#include "tensor_ir/parallel.h"
#include "tensor_ir/structural.h"

namespace tw::relay {
namespace {

constexpr char strassen[] = "strassen";  // the decision: levels
constexpr int64_t no_level = 0;
constexpr double least_share = 0.97;                     // of the plain product's time: what takes more stays as it is
constexpr double worst_share = 1.1;                      // …that is worth trying
constexpr int64_t most_added_bytes = int64_t{16} << 20;  // to one weight

struct RowsTimesWeight {
  int axis;              // of the data, along which it is multiplied
  bool is_transposed;    // the weight is [outputs, inputs]
  int64_t images, rows;  // of each image or sequence
  int64_t inputs, outputs;
};

std::optional<RowsTimesWeight> match_product(const Graph& graph, const Node& node) {
  const auto form = linear_of(graph, node);
  if (!form || form->groups != 1 || form->filter_axis < 0 || !graph.is_constant(node.inputs[1])) return std::nullopt;
  if (node.op->facts.rounding != Rounding::multiplies || node.op->facts.operands != 2) return std::nullopt;
  if (!node.attributes.get_string("result").empty()) return std::nullopt;  // of small elements
  const NDArray& weight = *graph.values[node.inputs[1]].constant;
  const TensorType &x = graph.values[node.inputs[0]].type, &y = graph.values[node.outputs[0]].type;
  if (weight.dtype() != f32 || x.dtype != f32 || x.rank() < 3 || y.rank() != x.rank()) return std::nullopt;
  const Shape shape = typical_shape(x);
  const int axis = form->has_window ? 1 : x.rank() - 1;
  if (weight.rank() != (form->has_window ? x.rank() : 2)) return std::nullopt;
  if (form->data_axis != axis || form->result_axis != axis || !as_int(x.shape[axis])) return std::nullopt;
  // Maps are of some size in all runs, but of a text there may be one row.
  const auto is_open = [](const Expr& e) { return !as_int(e); };
  if (axis != 1 && std::any_of(x.shape.begin() + 1, x.shape.end(), is_open)) return std::nullopt;
  const auto uses = axes_of(graph, node)[0];
  for (int d = 0; d < x.rank(); ++d) {
    if (d == axis) continue;
    if (!structural_equal(y.shape[d], x.shape[d]) || (!uses[d].is_same(d) && !is_const_int(x.shape[d], 1)))
      return std::nullopt;
  }
  const auto outputs = as_int(y.shape[axis]);
  const int64_t images = shape.front(), inputs = shape[axis], elements = element_count(shape);
  if (elements == 0 || weight.size() != inputs * outputs.value()) return std::nullopt;
  return RowsTimesWeight{axis, form->filter_axis == 0, images, elements / images / inputs, inputs, *outputs};
}

// Extents of a block, so that blocks of widths that these do not divide end with zeros: whole vectors, and as many
// columns as register tiles divide, which have two vectors where registers are few.
struct Block {
  int64_t inputs, outputs;
};

Block block_of(const RowsTimesWeight& product, int64_t levels, const Target& target) {
  if (levels == 0) return {product.inputs, product.outputs};
  const int64_t parts = int64_t{1} << levels, lanes = target.lanes(f32), side = target.vector_registers < 32 ? 2 : 1;
  return {round_up(product.inputs, parts * lanes) / parts, round_up(product.outputs, parts * side * lanes) / parts};
}

// [inputs, outputs], filled up with zeros.
NDArray matrix_of(const NDArray& weight, const RowsTimesWeight& product, int64_t inputs, int64_t outputs) {
  if (!product.is_transposed && inputs == product.inputs && outputs == product.outputs) return weight;
  NDArray result(f32, {inputs, outputs});
  const auto* from = static_cast<const float*>(weight.data());
  auto* to = static_cast<float*>(result.data());
  const int64_t along_inputs = product.is_transposed ? 1 : product.outputs,
                along_outputs = product.is_transposed ? product.inputs : 1;
  for_each_in_parallel(static_cast<size_t>(inputs), 0, [&](size_t number) {
    const auto i = static_cast<int64_t>(number);
    for (int64_t o = 0; o < outputs; ++o)
      to[i * outputs + o] =
          i < product.inputs && o < product.outputs ? from[i * along_inputs + o * along_outputs] : 0.0f;
  });
  return result;
}

// Cycles, by the large terms, of all workers together.  Fitted to chains of layers of 192 to 768 channels and 16 to 400
// rows, whose weights come from memory, on a core alone and beside busy neighbours (Zen 4).
double predict_levels(const RowsTimesWeight& p, int64_t levels, const Target& target) {
  constexpr double per_point = 3;  // a load, a store and one or two sums of a vector
  // Of the products' time: loops are shorter, and weights are read from farther.  Small tiles read them more often,
  // which plain products of images do as well, whose channels lie in blocks (Zen 3).
  const bool is_image = p.axis == 1;
  const double per_level = target.vector_registers < 32 && !is_image ? 0.1 : 0.03;
  const double workers = std::max(1, target.threads), lanes = target.lanes(f32);
  const int64_t parts = int64_t{1} << levels, points = strassen_points(levels);
  const int64_t tiles = p.images * divide_up(p.rows, parts);
  const auto [inputs, outputs] = block_of(p, levels, target);
  const double vectors = static_cast<double>(points * inputs * outputs) / lanes;
  const double products =
      static_cast<double>(tiles) * vectors / target.fma_ports / workers * (1 + per_level * static_cast<double>(levels));
  const double weights =
      vectors * lanes * f32.bytes() / std::min(target.memory_rate, workers * target.core_memory_rate);
  const double transforms =
      levels == 0 ? 0 : static_cast<double>(points * tiles * (inputs + outputs)) / lanes * per_point / workers;
  // Weights are asked for ahead, but what other layers leave of the caches and of memory's time differs from run to
  // run.
  return products + transforms + 0.75 * weights;
}

bool is_finite(const NDArray& weight) {
  const auto* elements = static_cast<const float*>(weight.data());
  return std::all_of(elements, elements + weight.size(), [](float w) { return std::isfinite(w); });
}

// The plain product, and the levels that are worth trying.
std::vector<Candidate> admissible_levels(const RowsTimesWeight& product, const NDArray& weight,
                                         const PassContext& context) {
  const Target& target = context.target;
  std::vector<Candidate> candidates{{{no_level}, predict_levels(product, no_level, target)}};
  for (int64_t levels = 1; levels <= strassen_most_levels; ++levels) {
    const Block block = block_of(product, levels, target);
    const int64_t elements = strassen_points(levels) * block.inputs * block.outputs;
    if ((elements - product.inputs * product.outputs) * f32.bytes() > most_added_bytes) break;
    const double cost = predict_levels(product, levels, target);
    if (context.allows(strassen, {levels}) && cost <= worst_share * candidates[0].cost)
      candidates.push_back({{levels}, cost});
  }
  if (candidates.size() > 1 && !is_finite(weight)) candidates.resize(1);
  return candidates;
}

}  // namespace

Graph choose_strassen(const Graph& graph, const PassContext& context) {
  const Target& target = context.target;
  if (target.lanes(f32) < 4 || !target.has_fma) return graph;
  if (context.precision != Precision::f32) return graph;  // what multiplies fewer bits is faster
  GraphCopy copy(graph);
  return copy.rewrite([&](const Node& node) {
    const auto product = match_product(graph, node);
    if (!product) return no_value;
    const NDArray& weight = *graph.values[node.inputs[1]].constant;
    const std::vector<Candidate> candidates = admissible_levels(*product, weight, context);
    const size_t number = &node - graph.nodes.data();
    const int64_t levels =
        context.decide(graph, {number}, strassen, candidates, fastest_way(candidates, least_share)).at(0);
    if (levels == no_level) return no_value;
    const int64_t parts = int64_t{1} << levels;
    const Block block = block_of(*product, levels, target);
    const NDArray matrix = matrix_of(weight, *product, parts * block.inputs, parts * block.outputs);
    const NDArray scales = strassen_scale(matrix, levels);
    NDArray scale(f32, {product->outputs});
    std::copy_n(static_cast<const float*>(scales.data()), product->outputs, static_cast<float*>(scale.data()));
    const ValueId sums = copy.to().add_constant(node.name + ".strassen", strassen_weight(matrix, scales, levels)),
                  of_columns = copy.to().add_constant(node.name + ".scale", scale);
    return copy.add(node, "strassen_product", {copy[node.inputs[0]], sums, of_columns},
                    attributes_of({{"levels", levels}, {"axis", product->axis}}))[0];
  });
}

}  // namespace tw::relay
