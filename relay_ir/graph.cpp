#include "relay_ir/graph.h"

#include <algorithm>

#include "relay_ir/op.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {

bool is_same_shape(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Expr& x, const Expr& y) {
    const auto m = as_int(x), n = as_int(y);
    return m || n ? m == n : is_known_equal(x, y);
  });
}
bool operator==(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && is_same_shape(a.shape, b.shape);
}

std::string to_string(const TensorType& type) {
  std::string text = to_string(type.dtype) + "[";
  for (int i = 0; i < type.rank(); ++i) {
    if (i) text += ", ";
    const auto value = as_int(type.shape[i]);
    text += value ? std::to_string(*value) : to_text(type.shape[i]);
  }
  return text + "]";
}

std::optional<Shape> static_shape(const TensorType& type) {
  Shape shape;
  for (const Expr& dim : type.shape) {
    const auto value = as_int(dim);
    if (!value) return std::nullopt;
    shape.push_back(*value);
  }
  return shape;
}

int64_t typical_value(const Expr& size) {
  Substitution typical;
  for (const Var& var : free_vars(size))
    if (const auto known = typical_size(*var.get())) typical[var] = Expr(*known);
  const auto low = bounds_of(typical.empty() ? size : simplify(substitute(size, typical))).low;
  return std::max<int64_t>(low.value_or(1), as_int(size) ? 0 : 1);
}

Shape typical_shape(const TensorType& type) {
  Shape shape;
  for (const Expr& dim : type.shape) shape.push_back(typical_value(dim));
  return shape;
}

TensorType type_of(const NDArray& array) {
  TensorType type{array.dtype(), {}};
  for (const int64_t dim : array.shape()) type.shape.push_back(Expr(dim));
  return type;
}

// Of min(a, b) = a.
std::string to_string(const Equality& equality) {
  const auto* least = equality.a.as<Binary>();
  if (least && least->op == BinaryOp::min) {
    if (is_known_equal(least->a, equality.b)) return to_text(equality.b) + " <= " + to_text(least->b);
    if (is_known_equal(least->b, equality.b)) return to_text(equality.b) + " <= " + to_text(least->a);
  }
  return to_text(equality.a) + " = " + to_text(equality.b);
}

namespace {

template <class T>
const T& get(const std::map<std::string, AttributeValue>& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) internal_error("relay: attribute `" + name + "` is not set");
  const T* value = std::get_if<T>(&found->second);
  if (!value) internal_error("relay: attribute `" + name + "` has another type");
  return *value;
}

}  // namespace

int64_t NodeAttributes::get_int(const std::string& name) const {
  return get<int64_t>(values_, name);
}
double NodeAttributes::get_float(const std::string& name) const {
  return get<double>(values_, name);
}
const std::string& NodeAttributes::get_string(const std::string& name) const {
  return get<std::string>(values_, name);
}
const std::vector<int64_t>& NodeAttributes::get_ints(const std::string& name) const {
  return get<std::vector<int64_t>>(values_, name);
}
const std::vector<Expr>& NodeAttributes::get_dims(const std::string& name) const {
  return get<std::vector<Expr>>(values_, name);
}

bool NodeAttributes::are_open() const {
  return std::any_of(values_.begin(), values_.end(), [](const auto& attribute) {
    const auto* dims = std::get_if<std::vector<Expr>>(&attribute.second);
    return dims && !std::all_of(dims->begin(), dims->end(), [](const Expr& dim) { return as_int(dim).has_value(); });
  });
}

bool is_branch(const Node& node) {
  return node.regions.size() == 2;
}
bool is_loop(const Node& node) {
  return node.regions.size() == 1;
}
ValueId condition_of(const Node& loop) {
  return loop.inputs.empty() ? no_value : loop.inputs[0];
}
size_t carried_by(const Node& loop) {
  return static_cast<size_t>(loop.attributes.get_int("carried"));
}
const Expr& steps_of(const Node& loop) {
  return loop.attributes.get_dims("steps")[0];
}

Expr done_by(const Node& loop) {
  const std::vector<Expr>& done = loop.attributes.get_dims("done");
  return done.empty() ? simplify(max(steps_of(loop), Expr(0))) : done[0];
}

