// A value is stored in 16 bits when
//
//   * a product of 16-bit operands reads it, or an operator that moves 16 bits to such a product; or
//   * it is stored at all (fusion says what leaves a group), does not stay in a core's first cache anyway, as nothing
//     does on GPUs, and none of its readers wants all bits.
//
// Nodes are decided from the graph's end: what a node may read depends on how its own result is stored.  All bits are
// wanted by operators that say so (Rounding::exact), and by those that hand on the error of what they read (sums,
// scales, extrema, means) to one of these.
// Products, normalisations and attention round as bf16 networks do everywhere.  Sums within an operator are f32.
#include "relay_ir/passes/narrow_values.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <string>

#include "relay_ir/compile/group.h"
#include "relay_ir/op.h"
#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

// With fewer rows the reading of the weights takes the time, and data is worth no conversion.
constexpr int64_t many_rows = 4;
// Products of two values that are computed are worth two conversions from here on.
constexpr int64_t many_rows_of_values = 16;

bool is_mover(const Node& node) {
  return node.outputs.size() == 1 && node.op->facts.rounding == Rounding::moves;
}

// Computes in f32 whatever it takes, and rounds its result to its type.
bool is_native(const Node& node) {
  return node.op->facts.rounding == Rounding::widens ||
         (node.op->facts.rounding == Rounding::multiplies && !node.op->facts.linear);
}

// Of those, one that multiplies its operands.
bool multiplies_values(const Node& node) {
  return is_native(node) && node.op->facts.rounding == Rounding::multiplies;
}

class Chooser {
 public:
  Chooser(const Graph& graph, DType storage, bool has_products, const Target& target,
          const std::set<std::string>& kept_nodes)
      : graph_(graph),
        storage_(storage),
        has_products_(has_products),
        target_(target),
        uses_(graph),
        is_stored_(graph.values.size(), false),
        result_{std::vector<bool>(graph.values.size(), false), std::vector<bool>(graph.values.size(), false),
                std::vector<Narrow>(graph.nodes.size(), Narrow::none), std::vector<int64_t>(graph.nodes.size(), 1),
                std::vector<bool>(graph.nodes.size(), false)} {
    for (size_t i = 0; i < graph.nodes.size(); ++i) result_.is_kept[i] = is_named(graph.nodes[i], kept_nodes);
  }

