#include "frontends/onnx/custom.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tensor_ir/arith/in_bounds.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

namespace tw::frontends::onnx {
namespace {

using nlohmann::json;

json number_of(double value, const Context& c, std::string_view name) {
  if (!std::isfinite(value)) c.refuse("attribute " + in_quotes(name) + " is not finite");
  return value;
}

// Floats have the digits of their 32 bits, and no more.
json value_of(const Attribute& attribute, const Context& c) {
  const std::string name(attribute.name);
  switch (attribute.type) {
    case AttributeType::int_:
      return attribute.int_value;
    case AttributeType::float_:
      return number_of(attribute.float_value, c, name);
    case AttributeType::string:
      return std::string(attribute.string_value);
    case AttributeType::ints:
      return attribute.ints;
    case AttributeType::floats: {
      json values = json::array();
      for (const float value : attribute.floats) values.push_back(number_of(value, c, name));
      return values;
    }
    case AttributeType::strings: {
      json values = json::array();
      for (const std::string_view value : attribute.strings) values.push_back(std::string(value));
      return values;
    }
    default:
      c.refuse("attribute " + in_quotes(name) + " is no number, text, or list of these");
  }
}

// Of a Func that is in terms of open dimensions: those become its parameters.
NodeAttributes attributes_of_expression(Func func, const std::vector<TensorType>& inputs) {
  std::vector<Var> sizes;
  for (const TensorType& type : inputs) {
    for (const Expr& dim : type.shape) {
      for (const Var& var : free_vars(dim))
        if (std::find(sizes.begin(), sizes.end(), var) == sizes.end()) sizes.push_back(var);
    }
  }
  func.parameters = sizes;
  NodeAttributes attributes;
  attributes.set("func", to_text(func));
  attributes.set("parameters", std::vector<Expr>(sizes.begin(), sizes.end()));
  return attributes;
}

std::vector<ValueId> emit_call(Context& c, const std::vector<ValueId>& inputs, const std::string& function,
                               const std::string& library, const std::string& attributes,
                               const std::vector<TensorType>& outputs) {
  std::vector<std::string> dtypes;
  std::vector<int64_t> ranks;
  std::vector<Expr> dims;
  for (const TensorType& type : outputs) {
    dtypes.push_back(to_string(type.dtype));
    ranks.push_back(type.rank());
    dims.insert(dims.end(), type.shape.begin(), type.shape.end());
  }
  NodeAttributes all;
  all.set("function", function);
  all.set("library", library);
  all.set("attributes", attributes);
  all.set("dtypes", dtypes);
  all.set("ranks", ranks);
  all.set("dims", dims);
  return c.emit_control("host_call", inputs, std::move(all), {});
}

// Sizes that only the run knows are those that a call of their own gives before.
std::vector<ValueId> import_call(Context& c, const std::vector<ValueId>& inputs, const CustomResult& result,
                                 const std::string& attributes) {
  std::vector<TensorType> outputs = result.outputs;
  std::vector<Expr*> unknown;
  for (TensorType& type : outputs)
    for (Expr& dim : type.shape)
      if (!dim.is_defined()) unknown.push_back(&dim);
  if (!unknown.empty()) {
    const TensorType list{i64, {Expr(static_cast<int64_t>(unknown.size()))}};
    const ValueId sizes = emit_call(c, inputs, result.sizes, result.library, attributes, {list})[0];
    const std::vector<Expr> known = c.emit_items(sizes);
    for (size_t i = 0; i < unknown.size(); ++i) *unknown[i] = known[i];
  }
  return emit_call(c, inputs, result.function, result.library, attributes, outputs);
}

// Of one block, without sums, whose loads are numpy's broadcasting: a map, element by element.
bool is_map(const Func& func) {
  if (func.output_count != 1) return false;
  const Buffer& output = func.buffers.back();
  int blocks = 0;
  bool is_plain = true;
  std::vector<IterVar> iters;
  visit(func.body, [&](const Block& block) {
    ++blocks;
    iters = block.iters;
    is_plain = is_plain && !block.init.is_defined();
  });
  if (blocks != 1 || !is_plain || iters.size() != output->shape.size()) return false;
  visit(func.body, [&](const Load& load) {
    const size_t rank = load.indices.size();
    if (rank > iters.size()) return void(is_plain = false);
    for (size_t d = 0; d < rank; ++d) {
      const bool is_same = load.indices[d].is_same(iters[iters.size() - rank + d].var) &&
                           is_known_equal(load.buffer->shape[d], output->shape[iters.size() - rank + d]);
      const bool is_broadcast = is_const_int(load.indices[d], 0) && is_const_int(load.buffer->shape[d], 1);
      is_plain = is_plain && (is_same || is_broadcast);
    }
  });
  return is_plain;
}

void require_proven(const Context& c, const Func& func) {
  if (const std::string access = find_unproven_access(func); !access.empty())
    c.refuse("its expression may read outside of " + access +
             "\n    help: bring the index within with te.minimum and te.maximum, or read with te.load_if");
}

}  // namespace

std::vector<ValueId> import_custom(Context& c, const std::string& name, const CustomOperator& custom) {
  json attributes = json::object();
  for (const Attribute& attribute : c.attributes()) attributes[std::string(attribute.name)] = value_of(attribute, c);
  std::vector<ValueId> inputs = c.inputs();
  while (!inputs.empty() && inputs.back() == no_value) inputs.pop_back();
  CustomUse use{name, attributes.dump(-1, ' ', true, json::error_handler_t::replace), {}};
  for (const ValueId id : inputs) {
    if (id == no_value) c.refuse("an input before its last one is absent");
    use.inputs.push_back(c.type(id));
  }
  if (inputs.empty()) c.refuse("it has no inputs");
  const CustomResult result = custom(use);
  if (!result.expression && !result.update) return import_call(c, inputs, result, use.attributes);
  std::vector<ValueId> made;
  if (result.expression) {
    require_proven(c, *result.expression);
    NodeAttributes attributes = attributes_of_expression(*result.expression, use.inputs);
    attributes.set("schedule", result.schedule);
    made = c.emit_all(is_map(*result.expression) ? "map_expression" : "expression", inputs, std::move(attributes));
  }
  if (!result.update) return made;
  require_proven(c, *result.update);
  inputs.insert(inputs.end(), made.begin(), made.end());
  return c.emit_all("update", inputs, attributes_of_expression(*result.update, use.inputs));
}

}  // namespace tw::frontends::onnx