std::vector<LoopSize> sizes_of(const Graph& region, const NodeAttributes& loop) {
  const std::vector<Expr>& behind = loop.get_dims("sizes");
  const auto carried = static_cast<size_t>(loop.get_int("carried"));
  std::vector<LoopSize> sizes;
  for (size_t k = 0; k < behind.size(); ++k) {
    LoopSize size{region.symbols[region.symbols.size() - 1 - behind.size() + k], behind[k]};
    bool is_found = false;
    for (size_t i = 0; i < carried && !is_found; ++i) {
      const std::vector<Expr>& shape = region.values[region.inputs[i]].type.shape;
      const auto at = std::ranges::find_if(shape, [&](const Expr& dim) { return dim.is_same(size.within); });
      is_found = at != shape.end();
      if (is_found) size.value = i, size.axis = static_cast<size_t>(at - shape.begin());
    }
    if (!is_found)
      throw Error(ErrorCode::shape, "loop: `" + size.within.name() + "` is the size of nothing that it carries");
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<LoopSize> sizes_of(const Node& loop) {
  return sizes_of(loop.regions[0], loop.attributes);
}

const Expr& size_before(const Graph& around, const Node& loop, const LoopSize& size) {
  return around.values[loop.inputs[1 + size.value]].type.shape[size.axis];
}

const Expr& size_after(const Node& loop, const LoopSize& size) {
  const Graph& region = loop.regions[0];
  const size_t first = condition_of(loop) == no_value ? 0 : 1;
  return region.values[region.outputs[first + size.value]].type.shape[size.axis];
}

TensorType type_with(TensorType type, const Substitution& numbers) {
  const auto is_of_them = [&](const Expr& dim) {
    return std::ranges::any_of(numbers, [&](const auto& number) { return uses_var(dim, number.first); });
  };
  for (Expr& dim : type.shape)
    if (is_of_them(dim)) dim = simplify(substitute(dim, numbers));
  return type;
}

bool is_item(const Node& node) {
  return node.op->reads_number;
}
const Expr& number_of(const Node& item) {
  return item.attributes.get_dims("number")[0];
}

std::vector<Var> numbers_read_by(const Graph& graph, const Node& node) {
  if (is_item(node) && number_of(node).kind() == NodeKind::Var) return {Var::of(number_of(node))};
  std::vector<Var> numbers;
  if (is_loop(node)) {
    for (const Expr& done : node.attributes.get_dims("done")) numbers.push_back(Var::of(done));
    for (const Expr& size : node.attributes.get_dims("sizes"))
      if (size.kind() == NodeKind::Var) numbers.push_back(Var::of(size));
  }
  if (!is_branch(node)) return numbers;
  for (const ValueId id : node.outputs) {
    for (const Expr& dim : graph.values[id].type.shape) {
      const auto vars = free_vars(dim);
      numbers.insert(numbers.end(), vars.begin(), vars.end());
    }
  }
  std::erase_if(numbers, [&](const Var& var) {
    return std::any_of(node.regions.begin(), node.regions.end(), [&](const Graph& region) {
      return std::none_of(region.nodes.begin(), region.nodes.end(), [&](const Node& inner) {
        const std::vector<Var> read = numbers_read_by(region, inner);
        return std::find(read.begin(), read.end(), var) != read.end();
      });
    });
  });
  return numbers;
}

bool is_made_of(const Expr& e, const std::vector<Var>& variables) {
  const std::vector<Var> used = free_vars(e);
  return std::all_of(used.begin(), used.end(), [&](const Var& var) {
    return std::find(variables.begin(), variables.end(), var) != variables.end();
  });
}

std::vector<Var> variables_of(const Graph& graph) {
  std::vector<Var> variables = graph.symbols;
  for (const Node& node : graph.nodes) {
    for (const Var& number : numbers_read_by(graph, node))
      if (std::find(variables.begin(), variables.end(), number) == variables.end()) variables.push_back(number);
  }
  return variables;
}

std::string Graph::unique_name(std::unordered_set<std::string>& taken, const std::string& wanted) {
  std::string candidate = wanted.empty() ? "v" : wanted;
  const std::string stem = candidate;
  // Numbers go on from the count of names, so that many values with one stem do not each try all numbers.
  for (size_t n = taken.insert(candidate).second ? 0 : 1; n; ++n) {
    candidate = stem + "_" + std::to_string(n < 4 ? n : taken.size() + n);
    if (taken.insert(candidate).second) break;
  }
  return candidate;
}

ValueId Graph::add_value(std::string name, TensorType type) {
  values.push_back({unique_name(value_names_, name), std::move(type), std::nullopt});
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::add_constant(std::string name, NDArray value) {
  const ValueId id = add_value(std::move(name), type_of(value));
  values[id].constant = std::move(value);
  return id;
}

void Graph::rename_value(ValueId id, const std::string& name) {
  if (values[id].name == name) return;
  value_names_.erase(values[id].name);
  values[id].name = unique_name(value_names_, name);
}

OpRef::OpRef(std::string_view name) : op_(find_op(name)) {
  if (!op_) internal_error("relay: no operator is called `" + std::string(name) + "`");
}

std::vector<ValueId> Graph::add_node(OpRef op, std::vector<ValueId> inputs, NodeAttributes attributes, std::string name,
                                     std::vector<Graph> regions) {
  Node node;
  node.op = &*op;
  while (!inputs.empty() && inputs.back() == no_value) inputs.pop_back();
  std::vector<TensorType> types;
  std::vector<bool> present;
  std::vector<const NDArray*> constants;
  for (const ValueId id : inputs) {
    check(id == no_value || (id >= 0 && id < static_cast<ValueId>(values.size())), "relay: inputs are values");
    present.push_back(id != no_value);
    types.push_back(id == no_value ? TensorType{f32, {}} : values[id].type);
    constants.push_back(is_constant(id) ? &*values[id].constant : nullptr);
  }
  node.name = unique_name(node_names_, name.empty() ? node.op->name : name);
  std::vector<TensorType> results;
  for (bool is_known = false; !is_known;) {
    for (Graph& region : regions)
      if (may_rely_on_more) region.inherit(*this);
    try {
      results = infer_types(*op, types, present, constants, attributes, equalities, regions);
      is_known = true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::shape) throw;
      const auto* unproven = dynamic_cast<const UnprovenDimensions*>(&error);
      if (unproven && may_rely_on_more && rely_on(*unproven, "node `" + node.name + "`", equalities)) continue;
      node_names_.erase(node.name);
      const std::string text = "node `" + node.name + "`: " + error.message();
      if (unproven) throw UnprovenDimensions(unproven->a, unproven->relation, unproven->b, text);
      throw Error(ErrorCode::shape, text);
    }
  }
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.regions = std::move(regions);
  for (size_t i = 0; i < results.size(); ++i) {
    node.outputs.push_back(add_value(i == 0 ? node.name : node.name + "." + std::to_string(i), std::move(results[i])));
  }
  nodes.push_back(std::move(node));
  return nodes.back().outputs;
}

void Graph::shorten(size_t node_count, size_t value_count) {
  for (; nodes.size() > node_count; nodes.pop_back()) node_names_.erase(nodes.back().name);
  for (; values.size() > value_count; values.pop_back()) value_names_.erase(values.back().name);
}

void Graph::inherit(const Graph& around) {
  if (own_equalities(around, *this).empty()) return;
  std::vector<Equality> all = around.equalities;
  for (Equality& own : own_equalities(*this, around)) all.push_back(std::move(own));
  equalities = std::move(all);
  *this = GraphCopy(Graph(*this)).rewrite([](const Node&) { return no_value; });
}

std::vector<Equality> own_equalities(const Graph& region, const Graph& around) {
  std::vector<Equality> own;
  for (const Equality& equal : region.equalities) {
    const bool is_around = std::any_of(around.equalities.begin(), around.equalities.end(), [&](const Equality& other) {
      return structural_equal(equal.a, other.a) && structural_equal(equal.b, other.b);
    });
    if (!is_around) own.push_back(equal);
  }
  return own;
}

Uses::Uses(const Graph& graph)
    : producer(graph.values.size(), -1), users(graph.values.size()), is_output(graph.values.size(), false) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].outputs) producer[id] = static_cast<int>(i);
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id == no_value) continue;
      if (users[id].empty() || users[id].back() != static_cast<int>(i)) users[id].push_back(static_cast<int>(i));
    }
  }
  for (const ValueId id : graph.outputs) is_output[id] = true;
}

