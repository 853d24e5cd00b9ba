// Convolutions and matrix products on 16-bit floats, and values stored in 16 bits between kernels, with sums and all
// arithmetic in f32.
//
//   y = relu(conv(x, w))      ⇒   y = relu(conv(x', w'): f32);  y' = cast(y): bf16;  z = relu(conv(y', w2'): f32)
//   z = relu(conv(y, w2))
//
// Weights become 16-bit constants.  A value that is stored in 16 bits (narrow_values.cpp decides) is converted once, by
// a conversion at the end of what makes it; loops that read it widen it again.  Operators that only move values
// (transpose, concat, …) move the 16 bits.  The graph's inputs and outputs stay f32.
//
// Products take pairs: of channels, or where there are few and an odd number of them of neighbours along the window's
// rows, which get a column of zeros where they are odd.  Groups of few channels become larger ones, with zeros between
// them, where the target multiplies tiles.
//
// Where products of tf32 are asked for, nothing is stored in another type:
//
//   y = matmul(a, b)   ⇒   y = matmul(a, b, operands="tf32")
//
// Where the target has no products of the type, only weights are stored in it: loads widen them.  Those of bf16 that
// many rows share stay f32.
#include <unordered_map>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/passes/narrow_values.h"

namespace tw::relay {
namespace {

class Narrowing {
 public:
  Narrowing(const Graph& graph, DType storage, NarrowValues chosen)
      : graph_(graph), storage_(storage), chosen_(std::move(chosen)), uses_(graph), copy_(graph) {}

  Graph run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      switch (chosen_.nodes[i]) {
        case Narrow::none:
          plain(node, chosen_.is_kept[i]);
          break;
        case Narrow::weights:
          product(node, stored(node.inputs[0]), narrowed(node.inputs[1]));
          break;
        case Narrow::product:
          product(node, narrowed(node.inputs[0]), narrowed(node.inputs[1]));
          break;
        case Narrow::window_product:
          window_product(node);
          break;
        case Narrow::group_product:
          group_product(node, chosen_.groups_together[i]);
          break;
        case Narrow::data:
          product(node, narrowed(node.inputs[0]), copy_[node.inputs[1]]);
          break;
        case Narrow::native:
          native(node);
          break;
      }
    }
    return copy_.finish();
  }

 private:
  bool is_float(ValueId id) const { return id != no_value && graph_.values[id].type.dtype == f32; }

  ValueId converted(ValueId value, DType dtype) {
    const std::string type = to_string(dtype);
    return copy_.to().add_node("cast", {value}, attributes_of({{"to", type}}),
                               copy_.to().values[value].name + "." + type)[0];
  }

  std::string narrow_name(ValueId old) const { return graph_.values[old].name + "." + to_string(storage_); }

  // In 16 bits.
  ValueId narrowed(ValueId old) {
    const auto found = narrow_.find(old);
    if (found != narrow_.end()) return found->second;
    if (!graph_.is_constant(old)) return narrow_[old] = converted(copy_[old], storage_);
    const NDArray& wide = *graph_.values[old].constant;
    NDArray array(storage_, wide.shape());
    for (int64_t i = 0; i < wide.size(); ++i) array.set_float(i, wide.get_float(i));
    return narrow_[old] = copy_.to().add_constant(narrow_name(old), std::move(array));
  }

  bool has_all_bits(ValueId old) const {
    return !is_float(old) || !chosen_.is_narrow[old] || graph_.is_constant(old) || uses_.is_output[old] ||
           uses_.producer[old] < 0;
  }
  // As it lies in memory.
  ValueId stored(ValueId old) { return has_all_bits(old) ? copy_[old] : narrowed(old); }
  // In f32.  Each reader converts for itself, so that the conversion is part of its loops.
  ValueId widened(ValueId old) {
    return old == no_value || has_all_bits(old) ? copy_[old] : converted(narrow_.at(old), f32);
  }

  void plain(const Node& node, bool is_kept) {
    const bool is_exact = is_kept || needs_all_bits(node, chosen_.is_precise);
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(is_exact ? copy_[id] : widened(id));
    finish(node, copy_.add(node, *node.op, inputs, node.attributes, node.regions));
  }

  void window_product(const Node& node) {
    const NDArray& wide = *graph_.values[node.inputs[1]].constant;
    const int64_t width = wide.shape().back(), even = width + width % 2;
    Shape shape = wide.shape();
    shape.back() = even;
    NDArray array(storage_, shape);
    for (int64_t i = 0; i < array.size(); ++i)
      array.set_float(i, i % even < width ? wide.get_float(i / even * width + i % even) : 0.0);
    NodeAttributes attributes = node.attributes;
    if (even != width) {
      std::vector<int64_t> pads = attributes.get_ints("pads");
      pads.resize(2 * (shape.size() - 2), 0);
      pads.back() += 1;
      attributes.set("pads", pads);
    }
    product(node, narrowed(node.inputs[0]), copy_.to().add_constant(narrow_name(node.inputs[1]), std::move(array)),
            attributes);
  }

