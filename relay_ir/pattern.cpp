#include "relay_ir/pattern.h"

#include <algorithm>
#include <cmath>

#include "relay_ir/op.h"

namespace tw::relay {
namespace {

Pattern make(Pattern::Node node) {
  return Pattern(std::make_shared<const Pattern::Node>(std::move(node)));
}

bool is_commutative(const std::string& op) {
  return op == "add" || op == "multiply" || op == "minimum" || op == "maximum";
}

// Two units in the last place of the type in which the constant is stored: exporters round 1/√2 in different ways.
bool is_near(double value, double wanted, DType dtype) {
  if (!dtype.is_float()) return value == wanted;
  const double precision = dtype == f64 ? 0x1p-51 : dtype == f32 ? 0x1p-22 : dtype == f16 ? 0x1p-9 : 0x1p-6;
  return std::abs(value - wanted) <= precision * std::abs(wanted);
}

}  // namespace

using NodeKind = Pattern::Node::Kind;

Pattern any() {
  return make({});
}
Pattern number() {
  return make({.kind = NodeKind::number});
}
Pattern number(double value) {
  return make({.kind = NodeKind::number, .number = value});
}
Pattern op(std::string name, std::vector<Pattern> inputs, std::function<bool(const Node&)> condition) {
  return make(
      {.kind = NodeKind::op, .op = std::move(name), .children = std::move(inputs), .condition = std::move(condition)});
}
Pattern either(std::vector<Pattern> alternatives) {
  return make({.kind = NodeKind::either, .children = std::move(alternatives)});
}
Pattern maybe(const std::string& name, const Pattern& x) {
  return either({op(name, {x}), x});
}
Pattern operator+(const Pattern& a, const Pattern& b) {
  return op("add", {a, b});
}
Pattern operator-(const Pattern& a, const Pattern& b) {
  return op("subtract", {a, b});
}
Pattern operator*(const Pattern& a, const Pattern& b) {
  return op("multiply", {a, b});
}
Pattern operator/(const Pattern& a, const Pattern& b) {
  return op("divide", {a, b});
}
Pattern scaled(const Pattern& x, double factor) {
  return either({x * number(factor), x / number(1 / factor)});
}

ValueId Match::operator[](const Pattern& pattern) const {
  const auto found = values_.find(pattern.get());
  return found == values_.end() ? no_value : found->second;
}

// Depth first with backtracking: `then` is the rest of the match, and a choice stands only if the rest succeeds.
class Matcher {
 public:
  Matcher(const Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {}

  std::optional<Match> run(const Pattern& pattern, ValueId value) {
    if (!match(pattern, value, [&] { return is_closed(value); })) return std::nullopt;
    return match_;
  }

 private:
  using Then = std::function<bool()>;

  bool match(const Pattern& pattern, ValueId value, const Then& then) {
    if (value == no_value) return false;
    if (const auto found = match_.values_.find(pattern.get()); found != match_.values_.end()) {
      return found->second == value && then();
    }
    match_.values_[pattern.get()] = value;
    const bool is_match = match_new(*pattern, value, then);
    if (!is_match) match_.values_.erase(pattern.get());
    return is_match;
  }

  bool match_new(const Pattern::Node& pattern, ValueId value, const Then& then) {
    switch (pattern.kind) {
      case NodeKind::any:
        return then();
      case NodeKind::number: {
        const auto number = uniform_number(graph_, value);
        return number && (!pattern.number || is_near(*number, *pattern.number, graph_.values[value].type.dtype)) &&
               then();
      }
      case NodeKind::either:
        return std::any_of(pattern.children.begin(), pattern.children.end(),
                           [&](const Pattern& choice) { return match(choice, value, then); });
      case NodeKind::op:
        return match_op(pattern, value, then);
    }
    return false;
  }

  bool match_op(const Pattern::Node& pattern, ValueId value, const Then& then) {
    const int index = uses_.producer[value];
    if (index < 0) return false;
    const Node& node = graph_.nodes[index];
    if (node.op->name != pattern.op || node.outputs[0] != value || node.inputs.size() != pattern.children.size() ||
        (pattern.condition && !pattern.condition(node))) {
      return false;
    }
    match_.nodes_.push_back(index);
    if (match_inputs(pattern.children, node.inputs, 0, then)) return true;
    if (is_commutative(pattern.op) && match_inputs(pattern.children, {node.inputs[1], node.inputs[0]}, 0, then)) {
      return true;
    }
    match_.nodes_.pop_back();
    return false;
  }

  bool match_inputs(const std::vector<Pattern>& patterns, const std::vector<ValueId>& values, size_t from,
                    const Then& then) {
    if (from == patterns.size()) return then();
    return match(patterns[from], values[from], [&] { return match_inputs(patterns, values, from + 1, then); });
  }

  bool is_closed(ValueId result) const {
    const auto is_inside = [&](int node) {
      return std::find(match_.nodes_.begin(), match_.nodes_.end(), node) != match_.nodes_.end();
    };
    for (const int index : match_.nodes_) {
      for (const ValueId id : graph_.nodes[index].outputs) {
        if (id == result) continue;
        if (uses_.is_output[id] || !std::all_of(uses_.users[id].begin(), uses_.users[id].end(), is_inside))
          return false;
      }
    }
    return true;
  }

  const Graph& graph_;
  const Uses& uses_;
  Match match_;
};

std::optional<Match> find_match(const Graph& graph, const Uses& uses, const Pattern& pattern, ValueId value) {
  return Matcher(graph, uses).run(pattern, value);
}

const Node* made_by(const Graph& graph, const Uses& uses, ValueId value, std::string_view op) {
  if (value == no_value || uses.producer[value] < 0) return nullptr;
  const Node& node = graph.nodes[uses.producer[value]];
  return node.op->name == op ? &node : nullptr;
}

const Node* made_for_one(const Graph& graph, const Uses& uses, ValueId value) {
  const int producer = uses.producer[value];
  return producer >= 0 && uses.is_used_once(value) ? &graph.nodes[producer] : nullptr;
}

std::optional<double> uniform_number(const Graph& graph, ValueId id) {
  if (!graph.is_constant(id)) return std::nullopt;
  const NDArray& array = *graph.values[id].constant;
  if (array.size() == 0 || array.size() > 4096) return std::nullopt;
  const auto at = [&](int64_t i) {
    return array.dtype().is_float() ? array.get_float(i) : static_cast<double>(array.get_int(i));
  };
  const double first = at(0);
  for (int64_t i = 1; i < array.size(); ++i) {
    if (at(i) != first) return std::nullopt;
  }
  return first;
}

}  // namespace tw::relay