GraphCopy::GraphCopy(const Graph& from) : from_(from), map_(from.values.size(), -2) {
  to_.name = from.name;
  to_.symbols = from.symbols;
  to_.equalities = from.equalities;
  to_.may_rely_on_more = true;
  to_.output_names = from.output_names;
  to_.input_lists = from.input_lists;
  to_.has_random_state = from.has_random_state;
  to_.output_lists = from.output_lists;
  for (const ValueId id : from.inputs) {
    map_[id] = to_.add_value(from.values[id].name, from.values[id].type);
    to_.values[map_[id]].channel_block = from.values[id].channel_block;
    to_.inputs.push_back(map_[id]);
  }
}

ValueId GraphCopy::operator[](ValueId old) {
  if (old == no_value) return no_value;
  if (map_[old] == -2) {
    check(from_.is_constant(old), "GraphCopy: a value is copied before it is used");
    map_[old] = to_.add_constant(from_.values[old].name, *from_.values[old].constant);
    to_.values[map_[old]].channel_block = from_.values[old].channel_block;
  }
  return map_[old];
}

std::vector<ValueId> GraphCopy::add(const Node& named_for, OpRef op, std::vector<ValueId> inputs,
                                    NodeAttributes attributes, std::vector<Graph> regions) {
  const auto results = to_.add_node(op, std::move(inputs), std::move(attributes), named_for.name, std::move(regions));
  if (to_.nodes.back().op == named_for.op) to_.nodes.back().decisions = named_for.decisions;
  for (size_t i = 0; i < results.size() && i < named_for.outputs.size(); ++i) {
    to_.rename_value(results[i], from_.values[named_for.outputs[i]].name);
  }
  return results;
}

