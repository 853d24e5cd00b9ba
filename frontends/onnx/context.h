// How an operator's rule sees one ONNX node: the builder, with the node's attributes and outputs.
#pragma once

#include <filesystem>
#include <functional>
#include <unordered_map>

#include "frontends/builder.h"
#include "frontends/onnx/tensor.h"
#include "relay_ir/ops/common.h"

namespace tw::frontends::onnx {

// Attributes that the call of a function gives to its body.
using FunctionArguments = std::unordered_map<std::string_view, const Attribute*>;

// What a model says of its values, by name.
using ValueInfos = std::unordered_map<std::string_view, const ValueInfo*>;

class Context : public Builder {
 public:
  // `infos`: null where values go by other names, in functions and branches.
  Context(Import& import, const SourceNode& source, const Node& node, int opset, const FunctionArguments& arguments,
          const std::filesystem::path& folder, const ValueInfos* infos)
      : Builder(import, source), node_(node), opset_(opset), arguments_(arguments), folder_(folder), infos_(infos) {}

  // What the rule gives for the same node with other inputs, in this opset.
  std::vector<ValueId> with_inputs(std::vector<ValueId> inputs, int opset,
                                   const std::function<std::vector<ValueId>(Context&)>& rule) {
    SourceNode changed = source();
    changed.inputs = std::move(inputs);
    Context context(import(), changed, node_, opset, arguments_, folder_, infos_);
    return rule(context);
  }
  // …with another input `i`.
  std::vector<ValueId> with_input(size_t i, ValueId value, const std::function<std::vector<ValueId>(Context&)>& rule) {
    std::vector<ValueId> inputs = source().inputs;
    inputs.at(i) = value;
    return with_inputs(std::move(inputs), opset_, rule);
  }

  int opset() const { return opset_; }  // of the node's domain
  size_t output_count() const { return node_.outputs.size(); }
  // Named, so perhaps used.
  bool wants_output(size_t i) const { return i < node_.outputs.size() && !node_.outputs[i].empty(); }

  // Whether the model says that an input and an output have this dimension in common: one name, or one number.
  bool declares_equal(size_t input, size_t output, size_t axis) const {
    const Dimension *a = declared(node_.inputs, input, axis), *b = declared(node_.outputs, output, axis);
    return a && b && a->value == b->value && a->parameter == b->parameter && (a->value || !a->parameter.empty());
  }

  // All, those that the call of a function gives in their places.
  std::vector<Attribute> attributes() const {
    std::vector<Attribute> result;
    for (const Attribute& attribute : node_.attributes) {
      const Attribute* given = find(std::string(attribute.name));
      if (!given) continue;
      result.push_back(*given);
      result.back().name = attribute.name;
    }
    return result;
  }
  bool has_attribute(const std::string& name) const { return find(name) != nullptr; }
  int64_t attribute_int(const std::string& name, int64_t otherwise) const {
    const Attribute* attribute = find(name, AttributeType::int_);
    return attribute ? attribute->int_value : otherwise;
  }
  double attribute_float(const std::string& name, double otherwise) const {
    const Attribute* attribute = find(name, AttributeType::float_);
    return attribute ? attribute->float_value : otherwise;
  }
  std::string attribute_string(const std::string& name, const std::string& otherwise) const {
    const Attribute* attribute = find(name, AttributeType::string);
    return attribute ? std::string(attribute->string_value) : otherwise;
  }
  std::vector<int64_t> attribute_ints(const std::string& name, std::vector<int64_t> otherwise) const {
    const Attribute* attribute = find(name, AttributeType::ints);
    return attribute ? attribute->ints : otherwise;
  }
  std::vector<double> attribute_floats(const std::string& name, std::vector<double> otherwise) const {
    const Attribute* attribute = find(name, AttributeType::floats);
    return attribute ? std::vector<double>(attribute->floats.begin(), attribute->floats.end()) : otherwise;
  }
  std::vector<std::string> attribute_strings(const std::string& name) const {
    const Attribute* attribute = find(name, AttributeType::strings);
    if (!attribute) return {};
    return std::vector<std::string>(attribute->strings.begin(), attribute->strings.end());
  }
  NDArray attribute_tensor(const std::string& name) const {
    const Attribute* attribute = find(name, AttributeType::tensor);
    if (!attribute) malformed(place() + ": attribute " + in_quotes(name) + " is missing");
    return to_array(*attribute->tensor, folder_);
  }
  // Strings as their codes (Words), of a tensor of them or a list.
  NDArray attribute_text_tensor(const std::string& name) {
    const Attribute* attribute = find(name, AttributeType::tensor);
    if (!attribute || !is_text(*attribute->tensor))
      malformed(place() + ": attribute " + in_quotes(name) + " is no tensor of strings");
    return codes_of(*attribute->tensor, [&](std::string_view word) { return import().words.code_of(word); });
  }
  NDArray attribute_text(const std::string& name) {
    std::vector<int64_t> codes;
    for (const std::string& word : attribute_strings(name)) codes.push_back(import().words.code_of(word));
    return relay::int_array(codes);
  }
  bool has_text_tensor(const std::string& name) const {
    const Attribute* attribute = find(name);
    return attribute && attribute->type == AttributeType::tensor && is_text(*attribute->tensor);
  }
  const Graph& attribute_graph(const std::string& name) const {
    const Attribute* attribute = find(name);
    if (!attribute || !attribute->graph) malformed(place() + ": attribute " + in_quotes(name) + " is no graph");
    return *attribute->graph;
  }
  // An element type by its number in TensorProto; refuses types that we do not have.
  DType attribute_dtype(const std::string& name) const {
    const int64_t number = attribute_int(name, 0);
    const auto dtype = to_dtype(number);
    if (!dtype) refuse("element type " + std::to_string(number) + " of ONNX is not supported");
    return *dtype;
  }

 private:
  const Dimension* declared(const std::vector<std::string_view>& names, size_t i, size_t axis) const {
    if (!infos_ || i >= names.size()) return nullptr;
    const auto found = infos_->find(names[i]);
    if (found == infos_->end() || !found->second->shape || axis >= found->second->shape->size()) return nullptr;
    return &found->second->shape->at(axis);
  }
  const Attribute* find(const std::string& name) const {
    const Attribute* attribute = node_.find(name);
    if (!attribute || attribute->reference.empty()) return attribute;
    const auto argument = arguments_.find(attribute->reference);
    return argument == arguments_.end() ? nullptr : argument->second;
  }
  const Attribute* find(const std::string& name, AttributeType type) const {
    const Attribute* attribute = find(name);
    if (attribute && attribute->type != type) {
      malformed(place() + ": attribute " + in_quotes(name) + " has another type");
    }
    return attribute;
  }

  const Node& node_;
  int opset_;
  const FunctionArguments& arguments_;
  const std::filesystem::path& folder_;
  const ValueInfos* infos_;
};

}  // namespace tw::frontends::onnx
