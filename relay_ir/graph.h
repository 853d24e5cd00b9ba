// relay_ir: a model as a functional graph.
//
// A Graph is a list of nodes in topological order over values in single assignment form.  Each value has a type whose
// dimensions are integer expressions (tensor_ir), a static one merely a constant.  Values are inputs, constants, or
// results of a node.  Every node names a row of the operator list (op.h).
//
// Nodes of control flow have regions: graphs of their own (ops/control.cpp).  What a region uses of outside are inputs
// of its node, and by position its own; constants it has itself.  Its symbols are those around it and perhaps one more.
//
// Symbols are sizes that come with the inputs.  An `item` (ops/control.cpp) reads another one in the run: what comes
// after it may have it in its types and attributes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "runtime/ndarray.h"
#include "runtime/plan/list_info.h"
#include "schedule/decisions.h"
#include "tensor_ir/ir.h"
#include "tensor_ir/match.h"

namespace tw::relay {

struct OpDef;

// An operator: itself, or one of the list by its name.
class OpRef {
 public:
  OpRef(const OpDef& op) : op_(&op) {}
  OpRef(std::string_view name);
  OpRef(const std::string& name) : OpRef(std::string_view(name)) {}
  OpRef(const char* name) : OpRef(std::string_view(name)) {}
  const OpDef& operator*() const { return *op_; }

 private:
  const OpDef* op_;
};

struct TensorType {
  DType dtype = f32;
  std::vector<Expr> shape;
  int rank() const { return static_cast<int>(shape.size()); }
};
bool is_same_shape(const std::vector<Expr>& a, const std::vector<Expr>& b);
bool operator==(const TensorType& a, const TensorType& b);
std::string to_string(const TensorType& type);              // f32[1, 64, n, 56]
std::optional<Shape> static_shape(const TensorType& type);  // nothing when a dimension is symbolic
// The shape of a typical run, which is the smallest unless dimensions say another: for decisions about layouts and
// costs, which have to be made for all runs at once.
Shape typical_shape(const TensorType& type);
int64_t typical_value(const Expr& size);
TensorType type_of(const NDArray& array);

using ValueId = int;
inline constexpr ValueId no_value = -1;  // an optional input that is absent

using AttributeValue =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>, std::vector<Expr>>;

class NodeAttributes {
 public:
  void set(const std::string& name, AttributeValue value) { values_[name] = std::move(value); }
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  // The attribute, or Error(internal) when it is absent or of another type: op verification comes first.
  int64_t get_int(const std::string& name) const;
  double get_float(const std::string& name) const;
  const std::string& get_string(const std::string& name) const;
  const std::vector<int64_t>& get_ints(const std::string& name) const;
  const std::vector<Expr>& get_dims(const std::string& name) const;  // dimensions, which may be symbolic
  const std::map<std::string, AttributeValue>& all() const { return values_; }
  // Whether a dimension among them is symbolic.
  bool are_open() const;

 private:
  std::map<std::string, AttributeValue> values_;
};

// Sizes of open dimensions of which a run makes sure that they are equal.
struct Equality {
  Expr a, b;                // dimensions of results that are a become b
  std::string demanded_by;  // for people
};

std::string to_string(const Equality& equality);  // "n = m", or "n <= m" of one that says so

struct Graph;

struct Node {
  const OpDef* op = nullptr;
  std::string name;  // for people; unique
  std::vector<ValueId> inputs, outputs;
  NodeAttributes attributes;  // what it means
  Decisions decisions;        // how that is done: of those that the operator leaves open, what was decided
  std::vector<Graph> regions;
};

// Of the nodes that have regions (ops/control.cpp).
bool is_branch(const Node& node);
bool is_loop(const Node& node);
// Of a loop: the value that says whether it has a first step, or no_value; how many values it carries.
ValueId condition_of(const Node& loop);
size_t carried_by(const Node& loop);
const Expr& steps_of(const Node& loop);  // at most
// How many were done: a variable that is known from the loop on, where it says so, or all.
Expr done_by(const Node& loop);
// A size of what a loop carries that each step may change: the first of the carried values whose size along the axis is
// this symbol of the region, and what it is behind the loop.
struct LoopSize {
  Var within;
  Expr behind;
  size_t value = 0;
  size_t axis = 0;
};
// Error(shape): one is the size of nothing that is carried.
std::vector<LoopSize> sizes_of(const Graph& region, const NodeAttributes& loop);
std::vector<LoopSize> sizes_of(const Node& loop);
// …before the first step, and after one in terms of the region's numbers.
const Expr& size_before(const Graph& around, const Node& loop, const LoopSize& size);
const Expr& size_after(const Node& loop, const LoopSize& size);
// The type of a value that a loop carries, with numbers of its region replaced.
TensorType type_with(TensorType type, const Substitution& numbers);
// Of the node that reads a number: what it is from there on, a variable of its own or what it has to be equal to.
bool is_item(const Node& node);
const Expr& number_of(const Node& item);

struct Value {
  std::string name;  // unique
  TensorType type;
  std::optional<NDArray> constant;
  // How it is stored, decided by assign_layout: 0 is row-major; b > 0 is [n, ceil(c / b), …, b], axis 1 in blocks of b
  // with padding in the last.  The type stays logical.
  int64_t channel_block = 0;
};

struct Graph {
  std::string name;
  std::vector<Value> values;  // by ValueId
  std::vector<Node> nodes;    // in topological order
  std::vector<ValueId> inputs, outputs;
  std::vector<std::string> output_names;  // by position: what the model calls its outputs; empty: as their values
  // That some inputs and outputs make up, in their order.
  std::vector<ListInfo> input_lists, output_lists;
  // Whether the last input is what random numbers are made of, u64[2] (RandomState): no caller gives it, runs have it.
  bool has_random_state = false;
  std::vector<Var> symbols;          // symbolic dimensions
  std::vector<Equality> equalities;  // that nodes rely on
  // Whether add_node may add to them, as passes do: what was established once, need not be provable of what a pass has
  // made of it.
  bool may_rely_on_more = false;

