#include "relay_ir/op.h"

#include <algorithm>
#include <unordered_map>

#include "tensor_ir/arith/samples.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

const char* kind_name(const AttributeValue& value) {
  static const char* const names[] = {"an integer",         "a float",           "a string",
                                      "a list of integers", "a list of strings", "a list of dimensions"};
  return names[value.index()];
}

// Integers serve where floats are wanted, and an empty list of one kind serves as one of another.
std::optional<AttributeValue> convert(const AttributeValue& given, const AttributeValue& wanted) {
  if (given.index() == wanted.index()) return given;
  if (const auto* value = std::get_if<int64_t>(&given); value && std::holds_alternative<double>(wanted)) {
    return static_cast<double>(*value);
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&given)) {
    if (std::holds_alternative<std::vector<Expr>>(wanted)) return std::vector<Expr>(list->begin(), list->end());
    if (list->empty() && std::holds_alternative<std::vector<std::string>>(wanted)) return std::vector<std::string>();
  }
  return std::nullopt;
}

}  // namespace

UnprovenDimensions::UnprovenDimensions(Expr a, Relation relation, Expr b, const std::string& message)
    : Error(ErrorCode::shape, message), a(std::move(a)), b(std::move(b)), relation(relation) {}

namespace {

bool is_same_size(const Expr& e, const Expr& f) {
  const auto x = as_int(e), y = as_int(f);
  return x && y ? *x == *y : e.is_same(f) || is_known_equal(e, f);
}

struct Measured {
  Expr size;
  Samples samples;
  explicit Measured(const Expr& e) : size(e), samples(samples_of(e)) {}
  Measured(const Measured& a, const Measured& b)  // their product
      : size(a.size * b.size), samples(product_of(a.samples, b.samples)) {}
};

// What is as large beside a as one side of an equality beside the other is equal to it, sizes being positive; likewise
// of a product of several.
bool is_proportional(const Measured& a, const Measured& b, std::span<const std::pair<Measured, Measured>> known,
                     int most = 2) {
  for (size_t i = 0; i < known.size(); ++i) {
    for (const auto& [x, y] : {std::tie(known[i].first, known[i].second), std::tie(known[i].second, known[i].first)}) {
      const bool may_be = may_be_equal(product_of(a.samples, y.samples), product_of(b.samples, x.samples));
      if (may_be && is_same_size(a.size * y.size, b.size * x.size)) return true;
      if (most > 1 && is_proportional({a, y}, {b, x}, known.subspan(i + 1), most - 1)) return true;
    }
  }
  return false;
}

}  // namespace

void require_equal(const Expr& a, const Expr& b, std::span<const Equality> known, const std::string& where) {
  if (is_same_size(a, b) || is_same_size(as_known_equal(a, known), as_known_equal(b, known))) return;
  std::vector<std::pair<Measured, Measured>> sides;
  for (const Equality& equal : known) {
    // What is 0, as `0 <= n` is written, makes all products with it equal.
    const bool is_size = as_int(equal.a).value_or(1) > 0 && as_int(equal.b).value_or(1) > 0;
    if (is_size) sides.emplace_back(Measured(equal.a), Measured(equal.b));
  }
  if (is_proportional(Measured(a), Measured(b), sides)) return;
  if (as_int(a) && as_int(b)) throw Error(ErrorCode::shape, where);
  throw UnprovenDimensions(
      a, UnprovenDimensions::Relation::equal, b,
      where + ": `" + to_text(a) + "` and `" + to_text(b) + "` may differ\n  help: fix open dimensions with shapes=");
}

Expr as_known_equal(const Expr& dim, std::span<const Equality> known) {
  if (as_int(dim)) return dim;
  Expr result = simplify(dim);
  bool is_new = true;
  for (size_t i = 0; i < known.size() && is_new; ++i) {  // what is equal may be equal to something else
    is_new = false;
    for (const Equality& equal : known) {
      if (!is_known_equal(result, equal.a)) continue;
      result = equal.b;
      is_new = true;
    }
  }
  return result;
}

bool rely_on(const Expr& x, const Expr& y, const std::string& demanded_by, std::vector<Equality>& equalities) {
  // What follows from both sides is known of one of them already.
  Expr a = as_known_equal(x, equalities), b = as_known_equal(y, equalities);
  if (as_int(a)) std::swap(a, b);
  const Interval difference = bounds_of(a - b);
  const bool is_possible = difference.low.value_or(0) <= 0 && difference.high.value_or(0) >= 0;
  const bool is_known = std::any_of(equalities.begin(), equalities.end(), [&](const Equality& known) {
    return (is_known_equal(known.a, a) && is_known_equal(known.b, b)) ||
           (is_known_equal(known.a, b) && is_known_equal(known.b, a));
  });
  if (is_known || !is_possible) return false;
  equalities.push_back({a, b, demanded_by});
  return true;
}

