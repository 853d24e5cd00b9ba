// Operators.  An operator is one value in one file of ops/: types and attributes, shape rule, mathematics as a tensor
// expression, ONNX mapping, and examples.  The importer, the docs, Python, the numeric tests and the fuzzer walk the
// one list (families.def).
//
// relay operators are few and orthogonal; the many ONNX operators map onto them by rules: a rule turns one ONNX node
// into one or more relay nodes.  An ONNX operator with attributes or types that its rule does not cover is *refused* by
// it.
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

  bool has_input(size_t i) const { return i < present.size() && present[i]; }
  // Error(shape) with the operator's name, the input types and `message`.
  [[noreturn]] void fail(const std::string& message) const;
  void require(bool holds, const std::string& message) const {
    if (!holds) fail(message);
  }
};

struct AttributeDef {
  std::string name;
  AttributeValue default_value;  // its type is the attribute's type
  bool is_required = false;
  std::string doc;
};

// An input generator for tests: `inputs` drawn at random from a seed within ranges that suit the operator.
struct OpExample {
  std::vector<TensorType> inputs;
  NodeAttributes attributes = {};
  double low = -2, high = 2;                  // range of random floats
  std::vector<NDArray> constant_inputs = {};  // by position; undefined arrays are drawn at random
};

struct OpDef {
  std::string name;
  OpKind kind = OpKind::elementwise;
  std::string doc;
  std::vector<std::string> input_names;  // for docs and messages
  int min_inputs = 1, max_inputs = 1;    // max_inputs -1: any number
  std::vector<AttributeDef> attributes;
  OpFacts facts{};
  std::function<std::vector<TensorType>(const OpCall&)> infer;
  // The mathematics.  `inputs` are in the order of the node's; absent ones are undefined Tensors.
  std::function<std::vector<te::Tensor>(const OpCall&, const std::vector<te::Tensor>& inputs)> compute;
  std::vector<OpExample> examples;
};

// What an import rule works with.
class OnnxNodeContext {
 public:
  virtual ~OnnxNodeContext() = default;
  virtual std::string op_type() const = 0;
  virtual int opset() const = 0;  // of the node's domain
  virtual size_t input_count() const = 0;
  virtual size_t output_count() const = 0;
  virtual bool has_input(size_t i) const = 0;     // present and not ""
  virtual bool wants_output(size_t i) const = 0;  // named, so perhaps used
  virtual ValueId input(size_t i) const = 0;      // Error(malformed_model) when absent
  virtual const TensorType& type(ValueId id) const = 0;
  // The value when it is known at import (initializer, or folded from such): null when not.
  virtual const NDArray* constant(ValueId id) const = 0;
  // Like constant(input(i)), as integers; refuses the node when it is not known.
  virtual std::vector<int64_t> constant_ints(size_t i) const = 0;
  // The same, where elements may be of symbolic dimensions (Shape, Gather, Concat … as exporters leave them).
  virtual std::vector<Expr> known_dims(size_t i) const = 0;
  virtual bool has_attribute(const std::string& name) const = 0;
  virtual int64_t attribute_int(const std::string& name, int64_t otherwise) const = 0;
  virtual double attribute_float(const std::string& name, double otherwise) const = 0;
  virtual std::string attribute_string(const std::string& name, const std::string& otherwise) const = 0;
  virtual std::vector<int64_t> attribute_ints(const std::string& name, std::vector<int64_t> otherwise) const = 0;
  virtual std::vector<double> attribute_floats(const std::string& name, std::vector<double> otherwise) const = 0;
  virtual NDArray attribute_tensor(const std::string& name) const = 0;
  virtual std::vector<std::string> attribute_strings(const std::string& name) const = 0;
  // Builds (folding at once when all inputs are constants and the result is small).
  virtual std::vector<ValueId> emit_all(const std::string& op, std::vector<ValueId> inputs,
                                        NodeAttributes attributes = {}) = 0;
  ValueId emit(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return emit_all(op, std::move(inputs), std::move(attributes))[0];
  }
  virtual ValueId emit_constant(NDArray value) = 0;
  // This mode of the operator is not supported: collected with all others into one TW1003.
  [[noreturn]] virtual void refuse(const std::string& why) const = 0;
};

struct OnnxRule {
  std::string op_type;
  std::string domain;   // "" or "ai.onnx": the standard one; "com.microsoft"
  int since_opset = 1;  // the rule covers this opset and later ones, up to a later row
  std::function<std::vector<ValueId>(OnnxNodeContext&)> import;  // one value an output (no_value where not wanted)
};

struct OpFamily {  // what one file of ops/ contributes
  std::vector<OpDef> ops;
  std::vector<OnnxRule> onnx_rules;
};

// ops/*.cpp; the list of them is families.def.
const std::vector<const OpDef*>& all_ops();
const OpDef* find_op(std::string_view name);
const OnnxRule* find_onnx_rule(std::string_view domain, std::string_view op_type, int opset);
std::vector<const OnnxRule*> all_onnx_rules();

// The only result's elements as expressions, where the inputs' elements are such: what becomes of shapes that a model
// computes with.  Elements are constants, or i64 expressions as dimensions are.  Nothing where the operator is no plain
// function of indices and elements.
struct FoldedDims {
  TensorType type;
  std::vector<Expr> elements;
};
std::optional<FoldedDims> fold_dims(const OpDef& op, const NodeAttributes& attributes,
                                    const std::vector<TensorType>& types, const std::vector<std::vector<Expr>>& inputs);

// Checks the node against its OpDef, fills in default attributes and infers result types.  Error(shape).
std::vector<TensorType> infer_types(const OpDef& op, const std::vector<TensorType>& inputs,
                                    const std::vector<bool>& present, const std::vector<const NDArray*>& constants,
                                    NodeAttributes& attributes);

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