  ValueId add_value(std::string name, TensorType type);  // makes the name unique
  ValueId add_constant(std::string name, NDArray value);
  // Appends a node, inferring its result types: Error(shape) that names the node, UnprovenDimensions where it depends
  // on open dimensions and the graph may not rely on more.
  std::vector<ValueId> add_node(OpRef op, std::vector<ValueId> inputs, NodeAttributes attributes = {},
                                std::string name = {}, std::vector<Graph> regions = {});
  size_t inputs_of_caller() const { return inputs.size() - (has_random_state ? 1 : 0); }
  std::string output_name(size_t i) const { return output_names.empty() ? values[outputs[i]].name : output_names[i]; }
  void rename_value(ValueId id, const std::string& name);  // to this name, or to one made unique from it
  // Forgets the last nodes and values: as many are left.
  void shorten(size_t node_count, size_t value_count);
  // Takes over what is relied on around it, and infers its types anew where some of it is new.
  void inherit(const Graph& around);
  const Value& value(ValueId id) const { return values[id]; }
  bool is_constant(ValueId id) const { return id != no_value && values[id].constant.has_value(); }

 private:
  std::string unique_name(std::unordered_set<std::string>& taken, const std::string& wanted);
  std::unordered_set<std::string> value_names_, node_names_;
};

// What the nodes of a region rely on beside what those around it do.
std::vector<Equality> own_equalities(const Graph& region, const Graph& around);

// The graph's symbols, then the numbers that its nodes read: items, loops that say how many steps were done, and
// branches that read one for sizes of their results whichever way they go.
std::vector<Var> variables_of(const Graph& graph);
// Whether the expression has no variables but these.
bool is_made_of(const Expr& e, const std::vector<Var>& variables);
std::vector<Var> numbers_read_by(const Graph& graph, const Node& node);

// Copies a graph value by value and node by node, so that a pass says only what it changes.  Nodes go through add():
// with their inputs replaced by what the old values became.  What cannot be proven of open dimensions there, runs make
// sure of: the copy has these equalities besides.  Its outputs are as large as they were.
class GraphCopy {
 public:
  explicit GraphCopy(const Graph& from);  // copies inputs and symbols
  const Graph& from() const { return from_; }
  Graph& to() { return to_; }
  // What `old` became; a constant is copied on first use.
  ValueId operator[](ValueId old);
  void set(ValueId old, ValueId now) { map_[old] = now; }
  // What the node's inputs became.
  std::vector<ValueId> inputs_of(const Node& node);
  // The node as it was, on these inputs; its results keep their names.
  void copy(const Node& node, std::vector<ValueId> inputs);
  void copy(const Node& node) { copy(node, inputs_of(node)); }
  // Any node in its stead: op, new inputs.  The results get the names of `named_for`'s results as far as these exist.
  // What was decided about `named_for` holds for a node of the same operator.
  std::vector<ValueId> add(const Node& named_for, OpRef op, std::vector<ValueId> inputs, NodeAttributes attributes = {},
                           std::vector<Graph> regions = {});
  // The whole graph: each node as it was, or, where `replacement` gives a value of the new graph, that one for its
  // first result.
  Graph rewrite(const std::function<ValueId(const Node&)>& replacement);
  // The node of the new graph that makes the value, where it is of this operator; null otherwise.
  const Node* made_by(ValueId now, std::string_view op);
  Graph finish();  // maps the outputs

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;   // by old ValueId; -2: nothing yet
  std::vector<int> producer_;  // by new ValueId, of the first noted_ nodes
  size_t noted_ = 0;
};

// Who makes and who uses each value.
struct Uses {
  explicit Uses(const Graph& graph);
  std::vector<int> producer;            // by ValueId: index into nodes, or -1
  std::vector<std::vector<int>> users;  // by ValueId: indices into nodes, each once
  std::vector<bool> is_output;          // by ValueId: of the graph

  // By one node, and no output of the graph.
  bool is_used_once(ValueId id) const { return users[id].size() == 1 && !is_output[id]; }
};

}  // namespace tw::relay
