#include "frontends/onnx/list_inputs.h"

#include "frontends/onnx/tensor.h"

namespace tw::frontends::onnx {
namespace {

std::optional<size_t> given_length(const std::string& name, const ImportOptions& options) {
  size_t length = 0;
  while (options.shapes.contains(name + "." + std::to_string(length))) ++length;
  const bool is_known = length > 0 || options.shapes.contains(name);
  return is_known ? std::optional(length) : std::nullopt;
}

}  // namespace

std::optional<ValueId> input_of(const ValueInfo& info, const std::string& name, const ImportOptions& options,
                                Lists& lists, const std::function<ValueId(const ValueInfo&, const std::string&)>& f) {
  if (info.kind == ValueKind::tensor && to_dtype(info.element_type)) return f(info, name);
  if (info.kind == ValueKind::tensor && info.element_type == text_type) {
    List text{ListKind::text, {f(info, name)}};
    text.may_be_unknown = true;
    return lists.add(std::move(text));
  }
  if (info.kind == ValueKind::optional) {
    if (options.absent.contains(name)) return lists.add({ListKind::optional, {}});
    const auto value = input_of(info.element[0], name, options, lists, f);
    return value ? std::optional(lists.add({ListKind::optional, {*value}})) : std::nullopt;
  }
  const auto length = info.kind == ValueKind::sequence ? given_length(name, options) : std::nullopt;
  if (!length) return std::nullopt;
  ValueInfo element = info.element[0];  // a name of a dimension of its type is none of a size
  if (element.shape)
    for (Dimension& dim : *element.shape) dim.parameter = {};
  std::vector<ValueId> tensors;
  for (size_t i = 0; i < *length; ++i) {
    const auto tensor = input_of(element, name + "." + std::to_string(i), options, lists, f);
    if (!tensor || is_list(*tensor)) return std::nullopt;
    tensors.push_back(*tensor);
  }
  return lists.add({ListKind::sequence, tensors});
}

std::string why_no_input(const ValueInfo& info, const std::string& name) {
  switch (info.kind) {
    case ValueKind::tensor:
      return data_type_name(info.element_type) + " elements";
    case ValueKind::sequence:
      return "a sequence, whose length is not known; give its tensors' shapes: shapes={\"" + name + "\": [(…), …]}";
    case ValueKind::optional:
      return why_no_input(info.element[0], name);
    default:
      return "a value that is no tensor";
  }
}

std::optional<NDArray> constant_of(const ValueInfo& info, const ImportOptions& options) {
  const auto given = options.constants.find(std::string(info.name));
  if (given == options.constants.end()) return std::nullopt;
  const auto dtype = to_dtype(info.element_type);
  if (info.kind != ValueKind::tensor || is_text(info) || !dtype)
    throw Error(ErrorCode::shape,
                "input " + in_quotes(info.name) + " is no tensor of numbers, and cannot be a constant");
  return constant_input({info.name, info.shape}, *dtype, given->second);
}

void check_named_inputs(const std::vector<ValueInfo>& inputs, const ImportOptions& options) {
  const auto find = [&](const std::string& name) {
    return std::find_if(inputs.begin(), inputs.end(), [&](const ValueInfo& info) { return info.name == name; });
  };
  for (const std::string& name : options.absent) {
    const auto found = find(name);
    if (found == inputs.end() || found->kind != ValueKind::optional)
      throw Error(ErrorCode::shape, in_quotes(name) + " is said to be absent, but no optional input is called so");
  }
  for (const auto& [name, value] : options.constants)
    if (find(name) == inputs.end())
      throw Error(ErrorCode::shape, in_quotes(name) + " is said to be a constant, but no input is called so");
}

}  // namespace tw::frontends::onnx
