#include "frontends/inputs.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw::frontends {
namespace {

// By name: within all that is said of it.
std::map<std::string, DimensionBounds> given_bounds(const ImportOptions& options) {
  std::map<std::string, DimensionBounds> bounds;
  for (const auto& [input, shape] : options.shapes) {
    for (const DimensionOption& option : shape) {
      if (option.size || option.name.empty()) continue;
      const auto [found, is_new] = bounds.emplace(option.name, option.bounds);
      found->second.low = std::max(found->second.low, option.bounds.low);
      found->second.high = std::min(found->second.high, option.bounds.high);
      if (found->second.low < 0 || found->second.high < found->second.low) {
        throw Error(ErrorCode::shape, "no size is within the bounds of dimension " + in_quotes(option.name) +
                                          "\n  help: low and high are both included, and low is at least 0");
      }
    }
  }
  return bounds;
}

std::string text_of(const std::vector<DimensionOption>& shape) {
  std::string text;
  for (const DimensionOption& option : shape) {
    text += (text.empty() ? "" : ", ") + (option.size           ? std::to_string(*option.size)
                                          : option.name.empty() ? "-1"
                                                                : option.name);
  }
  return "[" + text + "]";
}

const DeclaredInput* find_input(const std::vector<DeclaredInput>& inputs, const std::string& name) {
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const auto& input) { return input.name == name; });
  return found == inputs.end() ? nullptr : &*found;
}

}  // namespace

std::string changed_dimensions(const ImportOptions& options, const std::vector<DeclaredInput>& inputs) {
  std::string text;
  for (const auto& [name, shape] : options.shapes) {
    const DeclaredInput* input = find_input(inputs, name);
    if (!input || !input->shape || input->shape->size() != shape.size()) continue;
    for (size_t i = 0; i < shape.size(); ++i) {
      const auto& fixed = (*input->shape)[i].value;
      const bool is_kept = shape[i].size ? shape[i].size == fixed : shape[i].name.empty();
      if (!fixed || is_kept) continue;
      text += (text.empty() ? "" : ", ") + ("dimension " + std::to_string(i)) + " of " + in_quotes(name) + " from " +
              std::to_string(*fixed) + " to " + (shape[i].size ? std::to_string(*shape[i].size) : shape[i].name);
    }
  }
  return text;
}

// What a parameter stands for, in all inputs.
void Inputs::set_dimension(std::string_view parameter, const Expr& value, const std::string& input) {
  const auto [found, is_new] = dimensions_.emplace(std::string(parameter), value);
  if (!is_new && !is_known_equal(found->second, value)) {
    throw Error(ErrorCode::shape, "input " + in_quotes(input) + ": dimension " + in_quotes(parameter) + " is " +
                                      to_text(found->second) + " elsewhere, here " + to_text(value));
  }
}

Inputs::Inputs(Import& import, OpenDimensions& dimensions, const ImportOptions& options,
               const std::vector<DeclaredInput>& inputs)
    : graph_(import.graph), open_(dimensions), options_(options), bounds_(given_bounds(options)) {
  graph_.equalities = open_.equalities();
  for (const auto& [name, shape] : options_.shapes) {
    const DeclaredInput* found = find_input(inputs, name);
    if (!found) {
      std::string known;
      for (const DeclaredInput& input : inputs) known += (known.empty() ? "" : ", ") + in_quotes(input.name);
      throw Error(ErrorCode::shape, "a shape is given for " + in_quotes(name) + ", but the inputs are " + known);
    }
    const auto& dims = found->shape;
    if (!dims) continue;
    if (dims->size() != shape.size()) {
      throw Error(ErrorCode::shape, "input " + in_quotes(name) + " has " + std::to_string(dims->size()) +
                                        " dimensions; the given shape " + text_of(shape) + " has " +
                                        std::to_string(shape.size()));
    }
    for (size_t i = 0; i < shape.size(); ++i) {
      const Dimension& dim = (*dims)[i];
      const DimensionOption& option = shape[i];
      if (!option.size && option.name.empty()) continue;  // as the model has it
      if (!dim.value && !dim.parameter.empty()) {
        set_dimension(dim.parameter,
                      option.size ? Expr(*option.size) : open_dimension(option.name, bounds_.at(option.name)), name);
      }
    }
  }
}

ValueId Inputs::add(const DeclaredInput& input, DType dtype) {
  const std::string name(input.name);
  const auto given = options_.shapes.find(name);
  if (!input.shape && given == options_.shapes.end()) {
    throw Error(ErrorCode::shape,
                "input " + in_quotes(name) + " has no shape\n  help: give one: shapes={\"" + name + "\": (…)}");
  }
  TensorType type{dtype, {}};
  const size_t rank = input.shape ? input.shape->size() : given->second.size();
  for (size_t i = 0; i < rank; ++i) {
    const Dimension* dim = input.shape ? &(*input.shape)[i] : nullptr;
    const DimensionOption option = given == options_.shapes.end() ? DimensionOption() : given->second[i];
    if (option.size) {
      type.shape.push_back(Expr(*option.size));
    } else if (!option.name.empty()) {
      type.shape.push_back(open_dimension(option.name, bounds_.at(option.name)));
      const auto number = as_int(type.shape.back());
      if (dim && dim->value && number) {
        throw Error(ErrorCode::shape, "dimension " + std::to_string(i) + " of input " + in_quotes(name) +
                                          " cannot be open: it is " + std::to_string(*number) + ", as " +
                                          open_.demanded_by(option.name) + " demands");
      }
    } else if (dim && dim->value) {
      type.shape.push_back(Expr(*dim->value));
    } else if (!dim) {
      malformed("input " + in_quotes(name) + " has no shape, so that all given dimensions must be known");
    } else {
      const std::string parameter =
          dim->parameter.empty() ? name + "_" + std::to_string(i) : std::string(dim->parameter);
      if (!dimensions_.count(parameter)) dimensions_[parameter] = open_dimension(parameter, {1});
      type.shape.push_back(dimensions_[parameter]);
    }
  }
  const ValueId id = graph_.add_value(name, std::move(type));
  graph_.inputs.push_back(id);
  return id;
}

NDArray constant_input(const DeclaredInput& input, DType dtype, const NDArray& given) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::shape, "input " + in_quotes(input.name) + " cannot be the constant that is given: " + why);
  };
  Shape shape = given.shape();
  if (input.shape) {
    Shape declared;
    for (const Dimension& dim : *input.shape) declared.push_back(dim.value.value_or(-1));
    const bool is_fixed = std::find(declared.begin(), declared.end(), -1) == declared.end();
    if (given.size() == 1 && is_fixed) shape = declared;
    bool fits = shape.size() == declared.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) fits = declared[d] < 0 || declared[d] == shape[d];
    if (!fits) refuse("it has " + std::to_string(given.rank()) + " dimensions or other sizes than the model declares");
  }
  NDArray constant(dtype, shape);
  for (int64_t i = 0; i < constant.size(); ++i) {
    const int64_t from = given.size() == 1 ? 0 : i;
    const double number = given.get_float(from);
    if (dtype.is_float()) {
      constant.set_float(i, number);
      continue;
    }
    const int64_t whole =
        given.dtype().is_float() ? static_cast<int64_t>(std::clamp(number, -0x1p62, 0x1p62)) : given.get_int(from);
    constant.set_int(i, whole);
    if ((given.dtype().is_float() && static_cast<double>(whole) != number) || constant.get_int(i) != whole)
      refuse("it is no " + to_string(dtype));
  }
  return constant;
}

}  // namespace tw::frontends
