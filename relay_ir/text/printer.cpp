#include "relay_ir/text/printer.h"

#include <algorithm>
#include <cmath>

#include "relay_ir/op.h"
#include "tensor_ir/digest.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"

namespace tw::relay {
namespace {

// Of type and bytes.
std::string constant_hash(const NDArray& array) {
  const auto* bytes = static_cast<const char*>(array.data());
  return digest_of({bytes, array.byte_size()}, hash_of(to_string(type_of(array))));
}

constexpr int64_t max_written_elements = 16;

std::string float_text(double value, const char* format) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string float_attribute(double value) {
  std::string text = float_text(value, "%.17g");
  char shorter[40];  // as few digits as give the same number
  for (int digits = 1; digits < 17; ++digits) {
    std::snprintf(shorter, sizeof shorter, "%.*g", digits, value);
    if (std::strtod(shorter, nullptr) == value) {
      text = shorter;
      break;
    }
  }
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // so that it reads as a float
  return text;
}

std::string elements_text(const NDArray& array) {
  std::string text = "[";
  for (int64_t i = 0; i < array.size(); ++i) {
    if (i) text += ", ";
    if (array.dtype().is_bool()) {
      text += array.get_int(i) ? "true" : "false";
    } else if (array.dtype().is_float() || array.dtype().is_minifloat()) {
      text += float_text(array.get_float(i), array.dtype().bits == 64 ? "%.17g" : "%.9g");
    } else if (array.dtype() == u64) {
      text += std::to_string(static_cast<uint64_t>(array.get_int(i)));
    } else {
      text += std::to_string(array.get_int(i));
    }
  }
  return text + "]";
}

// Written out only when that gives back every bit: NaNs differ in what prints alike.
bool is_written(const NDArray& array) {
  if (array.size() > max_written_elements) return false;
  for (int64_t i = 0; (array.dtype().is_float() || array.dtype().is_minifloat()) && i < array.size(); ++i) {
    if (std::isnan(array.get_float(i))) return false;
  }
  return true;
}

std::string array_text(const NDArray& array, ConstantTable* constants) {
  if (is_written(array)) return elements_text(array) + ": " + to_string(type_of(array));
  const std::string hash = constant_hash(array);
  if (constants) constants->emplace(hash, array);
  return "dense(`" + hash + "`): " + to_string(type_of(array));
}

template <class T, class F>
std::string list_text(const std::vector<T>& list, const F& element) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "") + element(list[i]);
  return text + "]";
}

bool is_default(const AttributeDef& def, const AttributeValue& value) {
  if (def.is_required || def.default_value.index() != value.index()) return false;
  return attribute_text(def.default_value) == attribute_text(value);
}

std::string type_text(const Value& value) {
  return to_string(value.type) + (value.channel_block ? " in c" + std::to_string(value.channel_block) : "");
}

}  // namespace

std::string attribute_text(const AttributeValue& value) {
  if (const auto* v = std::get_if<int64_t>(&value)) return std::to_string(*v);
  if (const auto* v = std::get_if<double>(&value)) return float_attribute(*v);
  if (const auto* v = std::get_if<std::string>(&value)) return syntax::quote_string(*v);
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) {
    return list_text(*v, [](int64_t x) { return std::to_string(x); });
  }
  if (const auto* v = std::get_if<std::vector<std::string>>(&value)) return list_text(*v, syntax::quote_string);
  return list_text(std::get<std::vector<Expr>>(value), [](const Expr& dim) {
    const auto number = as_int(dim);
    return number ? std::to_string(*number) : to_text(dim);
  });
}

std::string made_of_text(const std::vector<ListInfo>& lists, size_t& at,
                         const std::function<std::string(size_t)>& tensor) {
  const ListInfo& list = lists[at++];
  const bool holds_list = at < lists.size() && lists[at].name == list.name;
  const uint32_t own = holds_list && list.count > 0 ? 1 : list.count;
  std::string text;
  for (uint32_t i = list.first; i < list.first + own; ++i) text += (text.empty() ? "" : ", ") + tensor(i);
  if (holds_list) text += ", " + made_of_text(lists, at, tensor);
  const bool has_axis = list.kind == ListKind::packed || list.kind == ListKind::stacked;
  if (has_axis) text += ", axis = " + std::to_string(list.axis);
  if (!list.words.empty()) text += ", words = " + list_text(list.words, syntax::quote_string);
  if (!list.numbers.empty())
    text += ", numbers = " + list_text(list.numbers, [](int64_t number) { return std::to_string(number); });
  return std::string(to_string(list.kind)) + "(" + text + ")";
}

std::string values_text(const std::vector<ListInfo>& lists, size_t count, const std::string& separator,
                        const std::function<std::string(size_t)>& tensor,
                        const std::function<std::string(const ListInfo&, size_t& at)>& list) {
  std::string text;
  for (size_t i = 0, at = 0; i < count || at < lists.size();) {
    const bool is_list = at < lists.size() && lists[at].first <= i;
    const size_t first = i;
    i += is_list ? lists[at].count : 1;
    const std::string value = is_list ? list(lists[at], at) : tensor(first);
    text += (text.empty() ? "" : separator) + value;
  }
  return text;
}