bool rely_on(const UnprovenDimensions& unproven, const std::string& demanded_by, std::vector<Equality>& equalities) {
  const Expr a = simplify(unproven.a), b = simplify(unproven.b);
  if (unproven.relation == UnprovenDimensions::Relation::at_most)
    return rely_on(simplify(min(a, b)), a, demanded_by, equalities);
  const bool is_shorter = to_text(a).size() < to_text(b).size();
  return rely_on(is_shorter ? b : a, is_shorter ? a : b, demanded_by, equalities);
}

std::string OpCall::text() const {
  std::string text = op.name + "(";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i) text += ", ";
    text += has_input(i) ? to_string(inputs[i]) : "none";
  }
  return text + ")";
}

void OpCall::fail(const std::string& message) const {
  throw Error(ErrorCode::shape, text() + ": " + message);
}

void OpCall::require_equal(const Expr& a, const Expr& b, const std::string& message) const {
  relay::require_equal(a, b, equalities, text() + ": " + message);
}

void OpCall::require_at_most(const Expr& a, const Expr& b, const std::string& message) const {
  if (can_prove(a <= b)) return;
  const bool is_known = is_known_equal(as_known_equal(min(a, b), equalities), as_known_equal(a, equalities));
  if (!equalities.empty() && is_known) return;
  const Expr more = simplify(a - b);
  if (as_int(more)) fail(message);
  throw UnprovenDimensions(a, UnprovenDimensions::Relation::at_most, b,
                           text() + ": " + message + ", by `" + to_text(more) +
                               "`\n  help: bounds say how large an open dimension gets: tw.Dim(name, low, high)");
}

std::vector<TensorType> infer_types(const OpDef& op, const std::vector<TensorType>& inputs,
                                    const std::vector<bool>& present, const std::vector<const NDArray*>& constants,
                                    NodeAttributes& attributes, std::span<const Equality> equalities,
                                    std::span<const Graph> regions) {
  OpCall call{op, attributes, inputs, present, constants, {}, {}, equalities, regions};
  call.require(regions.size() == static_cast<size_t>(op.regions),
               "has " + std::to_string(op.regions) + " regions, not " + std::to_string(regions.size()));
  const int count = static_cast<int>(inputs.size()), least = op.min_inputs(), most = least + op.optional_inputs;
  const std::string range = op.takes_any_number ? " or more" : most > least ? " to " + std::to_string(most) : "";
  call.require(count >= least && (op.takes_any_number || count <= most),
               "takes " + std::to_string(least) + range + " inputs, not " + std::to_string(count));
  for (int i = 0; i < least && !op.takes_any_number; ++i)
    call.require(present[i], "input `" + op.input_names[i] + "` is missing");
  for (const auto& [name, value] : attributes.all()) {
    const bool is_known = std::any_of(op.attributes.begin(), op.attributes.end(),
                                      [&name = name](const AttributeDef& def) { return def.name == name; });
    call.require(is_known, "has no attribute `" + name + "`");
  }
  for (const AttributeDef& def : op.attributes) {
    if (!attributes.has(def.name)) {
      call.require(!def.is_required, "needs attribute `" + def.name + "`");
      attributes.set(def.name, def.default_value);
      continue;
    }
    const AttributeValue& given = attributes.all().at(def.name);
    const auto converted = convert(given, def.default_value);
    call.require(converted.has_value(),
                 "attribute `" + def.name + "` is " + kind_name(def.default_value) + ", not " + kind_name(given));
    attributes.set(def.name, *converted);
  }
  for (int i = 0; i < count && !op.takes_narrow && regions.empty(); ++i)
    call.require(!present[i] || !inputs[i].dtype.is_narrow(),
                 "narrow types are stored, moved and converted; nothing is computed in " + to_string(inputs[i].dtype));
  std::vector<TensorType> outputs = op.infer(call);
  for (TensorType& type : outputs) {
    for (Expr& dim : type.shape) {
      if (as_int(dim)) continue;
      dim = as_known_equal(dim, equalities);
    }
    for (const Expr& dim : type.shape) {
      call.require(as_int(dim).value_or(0) >= 0, "gives a negative dimension: " + to_string(type));
    }
  }
  return outputs;
}

