// Operators.  An operator is one value in one file of ops/: types and attributes, shape rule, mathematics as a tensor
// expression, and examples.  The docs, Python, the numeric tests and the fuzzer walk the one list (families.def).
//
// Operators are few and orthogonal; the many of a model's format become one or more of these (frontends/).
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "relay_ir/graph.h"
#include "relay_ir/op_facts.h"
#include "tensor_ir/te.h"

namespace tw::relay {

// What fusion and scheduling may assume of an operator.
//   elementwise   out[i] = f(in[i], …), all inputs of the output's shape or broadcast to it (numpy rules)
//   injective     each output element reads one element of each input, elsewhere (transpose, slice, concat, gather …)
//   view          an injective whose result has the same bytes in the same order (reshape, flatten, squeeze …)
//   reduction     over some axes (sum, max, arg max, softmax's parts …)
//   contraction   multiply-accumulate: matmul, convolution
//   composite     several stages: softmax, layer_norm, attention …
//   opaque        loops that are not scheduled (scan, scatter, sort); never fused
enum class OpKind { elementwise, injective, view, reduction, contraction, composite, opaque };

// One use of an operator, as its functions see it.
struct OpCall {
  const OpDef& op;
  const NodeAttributes& attributes;  // complete: defaults are filled in
  std::vector<TensorType> inputs;    // of absent optional inputs: rank 0, and has_input(i) is false
  std::vector<bool> present;
  std::vector<const NDArray*> constants;  // known values of inputs, or null
  std::vector<TensorType> outputs;        // after infer
  Decisions decisions = {};
  std::span<const Equality> equalities = {};  // of open dimensions
  std::span<const Graph> regions = {};

  bool has_input(size_t i) const { return i < present.size() && present[i]; }
  // Error(shape) with the operator's name, the input types and `message`.
  [[noreturn]] void fail(const std::string& message) const;
  void require(bool holds, const std::string& message) const {
    if (!holds) fail(message);
  }
  // As the function below.
  void require_equal(const Expr& a, const Expr& b, const std::string& message) const;
  void require_at_most(const Expr& a, const Expr& b, const std::string& message) const;
  std::string text() const;  // "add(f32[2], f32[n])"
};

// A node relies on it, and it depends on open dimensions whether it holds: a frontend learns from it what the model
// demands of its inputs (frontends/open_dimensions.h).
class UnprovenDimensions : public Error {
 public:
  enum class Relation { equal, at_most };  // of a and b
  UnprovenDimensions(Expr a, Relation relation, Expr b, const std::string& message);
  Expr a, b;
  Relation relation;
};
// UnprovenDimensions where both may differ, Error(shape) where they do; `where` begins the message.
void require_equal(const Expr& a, const Expr& b, std::span<const Equality> known, const std::string& where);
// One expression for what is equal, so that what is computed together has the same extents.
Expr as_known_equal(const Expr& dim, std::span<const Equality> known);
// From here on runs make sure that `a` is `b`, which is what both are called.  False: it cannot be, or is known.
bool rely_on(const Expr& a, const Expr& b, const std::string& demanded_by, std::vector<Equality>& equalities);
bool rely_on(const UnprovenDimensions& unproven, const std::string& demanded_by, std::vector<Equality>& equalities);

struct AttributeDef {
  std::string name;
  AttributeValue default_value;  // its type is the attribute's type
  bool is_required = false;
  std::string doc;
  bool is_number = false;  // of dimensions: it may be a variable that is known from the node on
};

// What passes may decide about a node: how it is computed, not what.
struct DecisionDef {
  std::string name;
  std::string doc;
};

// An input generator for tests: `inputs` drawn at random from a seed within ranges that suit the operator.
struct OpExample {
  std::vector<TensorType> inputs;
  NodeAttributes attributes = {};
  std::vector<NDArray> constant_inputs = {};  // by position; undefined arrays are drawn at random
  double low = -2, high = 2;                  // range of random floats
};

struct OpDef {
  std::string name;
  OpKind kind = OpKind::elementwise;
  std::string doc;
  std::vector<std::string> input_names;
  int optional_inputs = 0;        // so many of the last may be absent
  bool takes_any_number = false;  // one input or more, which share the one name
  int regions = 0;                // of control flow, which takes any number of inputs, none too
  bool reads_number = false;      // an item
  bool is_demand = false;         // an item that has to be as it says
  bool is_on_host = false;        // a function of the host computes it
  bool states_shapes = false;     // its attributes say which shapes its inputs have: it is not for others
  bool takes_narrow = false;      // narrow types, too: it moves elements without a look at them, or converts them
  std::vector<AttributeDef> attributes;
  std::vector<DecisionDef> decisions = {};
  OpFacts facts{};
  std::function<std::vector<TensorType>(const OpCall&)> infer;
  // The mathematics.  `inputs` are in the order of the node's; absent ones are undefined Tensors.
  std::function<std::vector<te::Tensor>(const OpCall&, const std::vector<te::Tensor>& inputs)> compute;
  std::vector<OpExample> examples;

  int min_inputs() const { return static_cast<int>(input_names.size()) - optional_inputs; }
  bool leaves_open(std::string_view decision) const;
};

// Of all families (ops/*.cpp, listed in families.def).
const std::vector<const OpDef*>& all_ops();
const OpDef* find_op(std::string_view name);

// Checks the node against its OpDef, fills in default attributes and infers result types.  Error(shape).
std::vector<TensorType> infer_types(const OpDef& op, const std::vector<TensorType>& inputs,
                                    const std::vector<bool>& present, const std::vector<const NDArray*>& constants,
                                    NodeAttributes& attributes, std::span<const Equality> equalities = {},
                                    std::span<const Graph> regions = {});

// Error(shape) where something was decided that the operator does not leave open.
void require_open(const OpDef& op, const Decisions& decisions);

// The node as its operator's functions see it, result types included.
OpCall make_call(const Graph& graph, const Node& node);

// Numpy's rules; call.fail() when the shapes do not fit.
std::vector<Expr> broadcast_shapes(const OpCall& call, const std::vector<std::vector<Expr>>& shapes);
// t read at the indices of the output shape it is broadcast to.
// Along dimensions that are 1 in both, the output's index is kept, so that schedules see what is read where it is
// written.
Expr broadcast_read(const te::Tensor& t, const te::Indices& output_indices, const std::vector<Expr>& output_shape);

// Runs one operator on arrays by the oracle: for constant folding at import and for tests.
std::vector<NDArray> evaluate_op(const OpDef& op, const NodeAttributes& attributes, const std::vector<NDArray>& inputs);

}  // namespace tw::relay
