#include "frontends/builder.h"

#include <algorithm>

#include "frontends/control.h"
#include "frontends/emit.h"
#include "frontends/open_dimensions.h"
#include "tensor_ir/text/printer.h"

namespace tw::frontends {
namespace {

struct RefusedNode {
  std::string why;
};

// What is folded at import: shapes, masks, positions.  Larger constants are folded by the compiler's pass.  Operators
// that work more than once on each element have a smaller limit.
int64_t max_folded_elements(OpKind kind) {
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

bool all_known(const std::vector<Expr>& values) {
  return std::all_of(values.begin(), values.end(), [](const Expr& value) { return as_int(value).has_value(); });
}

}  // namespace

std::string place_of(const SourceNode& node) {
  return "node " + in_quotes(node.name) + " (" + node.op + ")";
}

ValueId Import::emit_random_state() {
  if (region) return region->capture_random_state();
  if (random_state == no_value) random_state = graph.add_value("random_state", {u64, {Expr(2)}});
  return random_state;
}

void Import::refuse(const SourceNode& node, const std::string& why) {
  const bool has_type = !node.inputs.empty() && node.inputs[0] >= 0;
  refusals.push_back({node.op, node.name, has_type ? to_string(graph.values[node.inputs[0]].type) : "", why});
}

ValueId Import::add_sizes(const std::string& name, std::vector<Expr> values, const Shape& shape) {
  NodeAttributes attributes;
  attributes.set("values", values);
  attributes.set("shape", shape);
  const ValueId id = graph.add_node("sizes", {}, attributes, name)[0];
  sizes[id] = std::move(values);
  return id;
}

void Import::hold_to_one(const SourceNode& node) {
  if (!dimensions || open_regions > 0 || !refusals.empty()) return;
  std::vector<Expr> of_node;
  for (const ValueId id : node.inputs) {
    if (id == no_value || is_list(id)) continue;
    const std::vector<Expr>& shape = graph.values[id].type.shape;
    of_node.insert(of_node.end(), shape.begin(), shape.end());
    if (const auto known = sizes.find(id); known != sizes.end())
      of_node.insert(of_node.end(), known->second.begin(), known->second.end());
  }
  if (dimensions->hold_to_one(of_node, place_of(node))) throw BeginAnew();
}

bool Import::attempt(const SourceNode& node, bool is_plain, const std::function<void()>& rule) {
  const size_t node_count = graph.nodes.size(), value_count = graph.values.size();
  const int item_count = items[node.name], random_count = random_nodes;
  // What is there already was right without another equality.
  const auto begin_node_anew = [&] {
    graph.shorten(node_count, value_count);
    sizes.erase(sizes.lower_bound(static_cast<ValueId>(value_count)), sizes.end());
    items[node.name] = item_count;
    random_nodes = random_count;
    if (random_state >= static_cast<ValueId>(value_count)) random_state = no_value;
  };
  while (true) {
    try {
      rule();
      return true;
    } catch (const RefusedNode& refused) {
      hold_to_one(node);
      refuse(node, refused.why);
    } catch (const UnprovenDimensions& unproven) {
      if (dimensions && !(dimensions->is_of_dimensions(unproven.a) && dimensions->is_of_dimensions(unproven.b))) {
        // Of a number of a step, which is none of the model's: each step makes sure of it.
        if (is_plain && refusals.empty() && relay::rely_on(unproven, place_of(node), graph.equalities)) {
          begin_node_anew();
          continue;
        }
        hold_to_one(node);
        refuse(node, std::string("sizes that are not the same in each step of a loop: ") + unproven.message());
        return false;
      }
      using Learned = OpenDimensions::Learned;
      const Learned learned = dimensions ? dimensions->learn(unproven, place_of(node), branch) : Learned::nothing;
      if (learned == Learned::equality && is_plain && open_regions == 0 && refusals.empty()) {
        begin_node_anew();
        // What is of other numbers was found here alone.
        std::erase_if(graph.equalities, [&](const Equality& equal) {
          return dimensions->is_of_dimensions(equal.a) && dimensions->is_of_dimensions(equal.b);
        });
        const std::vector<Equality>& own = dimensions->equalities();
        graph.equalities.insert(graph.equalities.begin(), own.begin(), own.end());
        continue;
      }
      if (learned != Learned::nothing) throw BeginAnew();
      hold_to_one(node);
      if (refusals.empty()) throw;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported || error.code() == ErrorCode::shape) hold_to_one(node);
      // What follows from a refused node's guessed types is not the model's mistake.
      if (error.code() != ErrorCode::unsupported && (error.code() != ErrorCode::shape || refusals.empty())) throw;
      if (error.code() == ErrorCode::unsupported) refuse(node, error.what());
    }
    return false;
  }
}

void Builder::refuse(const std::string& why) const {
  throw RefusedNode{why};
}

ValueId Builder::input_or_list(size_t i) const {
  if (!has_input(i)) malformed(place() + ": input " + std::to_string(i) + " is missing");
  return node_.inputs[i];
}

ValueId Builder::input(size_t i) const {
  const ValueId id = input_or_list(i);
  if (is_list(id)) malformed(place() + ": input " + std::to_string(i) + " is no tensor");
  return id;
}

std::vector<ValueId> Builder::inputs() const {
  std::vector<ValueId> ids;
  for (size_t i = 0; i < input_count(); ++i) ids.push_back(optional_input(i));
  return ids;
}

ValueId Builder::sequence(size_t i) const {
  const ValueId id = input_or_list(i);
  if (!has_sequence(i)) malformed(place() + ": input " + std::to_string(i) + " is no sequence");
  return id;
}

const TensorType& Builder::type(ValueId id) const {
  check(id >= 0, "import: the type of an absent input");
  return graph_.values[id].type;
}

std::vector<int64_t> Builder::constant_ints(size_t i) const {
  const NDArray* value = constant(input(i));
  if (!value) {
    const auto elements = known_elements(input(i));
    if (!elements) refuse("input " + std::to_string(i) + " must be known at import, but it is computed by the model");
    if (elements->empty()) return {};
    const auto open = std::find_if(elements->begin(), elements->end(), [](const Expr& e) { return !as_int(e); });
    refuse("input " + std::to_string(i) +
           " depends on open dimensions, which this use of the operator cannot do; fix `" + to_text(*open) +
           "` with shapes=");
  }
  if (!value->dtype().is_integer() || value->rank() > 1) {
    malformed(place() + ": input " + std::to_string(i) + " must be a list of integers, not " +
              to_string(type_of(*value)));
  }
  std::vector<int64_t> result;
  for (int64_t k = 0; k < value->size(); ++k) result.push_back(value->get_int(k));
  return result;
}

Fraction Builder::known_fraction(size_t i) const {
  const auto elements = known_elements(input(i));
  const auto fraction = elements && elements->size() == 1 ? as_fraction(elements->front()) : std::nullopt;
  if (!fraction) refuse("input " + std::to_string(i) + " must be known at import, but it is computed by the model");
  return *fraction;
}

std::optional<std::vector<Expr>> Builder::known_elements(ValueId id) const {
  constexpr int64_t most_elements = 64;
  if (id == no_value) return std::nullopt;
  if (const auto shape = static_shape(type(id)); shape && element_count(*shape) == 0) return std::vector<Expr>();
  if (const NDArray* value = constant(id)) {
    if (value->size() > most_elements) return std::nullopt;
    std::vector<Expr> elements;
    for (int64_t k = 0; k < value->size(); ++k) {
      elements.push_back(value->dtype().is_float() ? const_of(value->dtype(), value->get_float(k))
                                                   : int_imm(value->dtype(), value->get_int(k)));
    }
    return elements;
  }
  const auto found = import_.sizes.find(id);
  return found == import_.sizes.end() ? std::nullopt : std::optional(found->second);
}

Expr Builder::known_element(ValueId id, bool is_truth) const {
  const auto elements = known_elements(id);
  const DType dtype = type(id).dtype;
  const bool fits = is_truth ? dtype.is_bool() : dtype.is_integer() && !dtype.is_bool();
  return fits && elements && elements->size() == 1 ? elements->front() : Expr();
}

void Builder::assume_equal(const Expr& a, const Expr& b) const {
  throw UnprovenDimensions(a, UnprovenDimensions::Relation::equal, b,
                           "`" + to_text(a) + "` may be `" + to_text(b) + "`");
}

std::vector<Expr> Builder::known_dims(size_t i) const {
  if (!constant(input(i)) && type(input(i)).rank() <= 1 && type(input(i)).dtype.is_integer()) {
    if (const auto elements = known_elements(input(i))) return *elements;
  }
  const std::vector<int64_t> ints = constant_ints(i);
  return {ints.begin(), ints.end()};
}

// What becomes of numbers that depend on open dimensions, where that follows from the operator.
std::optional<FoldedDims> Builder::fold_sizes(const OpDef& op, const std::vector<ValueId>& inputs,
                                              const NodeAttributes& attributes) const {
  if (import_.sizes.empty()) return std::nullopt;
  std::vector<TensorType> types;
  std::vector<std::vector<Expr>> elements;
  for (const ValueId id : inputs) {
    auto known = known_elements(id);
    if (!known) return std::nullopt;
    elements.push_back(std::move(*known));
    types.push_back(type(id));
  }
  auto folded = fold_dims(op, attributes, types, elements);
  return folded && !folded->elements.empty() ? folded : std::nullopt;
}

Expr Builder::number(const std::string& what, DimensionBounds bounds) {
  check(import_.dimensions != nullptr, "import: numbers that a run reads are dimensions");
  return import_.dimensions->number(node_.name + "." + what + import_.times, bounds);
}

Expr Builder::new_number(DimensionBounds bounds) {
  return number(std::to_string(import_.items[node_.name]++), bounds);
}

Expr Builder::emit_item(ValueId x, DimensionBounds bounds) {
  if (const Expr known = known_number(x); known.is_defined()) return as_int(known) ? Expr(*as_int(known)) : known;
  if (!type(x).dtype.is_integer() || !is_const_int(product_of(type(x).shape), 1))
    malformed(place() + ": a size is one integer, not " + to_string(type(x)));
  const Expr number = new_number(bounds);
  const ValueId wide = type(x).dtype == i32 ? x : emit_cast(*this, x, i64);
  NodeAttributes attributes;
  attributes.set("number", std::vector<Expr>{number});
  graph_.add_node("item", {wide}, attributes, node_.name);
  return number;
}

void Builder::emit_required(ValueId x, int64_t number) {
  graph_.add_node("item", {x}, attributes_of({{"number", std::vector<Expr>{Expr(number)}}}), node_.name);
}

void Builder::rely_on_equal(const Expr& a, const Expr& b) {
  const OpenDimensions* dimensions = import_.dimensions;
  if (dimensions && dimensions->is_of_dimensions(a) && dimensions->is_of_dimensions(b)) return require_equal(a, b, "");
  relay::rely_on(a, b, place_of(node_), graph_.equalities);
}

int Builder::count_items(ValueId list) {
  const auto shape = static_shape(type(list));
  if (!shape || shape->size() > 1) refuse("as many sizes as a run says, in " + to_string(type(list)));
  const int64_t count = element_count(*shape);
  if (count > most_items) {
    throw Error(ErrorCode::limit, op() + ": a list of " + std::to_string(count) + " sizes or axes; the limit is " +
                                      std::to_string(most_items));
  }
  return static_cast<int>(count);
}

std::vector<Expr> Builder::emit_items(ValueId x, DimensionBounds bounds) {
  if (const auto elements = known_elements(x); elements && type(x).rank() <= 1 && type(x).dtype.is_integer()) {
    std::vector<Expr> dims;
    for (const Expr& element : *elements) dims.push_back(as_int(element) ? Expr(*as_int(element)) : element);
    return dims;
  }
  const int count = count_items(x);
  if (type(x).rank() == 0) return {emit_item(x, bounds)};
  std::vector<Expr> dims;
  for (int i = 0; i < count; ++i) dims.push_back(emit_item(emit_pick(*this, x, 0, i), bounds));
  return dims;
}

ValueId Builder::emit_sizes(std::vector<Expr> values, const Shape& shape) {
  if (all_known(values)) {
    NodeAttributes attributes;
    attributes.set("values", std::move(values));
    attributes.set("shape", shape);
    return emit("sizes", {}, attributes);
  }
  return import_.add_sizes(node_.name, std::move(values), shape);
}

// The node, or its results if they are known and small.
std::vector<ValueId> Builder::emit_all(const std::string& op_name, std::vector<ValueId> inputs,
                                       NodeAttributes attributes) {
  const OpDef* op = find_op(op_name);
  if (!op) internal_error("import: no relay operator is called `" + op_name + "`");
  int64_t elements = 0;
  bool is_known = !attributes.are_open();
  std::vector<NDArray> arrays;
  for (const ValueId id : inputs) {
    if (id != no_value && !graph_.is_constant(id)) is_known = false;
    if (!is_known) break;
    arrays.push_back(id == no_value ? NDArray() : *graph_.values[id].constant);
    if (arrays.back().is_defined()) elements += arrays.back().size();
  }
  if (elements > max_folded_elements(op->kind)) is_known = false;
  if (!is_known) {
    const auto sizes = fold_sizes(*op, inputs, attributes);
    if (sizes && sizes->type.dtype == i64) return {emit_sizes(sizes->elements, *static_shape(sizes->type))};
    const auto results = graph_.add_node(op_name, inputs, attributes, node_.name);
    if (sizes) import_.sizes[results[0]] = sizes->elements;
    return results;
  }
  const auto results = graph_.add_node(op_name, inputs, attributes, node_.name);
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

}  // namespace tw::frontends
