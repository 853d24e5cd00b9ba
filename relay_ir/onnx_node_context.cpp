#include "relay_ir/onnx_node_context.h"

namespace tw::relay::onnx {

// What is folded at import: shapes, masks, positions.  Larger constants are folded by the compiler's pass.  Operators
// that work more than once on each element have a smaller limit.
static int64_t max_folded_elements(OpKind kind) {
  switch (kind) {
    case OpKind::view:
      return int64_t{1} << 56;
    case OpKind::elementwise:
    case OpKind::injective:
      return 1 << 16;
    default:
      return 1 << 11;
  }
}

const TensorType& NodeContext::type(ValueId id) const {
  check(id >= 0, "import: the type of an absent input");
  return graph_.values[id].type;
}

const NDArray* NodeContext::constant(ValueId id) const {
  return graph_.is_constant(id) ? &*graph_.values[id].constant : nullptr;
}

std::vector<int64_t> NodeContext::constant_ints(size_t i) const {
  const NDArray* value = constant(input(i));
  if (!value) {
    refuse("input " + std::to_string(i) + " must be known at import, but it is computed by the model" +
           " (open dimensions? fix them with shapes=)");
  }
  if (!value->dtype().is_integer() || value->rank() > 1) {
    malformed("node " + in_quotes(label_) + " (" + op_type() + "): input " + std::to_string(i) +
              " must be a list of integers, not " + to_string(type_of(*value)));
  }
  std::vector<int64_t> result;
  for (int64_t k = 0; k < value->size(); ++k) result.push_back(value->get_int(k));
  return result;
}

NDArray NodeContext::attribute_tensor(const std::string& name) const {
  const Attribute* attribute = find(name, AttributeType::tensor);
  if (!attribute) {
    malformed("node " + in_quotes(label_) + " (" + op_type() + "): attribute " + in_quotes(name) + " is missing");
  }
  return to_array(*attribute->tensor, folder_);
}

// The node, or its results if they are known and small.
std::vector<ValueId> NodeContext::emit_all(const std::string& op_name, std::vector<ValueId> inputs,
                                           NodeAttributes attributes) {
  const OpDef* op = find_op(op_name);
  if (!op) internal_error("import: no relay operator is called `" + op_name + "`");
  int64_t elements = 0;
  bool is_known = true;
  std::vector<NDArray> arrays;
  for (const ValueId id : inputs) {
    if (id != no_value && !graph_.is_constant(id)) is_known = false;
    if (!is_known) break;
    arrays.push_back(id == no_value ? NDArray() : *graph_.values[id].constant);
    if (arrays.back().is_defined()) elements += arrays.back().size();
  }
  if (elements > max_folded_elements(op->kind)) is_known = false;
  const auto results = graph_.add_node(op_name, inputs, attributes, label_);
  if (!is_known) return results;
  for (const ValueId id : results) {
    const auto shape = static_shape(graph_.values[id].type);
    if (!shape || element_count(*shape) > max_folded_elements(op->kind)) return results;
  }
  while (!arrays.empty() && !arrays.back().is_defined()) arrays.pop_back();
  const std::vector<NDArray> values = evaluate_op(*op, graph_.nodes.back().attributes, arrays);
  graph_.nodes.pop_back();
  for (size_t i = 0; i < results.size(); ++i) graph_.values[results[i]].constant = values[i];
  return results;
}

ValueId NodeContext::emit_constant(NDArray value) {
  return graph_.add_constant(label_, std::move(value));
}

}  // namespace tw::relay::onnx
