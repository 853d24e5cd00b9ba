// relay_ir: a model as a functional graph.
//
// A Graph is a list of nodes in topological order over values in single assignment form.  Each value has a type whose
// dimensions are integer expressions (tensor_ir), a static one merely a constant.  Values are inputs, constants, or results
// of a node.  Every node names a row of the operator list (op.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/ndarray.h"
#include "tensor_ir/ir.h"

namespace tw::relay {

struct OpDef;

struct TensorType {
  DType dtype = f32;
  std::vector<Expr> shape;
  int rank() const { return static_cast<int>(shape.size()); }
};
bool operator==(const TensorType& a, const TensorType& b);
std::string to_string(const TensorType& type);                    // f32[1, 64, n, 56]
std::optional<Shape> static_shape(const TensorType& type);        // nothing when a dimension is symbolic
TensorType type_of(const NDArray& array);

using ValueId = int;
inline constexpr ValueId no_value = -1;  // an optional input that is absent

using AttributeValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                                    std::vector<std::string>, NDArray>;

class NodeAttributes {
 public:
  void set(const std::string& name, AttributeValue value) { values_[name] = std::move(value); }
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  // The attribute, or Error(internal) when it is absent or of another type: op verification comes first.
  int64_t get_int(const std::string& name) const;
  double get_float(const std::string& name) const;
  const std::string& get_string(const std::string& name) const;
  const std::vector<int64_t>& get_ints(const std::string& name) const;
  const std::vector<double>& get_floats(const std::string& name) const;
  const NDArray& get_array(const std::string& name) const;
  const std::map<std::string, AttributeValue>& all() const { return values_; }

 private:
  std::map<std::string, AttributeValue> values_;
};

struct Node {
  const OpDef* op = nullptr;
  std::string name;  // for people; unique
  std::vector<ValueId> inputs, outputs;
  NodeAttributes attributes;
};

struct Value {
  std::string name;  // unique
  TensorType type;
  std::optional<NDArray> constant;
};

struct Graph {
  std::string name;
  std::vector<Value> values;  // by ValueId
  std::vector<Node> nodes;    // in topological order
  std::vector<ValueId> inputs, outputs;
  std::vector<Var> symbols;   // symbolic dimensions

  ValueId add_value(std::string name, TensorType type);  // makes the name unique
  ValueId add_constant(std::string name, NDArray value);
  // Appends a node, inferring its result types: Error(shape) that names the node.
  std::vector<ValueId> add_node(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes = {},
                                std::string name = {});
  const Value& value(ValueId id) const { return values[id]; }
  bool is_constant(ValueId id) const { return id != no_value && values[id].constant.has_value(); }
};

// Who makes and who uses each value.
struct Uses {
  explicit Uses(const Graph& graph);
  std::vector<int> producer;            // by ValueId: index into nodes, or -1
  std::vector<std::vector<int>> users;  // by ValueId: indices into nodes, each once
  std::vector<bool> is_output;          // by ValueId: of the graph
};

}  // namespace tw::relay
