// Convolutions and matrix products on 16-bit floats, with sums and everything between them in f32.
//
//   y = relu(conv(x, w))      ⇒   y = relu(conv(x', w'): f32);  y' = cast(y): bf16;  z = relu(conv(y', w2'): f32)
//   z = relu(conv(y, w2))
//
// Weights become 16-bit constants.  A value that such a product reads is stored in 16 bits once, by a conversion at the
// end of what makes it; what else reads it widens it again.  Operators that only move values (transpose, concat, …)
// move the 16 bits.  Everything else stays f32: softmax, statistics of normalisations, reductions, sums of residuals;
// and so do the graph's inputs and outputs.
//
// Where the target has no dot product of the type, only weights are stored in it: loads widen them.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"

namespace tw::relay {
namespace {

class Precision {
 public:
  Precision(const Graph& graph, DType storage, bool has_dot)
      : graph_(graph),
        storage_(storage),
        has_dot_(has_dot),
        uses_(graph),
        is_narrow_(graph.values.size(), false),
        copy_(graph) {}

  Graph run() {
    for (size_t i = graph_.nodes.size(); has_dot_ && i-- > 0;) mark_inputs(graph_.nodes[i]);
    for (const Node& node : graph_.nodes) {
      if (is_product(node)) {
        product(node);
      } else if (moves_values(node) && is_narrow_[node.outputs[0]]) {
        std::vector<ValueId> inputs;
        for (const ValueId id : node.inputs) inputs.push_back(is_float(id) ? narrowed(id) : copy_[id]);
        narrow_[node.outputs[0]] = copy_.add(node, node.op->name, inputs, node.attributes)[0];
        if (uses_.is_output[node.outputs[0]]) copy_.set(node.outputs[0], converted(narrow_[node.outputs[0]], f32));
      } else {
        std::vector<ValueId> inputs;
        for (const ValueId id : node.inputs) inputs.push_back(widened(id));
        finish(node, copy_.add(node, node.op->name, inputs, node.attributes));
      }
    }
    return copy_.finish();
  }

 private:
  bool is_float(ValueId id) const { return id != no_value && graph_.values[id].type.dtype == f32; }

  std::optional<int64_t> extent(ValueId id, int from_end) const {
    const TensorType& type = graph_.values[id].type;
    return as_int(type.shape[static_cast<size_t>(type.rank() - from_end)]);
  }

  // Worth it and possible: sums of pairs along k, and operands that are read more often than they are converted.
  bool is_product(const Node& node) const {
    const std::string& op = node.op->name;
    if ((op != "conv" && op != "matmul") || !node.attributes.get_string("result").empty()) return false;
    const ValueId a = node.inputs[0], b = node.inputs[1];
    if (!is_float(a) || !is_float(b)) return false;
    const bool is_constant = graph_.is_constant(b);
    if (!has_dot_) return is_constant;
    if (op == "conv") {
      const auto channels = as_int(graph_.values[b].type.shape[1]);
      const bool is_depthwise = channels == 1 && node.attributes.get_int("groups") > 1;
      return is_constant && channels && (*channels % 2 == 0 || is_depthwise);
    }
    const bool transpose_a = node.attributes.get_int("transpose_a") != 0;
    const auto k = extent(a, transpose_a ? 2 : 1), rows = extent(a, transpose_a ? 1 : 2);
    if (!k || *k % 2 != 0) return false;
    return is_constant || (rows && *rows >= 16);
  }

  bool moves_values(const Node& node) const {
    static const std::set<std::string> names = {"transpose", "slice", "concat", "broadcast_to", "max_pool"};
    if (node.outputs.size() != 1 || !is_float(node.outputs[0])) return false;
    return node.op->kind == OpKind::view || names.count(node.op->name) != 0;
  }

  void mark_inputs(const Node& node) {
    const bool is_narrow_mover = moves_values(node) && is_narrow_[node.outputs[0]];
    if (!is_narrow_mover && !is_product(node)) return;
    for (const ValueId id : node.inputs)
      if (is_float(id)) is_narrow_[id] = true;
  }

  ValueId converted(ValueId value, DType dtype) {
    NodeAttributes attributes;
    attributes.set("to", to_string(dtype));
    return copy_.to().add_node("cast", {value}, attributes, copy_.to().values[value].name + "." + to_string(dtype))[0];
  }

  // In 16 bits.
  ValueId narrowed(ValueId old) {
    const auto found = narrow_.find(old);
    if (found != narrow_.end()) return found->second;
    if (!graph_.is_constant(old)) return narrow_[old] = converted(copy_[old], storage_);
    const NDArray& wide = *graph_.values[old].constant;
    NDArray array(storage_, wide.shape());
    for (int64_t i = 0; i < wide.size(); ++i) array.set_float(i, wide.get_float(i));
    return narrow_[old] =
               copy_.to().add_constant(graph_.values[old].name + "." + to_string(storage_), std::move(array));
  }

  // In f32.  Each reader converts for itself, so that the conversion is part of its loops.
  ValueId widened(ValueId old) {
    if (old == no_value || !is_float(old) || !is_narrow_[old] || graph_.is_constant(old)) return copy_[old];
    if (uses_.is_output[old] || uses_.producer[old] < 0) return copy_[old];
    return converted(narrow_.at(old), f32);
  }

  void product(const Node& node) {
    NodeAttributes attributes = node.attributes;
    attributes.set("result", std::string("f32"));
    const ValueId data = has_dot_ ? narrowed(node.inputs[0]) : copy_[node.inputs[0]];
    finish(node, copy_.add(node, node.op->name, {data, narrowed(node.inputs[1])}, attributes));
  }

  void finish(const Node& node, const std::vector<ValueId>& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      const ValueId old = node.outputs[i];
      copy_.set(old, results[i]);
      if (is_narrow_[old] && is_float(old)) narrowed(old);
    }
  }

  const Graph& graph_;
  const DType storage_;
  const bool has_dot_;
  const Uses uses_;
  std::vector<bool> is_narrow_;  // by ValueId: stored in 16 bits
  GraphCopy copy_;
  std::unordered_map<ValueId, ValueId> narrow_;  // old → its 16-bit form
};

}  // namespace

Graph lower_precision(const Graph& graph, DType storage, const Target& target) {
  if (storage == f32) return graph;
  check(storage == bf16 || storage == f16, "lower_precision: a 16-bit float");
  return Precision(graph, storage, storage == bf16 && target.find_instruction(Intrinsic::dot_bf16)).run();
}

}  // namespace tw::relay
