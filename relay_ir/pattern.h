// Patterns: what a piece of a graph looks like, written as an expression.
//
//   const Pattern x = any(), half = number(0.5);
//   const Pattern silu = x * op("sigmoid", {x});
//
// A Pattern is an identity: where it stands several times, it is the same value each time (x above), so that patterns
// are DAGs as graphs are.  What it stood for is asked of the Match by the Pattern itself: match[x].  Operands of add,
// multiply, minimum and maximum are found in either order.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "relay_ir/op.h"

namespace tw::relay {

class Pattern {
 public:
  struct Node;
  explicit Pattern(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  const Node& operator*() const { return *node_; }
  const Node* operator->() const { return node_.get(); }
  const Node* get() const { return node_.get(); }

 private:
  std::shared_ptr<const Node> node_;
};

struct Pattern::Node {
  enum class Kind { any, number, op, either } kind = Kind::any;
  std::optional<double> number = {};   // of Kind::number; nothing: whatever number
  std::string op = {};                 // of Kind::op
  std::vector<Pattern> children = {};  // inputs of op, in order; alternatives of either, the first that fits
  std::function<bool(const relay::Node&)> condition = {};  // on op's attributes
};

// Any value.
Pattern any();
// A constant all of whose elements are one number; or this one, to the precision of its element type.
Pattern number();
Pattern number(double value);
// The first result of an operator on exactly these inputs.
Pattern op(std::string name, std::vector<Pattern> inputs, std::function<bool(const Node&)> condition = {});
Pattern either(std::vector<Pattern> alternatives);
Pattern maybe(const std::string& op, const Pattern& x);  // op(x), or x itself

Pattern operator+(const Pattern& a, const Pattern& b);
Pattern operator-(const Pattern& a, const Pattern& b);
Pattern operator*(const Pattern& a, const Pattern& b);
Pattern operator/(const Pattern& a, const Pattern& b);
// x * factor, or x / (1 / factor).
Pattern scaled(const Pattern& x, double factor);

class Match {
 public:
  // no_value: the pattern stands in an alternative that was not taken.
  ValueId operator[](const Pattern& pattern) const;
  bool has(const Pattern& pattern) const { return values_.count(pattern.get()) != 0; }

 private:
  friend class Matcher;
  std::map<const Pattern::Node*, ValueId> values_;
  std::vector<int> nodes_;  // of the graph: those that operators of the pattern matched
};

// The pattern at this value, if nothing outside of it uses what it computes on the way: replacing it then leaves no
// work behind that was done already.
std::optional<Match> find_match(const Graph& graph, const Uses& uses, const Pattern& pattern, ValueId value);

// The node that makes the value, where it is of this operator; null otherwise.
const Node* made_by(const Graph& graph, const Uses& uses, ValueId value, std::string_view op);
// …where one node alone uses it; null otherwise.
const Node* made_for_one(const Graph& graph, const Uses& uses, ValueId value);

// What a pass does about nodes, a row an operator.
template <class Rule>
class RulesByOp {
 public:
  RulesByOp(std::initializer_list<typename std::map<std::string, Rule>::value_type> rows) : rows_(rows) {}
  // Null: there is none.
  const Rule* find(const Node& node) const {
    const auto found = rows_.find(node.op->name);
    return found == rows_.end() ? nullptr : &found->second;
  }

 private:
  const std::map<std::string, Rule> rows_;
};

// The number that all elements of a constant are; nothing for constants of more than 4,096 elements.
std::optional<double> uniform_number(const Graph& graph, ValueId id);

}  // namespace tw::relay