bool OpDef::leaves_open(std::string_view decision) const {
  return std::any_of(decisions.begin(), decisions.end(), [&](const DecisionDef& def) { return def.name == decision; });
}

void require_open(const OpDef& op, const Decisions& decisions) {
  for (const auto& [name, choice] : decisions) {
    if (!op.leaves_open(name)) throw Error(ErrorCode::shape, "`" + op.name + "` has no decision `" + name + "`");
  }
}

OpCall make_call(const Graph& graph, const Node& node) {
  OpCall call{*node.op, node.attributes, {}, {}, {}, {}, node.decisions, graph.equalities, node.regions};
  for (const ValueId id : node.inputs) {
    call.present.push_back(id != no_value);
    call.inputs.push_back(id == no_value ? TensorType{f32, {}} : graph.values[id].type);
    call.constants.push_back(graph.is_constant(id) ? &*graph.values[id].constant : nullptr);
  }
  for (const ValueId id : node.outputs) call.outputs.push_back(graph.values[id].type);
  return call;
}

std::vector<Expr> broadcast_shapes(const OpCall& call, const std::vector<std::vector<Expr>>& shapes) {
  size_t rank = 0;
  for (const auto& shape : shapes) rank = std::max(rank, shape.size());
  std::vector<Expr> result(rank, Expr(1));
  for (const auto& shape : shapes) {
    for (size_t i = 0; i < shape.size(); ++i) {
      Expr& dim = result[rank - shape.size() + i];
      const Expr& other = shape[i];
      if (is_const_int(other, 1)) continue;
      if (is_const_int(dim, 1)) {
        dim = other;
        continue;
      }
      const auto a = as_int(dim), b = as_int(other);
      if (a && b) {
        call.require(*a == *b, "dimensions " + std::to_string(*a) + " and " + std::to_string(*b) +
                                   " neither are equal nor is one of them 1");
      } else {
        call.require_equal(dim, other, "dimensions");
      }
    }
  }
  return result;
}

Expr broadcast_read(const te::Tensor& t, const te::Indices& output_indices, const std::vector<Expr>& output_shape) {
  te::Indices indices;
  const size_t skip = output_indices.size() - t.shape().size();
  for (size_t i = 0; i < t.shape().size(); ++i) {
    const bool is_broadcast = is_const_int(t.shape()[i], 1) && !is_const_int(output_shape[skip + i], 1);
    indices.push_back(is_broadcast ? Expr(0) : output_indices[skip + i]);
  }
  return t(indices);
}

std::vector<NDArray> evaluate_op(const OpDef& op, const NodeAttributes& given, const std::vector<NDArray>& inputs) {
  NodeAttributes attributes = given;
  std::vector<TensorType> types;
  std::vector<bool> present;
  std::vector<const NDArray*> constants;
  for (const NDArray& input : inputs) {
    present.push_back(input.is_defined());
    types.push_back(input.is_defined() ? type_of(input) : TensorType{f32, {}});
    constants.push_back(input.is_defined() ? &input : nullptr);
  }
  const std::vector<TensorType> results = infer_types(op, types, present, constants, attributes);
  std::vector<NDArray> outputs;
  bool is_empty = true;
  for (const TensorType& type : results) {
    const auto shape = static_shape(type);
    check(shape.has_value(), "evaluate_op: constant inputs give constant shapes");
    outputs.emplace_back(type.dtype, *shape);
    is_empty = is_empty && outputs.back().size() == 0;
  }
  if (is_empty) return outputs;
  if (op.kind == OpKind::view && inputs[0].byte_size() == outputs[0].byte_size()) {
    std::memcpy(outputs[0].data(), inputs[0].data(), inputs[0].byte_size());
    return outputs;
  }
  const OpCall call{op, attributes, types, present, constants, results};
  std::vector<te::Tensor> placeholders, arguments;
  std::vector<NDArray> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    te::Tensor tensor;
    if (present[i]) {
      tensor = te::placeholder("x" + std::to_string(i), types[i].shape, types[i].dtype.stored());
      placeholders.push_back(tensor);
      buffers.push_back(inputs[i].stored());
    }
    arguments.push_back(tensor);
  }
  const Func func = te::make_func(op.name, placeholders, op.compute(call, arguments));
  for (const NDArray& output : outputs) buffers.push_back(output.stored());
  interpret(func, buffers);
  return outputs;
}

}  // namespace tw::relay