std::vector<ValueId> GraphCopy::inputs_of(const Node& node) {
  std::vector<ValueId> inputs;
  for (const ValueId id : node.inputs) inputs.push_back((*this)[id]);
  return inputs;
}

void GraphCopy::copy(const Node& node, std::vector<ValueId> inputs) {
  const auto results = add(node, *node.op, std::move(inputs), node.attributes, node.regions);
  for (size_t i = 0; i < results.size(); ++i) {
    map_[node.outputs[i]] = results[i];
    to_.values[results[i]].channel_block = from_.values[node.outputs[i]].channel_block;
  }
}

Graph GraphCopy::rewrite(const std::function<ValueId(const Node&)>& replacement) {
  for (const Node& node : from_.nodes) {
    if (const ValueId now = replacement(node); now != no_value) {
      set(node.outputs[0], now);
    } else {
      copy(node);
    }
  }
  return finish();
}

const Node* GraphCopy::made_by(ValueId now, std::string_view op) {
  producer_.resize(to_.values.size(), -1);
  for (; noted_ < to_.nodes.size(); ++noted_)
    for (const ValueId id : to_.nodes[noted_].outputs) producer_[id] = static_cast<int>(noted_);
  if (now == no_value || producer_[now] < 0) return nullptr;
  const Node& node = to_.nodes[producer_[now]];
  return node.op->name == op ? &node : nullptr;
}

Graph GraphCopy::finish() {
  for (const ValueId id : from_.outputs) {
    to_.outputs.push_back((*this)[id]);
    const std::vector<Expr>&was = from_.values[id].type.shape, &is = to_.values[to_.outputs.back()].type.shape;
    check(was.size() == is.size(), "GraphCopy: an output keeps its rank");
    for (size_t d = 0; d < was.size(); ++d) {
      try {
        require_equal(is[d], was[d], to_.equalities, "output `" + from_.values[id].name + "`");
      } catch (const UnprovenDimensions& unproven) {
        if (!rely_on(is[d], was[d], "output `" + from_.values[id].name + "`", to_.equalities)) throw;
      }
    }
  }
  to_.may_rely_on_more = false;
  // What came before an equality has the types of all that it says, too.
  if (to_.equalities.size() > from_.equalities.size())
    return GraphCopy(to_).rewrite([](const Node&) { return no_value; });
  return std::move(to_);
}

}  // namespace tw::relay