  // Weights of several groups on the diagonal of one's.
  void group_product(const Node& node, int64_t together) {
    const NDArray& wide = *graph_.values[node.inputs[1]].constant;
    const int64_t groups = node.attributes.get_int("groups"), results = wide.shape()[0] / groups;
    const int64_t group_size = wide.size() / wide.shape()[0];  // channels and window of one result
    Shape shape = wide.shape();
    shape[1] *= together;
    NDArray array(storage_, shape);
    for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, 0.0);
    for (int64_t o = 0; o < shape[0]; ++o) {
      const int64_t first = (o * together + o / results % together) * group_size;
      for (int64_t i = 0; i < group_size; ++i) array.set_float(first + i, wide.get_float(o * group_size + i));
    }
    NodeAttributes attributes = node.attributes;
    attributes.set("groups", groups / together);
    product(node, narrowed(node.inputs[0]), copy_.to().add_constant(narrow_name(node.inputs[1]), std::move(array)),
            attributes);
  }

  void product(const Node& node, ValueId data, ValueId weight) { product(node, data, weight, node.attributes); }

  void product(const Node& node, ValueId data, ValueId weight, NodeAttributes attributes) {
    if (attributes.has("result")) attributes.set("result", std::string("f32"));
    finish(node, copy_.add(node, *node.op, {data, weight}, attributes));
  }

  // Scales and masks stay as they are.
  void native(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      const bool is_moved = is_float(id) && (node.op->facts.rounding == Rounding::moves || chosen_.is_narrow[id]);
      inputs.push_back(is_moved ? narrowed(id) : copy_[id]);
    }
    const ValueId old = node.outputs[0];
    narrow_[old] = copy_.add(node, *node.op, inputs, node.attributes)[0];
    if (uses_.is_output[old] || chosen_.is_precise[old]) copy_.set(old, converted(narrow_[old], f32));
  }

  void finish(const Node& node, const std::vector<ValueId>& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      const ValueId old = node.outputs[i];
      copy_.set(old, results[i]);
      if (chosen_.is_narrow[old] && is_float(old)) narrowed(old);
    }
  }

  const Graph& graph_;
  const DType storage_;
  const NarrowValues chosen_;
  const Uses uses_;
  GraphCopy copy_;
  std::unordered_map<ValueId, ValueId> narrow_;  // old → its 16-bit form
};

// Of one group, of f32, and with rows and columns that are worth tiles of a machine's products: what has less reads its
// weights once, which takes the time.
bool is_worth_tf32(const Graph& graph, const Node& node) {
  constexpr int64_t fewest = 4;
  const auto form = linear_of(graph, node);
  if (!form || form->groups > 1 || !node.attributes.has("operands")) return false;
  for (const ValueId id : node.inputs)
    if (graph.values[id].type.dtype != f32) return false;
  const TensorType& result = graph.values[node.outputs[0]].type;
  // Sizes that are open count as many.
  const auto extent = [&](int axis) { return as_int(result.shape[static_cast<size_t>(axis)]).value_or(fewest); };
  const std::vector<AxisUse> of_weights = axes_of(graph, node)[1];
  int64_t rows = 1;
  for (int axis = 0; axis < result.rank(); ++axis)
    if (of_weights[static_cast<size_t>(axis)].kind != AxisUse::Kind::same) rows *= extent(axis);
  return rows >= fewest && extent(form->result_axis) >= fewest;
}

Graph with_products_of_tf32(const Graph& graph, const PassContext& context) {
  if (product_rate(Precision::tf32, context.target) == 0) {
    throw Error(ErrorCode::target, context.target.name +
                                       " has no products of tf32, which tensor cores make from cuda:sm_80 on" +
                                       "\n  help: compile with another precision, or for such a GPU");
  }
  Graph result = graph;
  for (Node& node : result.nodes)
    if (!is_named(node, context.kept_nodes) && is_worth_tf32(graph, node))
      node.attributes.set("operands", std::string("tf32"));
  return result;
}

}  // namespace

namespace {

// By a CPU's unit for tiles, or else by its dot products, of elements of this type: so many lie in a word of f32.
double rate_of_words(const std::vector<Intrinsic>& of_tiles, const std::vector<Intrinsic>& dots, DType element,
                     const Target& target) {
  const TileUnit& unit = target.tiles;
  if (std::ranges::any_of(of_tiles, [&](Intrinsic product) { return unit.has(product); })) {
    const int products_a_cycle = unit.row_bytes / f32.bytes() * (unit.row_bytes / element.bytes());
    return static_cast<double>(products_a_cycle) / (target.lanes(f32) * target.fma_ports);
  }
  for (const Intrinsic intrinsic : dots)
    if (const MachineInstruction* dot = target.find_instruction(intrinsic))
      return f32.bytes() / element.bytes() / dot->cycles;  // in the place of one multiply-add
  return 0;
}

}  // namespace

double product_rate(Precision precision, const Target& target) {
  if (precision == Precision::f32) return 1;
  constexpr double of_tf32 = 0.5;  // of the rate of 16 bits, as all data sheets have it
  if (target.tensor_core_rate > 0) return (precision == Precision::tf32 ? of_tf32 : 1) * target.tensor_core_rate;
  if (precision != Precision::bf16) return 0;
  return rate_of_words({Intrinsic::tile_dot_bf16}, {Intrinsic::dot_bf16}, bf16, target);
}

double code_product_rate(DType codes, const Target& target) {
  constexpr double of_integers = 2;  // twice as many are in the same registers
  if (is_float8(codes)) return target.float8_rate;
  if (!codes.is_integer() || codes.bits != 8) return 0;
  if (target.tensor_core_rate > 0) return of_integers * target.tensor_core_rate;
  return rate_of_words({Intrinsic::tile_dot_u8s8, Intrinsic::tile_dot_s8s8}, {Intrinsic::dot_u8s8, Intrinsic::dot_s8s8},
                       codes, target);
}

Graph lower_precision(const Graph& graph, const PassContext& context) {
  if (context.precision == Precision::f32) return graph;
  if (context.precision == Precision::tf32) return with_products_of_tf32(graph, context);
  const DType storage = storage_of(context.precision);
  const bool has_products = product_rate(context.precision, context.target) >= 1;
  return Narrowing(graph, storage,
                   choose_narrow_values(graph, storage, has_products, context.target, context.kept_nodes))
      .run();
}

}  // namespace tw::relay