namespace {

// With its bounds where it is a variable of its own.
std::string number_text(const Graph& graph, const Expr& number) {
  if (number.kind() != NodeKind::Var) return tw::to_text(number);
  const Var var = Var::of(number);
  const bool is_symbol = std::find(graph.symbols.begin(), graph.symbols.end(), var) != graph.symbols.end();
  return syntax::quote_name(var.name()) + (is_symbol ? "" : syntax::bounds_text(dimension_bounds(var)));
}

// From the symbols on; `indent` is that of the lines in it.  What the graph around a region knows of sizes it knows,
// too.
std::string body_text(const Graph& graph, ConstantTable* constants, const std::string& indent, const Graph* around) {
  using syntax::quote_name;
  auto name = [&](ValueId id) { return id == no_value ? std::string("_") : quote_name(graph.values[id].name); };
  std::string symbols;  // those that are not any integer
  const std::vector<Var> known = around ? variables_of(*around) : std::vector<Var>();
  for (const Var& symbol : graph.symbols) {
    if (std::find(known.begin(), known.end(), symbol) != known.end()) continue;
    const std::string bounds = syntax::bounds_text(dimension_bounds(symbol));
    if (!bounds.empty()) symbols += (symbols.empty() ? "" : ", ") + quote_name(symbol.name()) + bounds;
  }
  std::string text = (symbols.empty() ? "" : "[" + symbols + "]") + " (";
  const auto input = [&](size_t i) {
    return name(graph.inputs[i]) + ": " + type_text(graph.values[graph.inputs[i]]) +
           (i == graph.inputs_of_caller() ? " random" : "");
  };
  text += values_text(graph.input_lists, graph.inputs.size(), ", ", input, [&](const ListInfo& list, size_t& at) {
    return quote_name(list.name) + " = " + made_of_text(graph.input_lists, at, input);
  });
  text += ")";
  // Equalities stand where all that they are made of is known: here, or after the node that reads the last number.
  std::vector<Equality> own = around ? own_equalities(graph, *around) : graph.equalities;
  std::vector<Var> numbers = graph.symbols;
  const auto known_equalities = [&] {
    std::string found;
    std::erase_if(own, [&](const Equality& equal) {
      if (!is_made_of(equal.a, numbers) || !is_made_of(equal.b, numbers)) return false;
      found += (found.empty() ? "where " : ", ") + tw::to_text(equal.a) + " == " + tw::to_text(equal.b);
      return true;
    });
    return found;
  };
  if (const std::string first = known_equalities(); !first.empty()) text += " " + first;
  text += " {\n";
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (!value.constant) continue;
    text += indent + name(static_cast<ValueId>(id)) + " = constant " + array_text(*value.constant, constants) +
            (value.channel_block ? " in c" + std::to_string(value.channel_block) : "") + "\n";
  }
  for (const Node& node : graph.nodes) {
    text += indent;
    for (size_t i = 0; i < node.outputs.size(); ++i) text += (i ? ", " : "") + name(node.outputs[i]);
    text += (node.outputs.empty() ? "" : " = ") + quote_name(node.op->name) + "(";
    for (size_t i = 0; i < node.inputs.size(); ++i) text += (i ? ", " : "") + name(node.inputs[i]);
    text += ")";
    std::string attributes;
    for (const AttributeDef& def : node.op->attributes) {
      const AttributeValue& value = node.attributes.all().at(def.name);
      if (is_default(def, value)) continue;
      attributes += (attributes.empty() ? "" : ", ") + quote_name(def.name) + " = " +
                    (def.is_number ? list_text(std::get<std::vector<Expr>>(value),
                                               [&](const Expr& number) { return number_text(graph, number); })
                                   : attribute_text(value));
    }
    if (!attributes.empty()) text += " {" + attributes + "}";
    if (!node.decisions.empty()) text += " decided " + syntax::quote_string(tw::to_text(node.decisions));
    if (node.outputs.empty() || node.name != graph.values[node.outputs[0]].name) text += " as " + quote_name(node.name);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      text += (i ? ", " : ": ") + type_text(graph.values[node.outputs[i]]);
    }
    text += "\n";
    for (const Graph& region : node.regions)
      text += indent + "region" + body_text(region, constants, indent + "  ", &graph);
    const std::vector<Var> read = numbers_read_by(graph, node);
    numbers.insert(numbers.end(), read.begin(), read.end());
    if (!own.empty() && !read.empty())
      if (const std::string next = known_equalities(); !next.empty()) text += indent + next + "\n";
  }
  const auto output = [&](size_t i) {
    const std::string output = quote_name(graph.output_name(i)), value = name(graph.outputs[i]);
    return output == value ? value : output + " = " + value;
  };
  text += indent + "return " +
          values_text(graph.output_lists, graph.outputs.size(), ", ", output, [&](const ListInfo& list, size_t& at) {
            return quote_name(list.name) + " = " +
                   made_of_text(graph.output_lists, at, [&](size_t i) { return name(graph.outputs[i]); });
          });
  return text + "\n" + indent.substr(2) + "}\n";
}

}  // namespace

std::string to_text(const Graph& graph, ConstantTable* constants) {
  return "graph " + syntax::quote_name(graph.name) + body_text(graph, constants, "  ", nullptr);
}

}  // namespace tw::relay