  NarrowValues run() {
    find_stored();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!result_.is_kept[i]) result_.nodes[i] = product_of(graph_.nodes[i]);
      if (result_.nodes[i] == Narrow::group_product) result_.groups_together[i] = *groups_together(graph_.nodes[i]);
    }
    if (!has_products_) return result_;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      for (const ValueId id : node.outputs) choose(id);
      if (result_.is_kept[i] || node.outputs.size() != 1 || !result_.is_narrow[node.outputs[0]]) continue;
      if (is_mover(node) || is_native(node)) result_.nodes[i] = Narrow::native;
    }
    for (const ValueId id : graph_.inputs) choose(id);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) settle(graph_.nodes[i], result_.nodes[i]);
    return result_;
  }

 private:
  bool is_float(ValueId id) const { return id != no_value && graph_.values[id].type.dtype == f32; }

  void find_stored() {
    for (const ValueId id : graph_.inputs) is_stored_[id] = true;
    for (const Group& group : fuse(graph_))
      for (const ValueId id : group.outputs) is_stored_[id] = true;
    for (const Node& node : graph_.nodes)
      if (node.op->kind == OpKind::view && is_stored_[node.inputs[0]]) is_stored_[node.outputs[0]] = true;
  }

  // Tensor cores multiply matrices of any sizes: open ones count as many elements there, elsewhere as usual.
  bool takes_open() const { return target_.tensor_core_rate > 0; }
  int64_t many_if_open() const { return takes_open() ? std::numeric_limits<int64_t>::max() / f32.bytes() : 0; }
  bool is_open(ValueId id) const { return !static_shape(graph_.values[id].type); }
  int64_t elements(ValueId id) const {
    return takes_open() && is_open(id) ? many_if_open() : element_count(typical_shape(graph_.values[id].type));
  }
  std::optional<int64_t> extent(ValueId id, int from_end) const {
    const TensorType& type = graph_.values[id].type;
    return as_int(type.shape[static_cast<size_t>(type.rank() - from_end)]);
  }

  Narrow product_of(const Node& node) const {
    const auto form = linear_of(graph_, node);
    if (!form || node.op->facts.rounding != Rounding::multiplies) return Narrow::none;
    if (node.op->facts.operands == 1) return has_products_ ? Narrow::data : Narrow::none;
    if (!node.attributes.get_string("result").empty()) return Narrow::none;
    const ValueId a = node.inputs[0], b = node.inputs[1];
    if (!is_float(a) || !is_float(b)) return Narrow::none;
    const bool is_constant = graph_.is_constant(b);
    if (!has_products_) return is_constant && are_weights_worth_it(node, *form) ? Narrow::weights : Narrow::none;
    return form->has_window ? convolution(node, is_constant) : matrix_product(node, is_constant);
  }

  // Weights that are widened save time where reading them takes more of it than the products do; f16 is asked for to
  // save memory.
  bool are_weights_worth_it(const Node& node, const Linear& form) const {
    const auto columns = as_int(graph_.values[node.outputs[0]].type.shape[static_cast<size_t>(form.result_axis)]);
    if (storage_ == f16 || !columns || *columns == 0) return true;
    const double rows = static_cast<double>(elements(node.outputs[0])) / static_cast<double>(*columns);
    const double cycles = rows / target_.fma_ports;  // for a vector of weights
    return cycles < target_.vector_bits / 8 / target_.core_stream_rate;
  }

  Narrow convolution(const Node& node, bool is_constant) const {
    const auto channels = as_int(graph_.values[node.inputs[1]].type.shape[1]);
    const auto outputs = as_int(graph_.values[node.inputs[1]].type.shape[0]);
    if (!is_constant || !channels || !outputs || *outputs == 0) return Narrow::none;
    if (node.attributes.get_int("groups") > 1) {
      if (groups_together(node)) return Narrow::group_product;
      // No dot products; the padded copy of the data is widened as it is made.
      const auto& pads = node.attributes.get_ints("pads");
      const bool is_padded = std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad != 0; });
      return is_padded || *channels == 1 ? Narrow::data : Narrow::none;
    }
    if (elements(node.outputs[0]) / *outputs < many_rows) return Narrow::weights;
    if (*channels % 2 == 0) return Narrow::product;
    return has_pairs_along_window(node) ? Narrow::window_product : Narrow::none;
  }

  // As few groups as fill vectors of results.  Units that multiply tiles take as long for few channels as for many, and
  // for zeros between the groups; dot products have no time for these.
  std::optional<int64_t> groups_together(const Node& node) const {
    const Shape& weight = graph_.values[node.inputs[1]].constant->shape();
    const bool has_tiles = target_.tiles.has(Intrinsic::tile_dot_bf16);
    const int64_t groups = node.attributes.get_int("groups"), results = weight[0] / groups, channels = weight[1];
    const int64_t lanes = has_tiles ? target_.tiles.row_bytes / f32.bytes() : target_.lanes(f32);
    const int64_t together = std::lcm(results, lanes) / results;
    if (channels < 2 || groups % together != 0 || together * channels % 4 != 0) return std::nullopt;
    const bool is_one_product = together * channels * storage_.bytes() <= 2 * target_.tiles.row_bytes;
    if (together > 1 && (!has_tiles || !is_one_product)) return std::nullopt;
    return together;
  }

  // Of few channels: more are stored in blocks.
  bool has_pairs_along_window(const Node& node) const {
    constexpr int64_t few_channels = 8;
    const Shape& weight = graph_.values[node.inputs[1]].constant->shape();
    const auto& dilations = node.attributes.get_ints("dilations");
    return weight.size() > 2 && weight[1] < few_channels && weight.back() > 1 &&
           (dilations.empty() || dilations.back() == 1);
  }

  int64_t rows_of(const Node& node, bool transpose_a) const {
    const std::vector<Expr>& shape = graph_.values[node.inputs[0]].type.shape;
    return as_int(*(shape.rbegin() + (transpose_a ? 0 : 1))).value_or(many_if_open());
  }

  Narrow matrix_product(const Node& node, bool is_constant) const {
    const bool transpose_a = node.attributes.get_int("transpose_a") != 0;
    const auto k = extent(node.inputs[0], transpose_a ? 2 : 1), columns = extent(node.outputs[0], 1);
    if (is_constant && columns && *columns > 0 && !is_open(node.outputs[0]) &&
        elements(node.outputs[0]) / *columns < many_rows) {
      return Narrow::weights;
    }
    if (k ? *k % 2 != 0 : !takes_open()) return Narrow::none;
    return is_constant || rows_of(node, transpose_a) >= many_rows_of_values ? Narrow::product : Narrow::none;
  }

  bool is_result_narrow(const Node& node) const {
    return node.outputs.size() == 1 && result_.is_narrow[node.outputs[0]];
  }

  // Reads 16 bits, whatever else is asked for.
  bool demands(const Node& node, Narrow narrow, ValueId id) const {
    if (narrow == Narrow::product || narrow == Narrow::window_product || narrow == Narrow::group_product) return true;
    if (!is_result_narrow(node)) return false;
    if (is_mover(node)) return true;
    return multiplies_values(node) && is_operand(node, id) && are_operands_computed(node);
  }

  // Has no need of more.
  bool accepts(const Node& node, Narrow narrow, ValueId id) const {
    if (demands(node, narrow, id) || narrow == Narrow::data || narrow == Narrow::weights) return true;
    if (multiplies_values(node)) return false;
    if (is_native(node)) return is_result_narrow(node) && is_operand(node, id);
    return node.op->facts.rounding == Rounding::keeps && !needs_all_bits(node, result_.is_precise);
  }

  static std::span<const ValueId> operands(const Node& node) {
    return std::span(node.inputs).first(std::min<size_t>(node.inputs.size(), node.op->facts.operands));
  }
  static bool is_operand(const Node& node, ValueId id) {
    const auto data = operands(node);
    return std::find(data.begin(), data.end(), id) != data.end();
  }
  bool are_operands_computed(const Node& node) const {
    const auto data = operands(node);
    return std::all_of(data.begin(), data.end(),
                       [&](ValueId id) { return is_float(id) && uses_.producer[id] >= 0 && !uses_.is_output[id]; });
  }

  void choose(ValueId id) {
    if (!is_float(id)) return;
    bool is_demanded = false, is_accepted = !uses_.users[id].empty();
    for (const int user : uses_.users[id]) {
      const Node& node = graph_.nodes[user];
      if (result_.is_kept[user]) {
        is_accepted = false, result_.is_precise[id] = true;
        continue;
      }
      is_demanded |= demands(node, result_.nodes[user], id);
      is_accepted &= accepts(node, result_.nodes[user], id);
      if (result_.nodes[user] == Narrow::none && needs_all_bits(node, result_.is_precise))
        result_.is_precise[id] = true;
    }
    result_.is_narrow[id] = is_demanded || (is_accepted && is_worth_it(id));
  }

  bool is_worth_it(ValueId id) const {
    const int producer = uses_.producer[id];
    if (producer < 0 || uses_.is_output[id] || result_.is_kept[producer]) return false;
    const Node& node = graph_.nodes[producer];
    if (node.outputs.size() != 1) return false;
    const bool is_stored = is_stored_[id] || (is_mover(node) && is_stored_[node.inputs[0]]);
    // A table of weights is stored as weights are.
    const ValueId largest = is_mover(node) && graph_.is_constant(node.inputs[0]) ? node.inputs[0] : id;
    const int64_t near_bytes = target_.keeps_first_cache ? target_.l1.bytes : 0;
    return is_stored && elements(largest) * f32.bytes() > near_bytes;
  }

  // What was left open until its data was chosen.
  void settle(const Node& node, Narrow& narrow) const {
    if (narrow == Narrow::data && !result_.is_narrow[node.inputs[0]]) narrow = Narrow::none;
    if (narrow != Narrow::native || is_mover(node)) return;
    for (const ValueId id : operands(node))
      if (!result_.is_narrow[id]) narrow = Narrow::none;
  }

  const Graph& graph_;
  const DType storage_;
  const bool has_products_;
  const Target& target_;
  const Uses uses_;
  std::vector<bool> is_stored_;  // by ValueId: leaves its group
  NarrowValues result_;
};

}  // namespace

bool needs_all_bits(const Node& reader, const std::vector<bool>& is_precise) {
  const Rounding rounding = reader.op->facts.rounding;
  if (rounding == Rounding::multiplies || rounding == Rounding::widens) return false;
  const bool hands_on = is_mover(reader) || rounding == Rounding::keeps;
  return !hands_on || is_precise[reader.outputs[0]];
}

NarrowValues choose_narrow_values(const Graph& graph, DType storage, bool has_products, const Target& target,
                                  const std::set<std::string>& kept_nodes) {
  return Chooser(graph, storage, has_products, target, kept_nodes).run();
}

}  // namespace tw::relay
