// How an operator's rule sees one ONNX node, and how it appends relay nodes to the graph.
#pragma once

#include <unordered_map>

#include "relay_ir/onnx_importer.h"
#include "relay_ir/op.h"

namespace tw::relay::onnx {

[[noreturn]] inline void malformed(const std::string& why) {
  throw Error(ErrorCode::malformed_model, why);
}
inline std::string in_quotes(std::string_view name) {
  return "`" + std::string(name) + "`";
}

struct RefusedNode {  // thrown by refuse()
  std::string why;
};

// Attributes that the call of a function gives to its body.
using FunctionArguments = std::unordered_map<std::string_view, const Attribute*>;

class NodeContext : public OnnxNodeContext {
 public:
  NodeContext(relay::Graph& graph, const std::filesystem::path& folder, const FunctionArguments& arguments,
              const Node& node, std::string label, int opset, std::vector<ValueId> inputs)
      : graph_(graph),
        folder_(folder),
        arguments_(arguments),
        node_(node),
        label_(std::move(label)),
        opset_(opset),
        inputs_(std::move(inputs)) {}

  std::string op_type() const override { return std::string(node_.op_type); }
  int opset() const override { return opset_; }
  size_t input_count() const override { return inputs_.size(); }
  size_t output_count() const override { return node_.outputs.size(); }
  bool has_input(size_t i) const override { return i < inputs_.size() && inputs_[i] != no_value; }
  bool wants_output(size_t i) const override { return i < node_.outputs.size() && !node_.outputs[i].empty(); }
  ValueId input(size_t i) const override {
    if (!has_input(i)) {
      malformed("node " + in_quotes(label_) + " (" + op_type() + "): input " + std::to_string(i) + " is missing");
    }
    return inputs_[i];
  }
  const TensorType& type(ValueId id) const override;
  const NDArray* constant(ValueId id) const override;
  std::vector<int64_t> constant_ints(size_t i) const override;
  std::vector<Expr> known_dims(size_t i) const override;

  bool has_attribute(const std::string& name) const override { return find(name) != nullptr; }
  int64_t attribute_int(const std::string& name, int64_t otherwise) const override {
    const Attribute* attribute = find(name, AttributeType::int_);
    return attribute ? attribute->int_value : otherwise;
  }
  double attribute_float(const std::string& name, double otherwise) const override {
    const Attribute* attribute = find(name, AttributeType::float_);
    return attribute ? attribute->float_value : otherwise;
  }
  std::string attribute_string(const std::string& name, const std::string& otherwise) const override {
    const Attribute* attribute = find(name, AttributeType::string);
    return attribute ? std::string(attribute->string_value) : otherwise;
  }
  std::vector<int64_t> attribute_ints(const std::string& name, std::vector<int64_t> otherwise) const override {
    const Attribute* attribute = find(name, AttributeType::ints);
    return attribute ? attribute->ints : otherwise;
  }
  std::vector<double> attribute_floats(const std::string& name, std::vector<double> otherwise) const override {
    const Attribute* attribute = find(name, AttributeType::floats);
    return attribute ? std::vector<double>(attribute->floats.begin(), attribute->floats.end()) : otherwise;
  }
  std::vector<std::string> attribute_strings(const std::string& name) const override {
    const Attribute* attribute = find(name, AttributeType::strings);
    if (!attribute) return {};
    return std::vector<std::string>(attribute->strings.begin(), attribute->strings.end());
  }
  NDArray attribute_tensor(const std::string& name) const override;

  std::vector<ValueId> emit_all(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes) override;
  ValueId emit_constant(NDArray value) override;
  [[noreturn]] void refuse(const std::string& why) const override { throw RefusedNode{why}; }

 private:
  // The elements of a value that is known, perhaps in terms of open dimensions.  Nothing: it is not, or it is long.
  std::optional<std::vector<Expr>> known_elements(ValueId id) const;
  ValueId fold_sizes(const OpDef& op, const std::vector<ValueId>& inputs, const NodeAttributes& attributes);
  const Attribute* find(const std::string& name) const {
    const Attribute* attribute = node_.find(name);
    if (!attribute || attribute->reference.empty()) return attribute;
    const auto argument = arguments_.find(attribute->reference);
    return argument == arguments_.end() ? nullptr : argument->second;
  }
  const Attribute* find(const std::string& name, AttributeType type) const {
    const Attribute* attribute = find(name);
    if (attribute && attribute->type != type) {
      malformed("node " + in_quotes(label_) + " (" + op_type() + "): attribute " + in_quotes(name) +
                " has another type");
    }
    return attribute;
  }

  relay::Graph& graph_;
  const std::filesystem::path& folder_;
  const FunctionArguments& arguments_;
  const Node& node_;
  std::string label_;
  int opset_;
  std::vector<ValueId> inputs_;
};

}  // namespace tw::relay::onnx
