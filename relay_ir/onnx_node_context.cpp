#include "relay_ir/onnx_node_context.h"

#include <algorithm>

#include "tensor_ir/text/printer.h"

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
    const auto elements = known_elements(input(i));
    if (!elements) refuse("input " + std::to_string(i) + " must be known at import, but it is computed by the model");
    const auto open = std::find_if(elements->begin(), elements->end(), [](const Expr& e) { return !as_int(e); });
    refuse("input " + std::to_string(i) +
           " depends on open dimensions, which this use of the operator cannot do; fix `" + to_text(*open) +
           "` with shapes=");
  }
  if (!value->dtype().is_integer() || value->rank() > 1) {
    malformed("node " + in_quotes(label_) + " (" + op_type() + "): input " + std::to_string(i) +
              " must be a list of integers, not " + to_string(type_of(*value)));
  }
  std::vector<int64_t> result;
  for (int64_t k = 0; k < value->size(); ++k) result.push_back(value->get_int(k));
  return result;
}

std::optional<std::vector<Expr>> NodeContext::known_elements(ValueId id) const {
  constexpr int64_t most_elements = 64;
  if (id == no_value) return std::nullopt;
  if (const NDArray* value = constant(id)) {
    const bool is_exact = value->dtype().is_integer() || value->dtype().is_bool();
    if (!is_exact || value->size() > most_elements) return std::nullopt;
    std::vector<Expr> elements;
    for (int64_t k = 0; k < value->size(); ++k) elements.push_back(int_imm(value->dtype(), value->get_int(k)));
    return elements;
  }
  if (graph_.symbols.empty() || !(type(id).dtype == i64)) return std::nullopt;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    if (node->outputs[0] != id) continue;
    if (node->op->name != "sizes") return std::nullopt;
    return node->attributes.get_dims("values");
  }
  return std::nullopt;
}

std::vector<Expr> NodeContext::known_dims(size_t i) const {
  if (!constant(input(i)) && type(input(i)).rank() <= 1) {
    if (const auto elements = known_elements(input(i))) return *elements;
  }
  const std::vector<int64_t> ints = constant_ints(i);
  return {ints.begin(), ints.end()};
}

NDArray NodeContext::attribute_tensor(const std::string& name) const {
  const Attribute* attribute = find(name, AttributeType::tensor);
  if (!attribute) {
    malformed("node " + in_quotes(label_) + " (" + op_type() + "): attribute " + in_quotes(name) + " is missing");
  }
  return to_array(*attribute->tensor, folder_);
}

// What becomes of numbers that depend on open dimensions: a constant, or numbers in terms of them.  no_value: the
// operator has to compute it.
ValueId NodeContext::fold_sizes(const OpDef& op, const std::vector<ValueId>& inputs, const NodeAttributes& attributes) {
  if (graph_.symbols.empty()) return no_value;
  std::vector<TensorType> types;
  std::vector<std::vector<Expr>> elements;
  for (const ValueId id : inputs) {
    auto known = known_elements(id);
    if (!known) return no_value;
    elements.push_back(std::move(*known));
    types.push_back(type(id));
  }
  const auto folded = fold_dims(op, attributes, types, elements);
  if (!folded || folded->elements.empty()) return no_value;
  const DType dtype = folded->type.dtype;
  const Shape shape = *static_shape(folded->type);
  if (!std::all_of(folded->elements.begin(), folded->elements.end(), [](const Expr& e) { return as_int(e); })) {
    if (!(dtype == i64)) return no_value;
    NodeAttributes sizes;
    sizes.set("values", folded->elements);
    sizes.set("shape", shape);
    return emit_all("sizes", {}, sizes)[0];
  }
  NDArray array(dtype, shape);
  for (size_t k = 0; k < folded->elements.size(); ++k)
    array.set_int(static_cast<int64_t>(k), *as_int(folded->elements[k]));
  return emit_constant(array);
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
  if (op->name == "sizes") {
    const std::vector<Expr>& values = attributes.get_dims("values");
    is_known = std::all_of(values.begin(), values.end(), [](const Expr& e) { return as_int(e).has_value(); });
  } else if (!is_known) {
    if (const ValueId folded = fold_sizes(*op, inputs, attributes); folded != no_value) return {folded};
  }
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
