// What every frontend builds its graphs with.  A frontend reads one format of models and walks its nodes; for each, a
// rule emits nodes of ours.  What the builder does for all of them: results that are known are folded at once, sizes
// that depend on open dimensions are known as expressions, and what is not supported is collected with place and
// reason, so that one TW1003 (report.h) names everything.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frontends/lists.h"
#include "relay_ir/fold_dims.h"
#include "tensor_ir/dimension.h"

namespace tw::frontends {

[[noreturn]] inline void malformed(const std::string& why) {
  throw Error(ErrorCode::malformed_model, why);
}
inline std::string in_quotes(std::string_view name) {
  return "`" + std::string(name) + "`";
}

struct SourceNode {  // of the model that is read
  std::string op;    // "DeformConv", "com.microsoft.FusedConv"
  std::string name;
  std::vector<ValueId> inputs;  // no_value: an optional input that is absent
};
std::string place_of(const SourceNode& node);  // for people: "node `conv1` (Conv)"

struct Refusal {
  std::string op, node;
  std::string type;  // of the first input, "" when it is not known
  std::string why;   // "": the operator as a whole is not known
};

class OpenDimensions;
class Region;

// A value of the model that is read, and the graph's that it has become: no_value where it is a list, or none.
struct SourceValue {
  std::string name;
  ValueId value = no_value;
};
// A node of the model itself, not of a function or branch in it.
struct SourceRow {
  std::string op, name;
  std::vector<SourceValue> inputs, outputs;
  size_t first = 0, end = 0;  // of the graph's nodes that it became
};

// One model on its way into a graph.
struct Import {
  Graph graph;  // complete only when nothing was refused
  std::vector<Refusal> refusals;
  std::map<std::string, int64_t> operators;  // how often each occurs, functions and branches inlined
  int64_t nodes = 0;
  std::map<ValueId, std::vector<Expr>> sizes;  // elements of values that depend on open dimensions alone
  Lists lists;                                 // sequences, optional values, text
  Words words;
  std::vector<SourceRow> rows;  // the model's nodes, in an order in which inputs come first
  std::string file_name;
  std::string format;    // "opset 17"
  std::string producer;  // "" when it is not known

  void count(const std::string& op) { ++nodes, ++operators[op]; }
  // Numbers of which some depend on open dimensions, as a node.
  ValueId add_sizes(const std::string& name, std::vector<Expr> values, const Shape& shape);
  void refuse(const SourceNode& node, const std::string& why);
  OpenDimensions* dimensions = nullptr;  // what is learned of them
  std::map<std::string, int> items;      // by node: how many numbers it reads in the run
  std::string times;                     // for how many times a node is imported with other types: of its numbers
  std::string branch;                    // of control flow, around the node that is imported; "": none
  int open_regions = 0;                  // that `graph` is within
  Region* region = nullptr;              // the innermost of these
  ValueId random_state = no_value;       // of the whole graph, once a node has asked for it
  int random_nodes = 0;                  // that draw numbers of their own
  bool checks_indices = true;            // ImportOptions::checks
  std::vector<std::string> demands;      // that the model makes on them, for people
  // What random numbers are made of (Graph::has_random_state), in the graph or region that nodes are put in now.
  ValueId emit_random_state();
  // Runs what imports the node.  False: it was refused, or failed for what an earlier refusal left unknown.
  // `is_plain`: it imports no other nodes, and so may be run again.
  bool attempt(const SourceNode& node, bool is_plain, const std::function<void()>& rule);

 private:
  // Where the node fails and dimensions may be 0, these begin at 1 instead, and the import begins anew.
  void hold_to_one(const SourceNode& node);
};

// How a rule sees one node of the model, and how it emits nodes of ours, which get its name.
class Builder {
 public:
  Builder(Import& import, const SourceNode& node) : import_(import), graph_(import.graph), node_(node) {}

  const std::string& op() const { return node_.op; }
  std::string place() const { return place_of(node_); }
  std::vector<ValueId> inputs() const;  // Error(malformed_model) when one is a list
  size_t input_count() const { return node_.inputs.size(); }
  bool has_input(size_t i) const { return i < input_count() && node_.inputs[i] != no_value; }
  ValueId input(size_t i) const;  // Error(malformed_model) when absent, or a list
  ValueId optional_input(size_t i) const { return has_input(i) ? input(i) : no_value; }
  ValueId input_or_list(size_t i) const;  // Error(malformed_model) when absent
  bool has_sequence(size_t i) const {
    return has_input(i) && is_list(node_.inputs[i]) && import_.lists[node_.inputs[i]].is_sequence();
  }
  bool has_optional(size_t i) const {
    return has_input(i) && is_list(node_.inputs[i]) && import_.lists[node_.inputs[i]].kind == ListKind::optional;
  }
  // Strings: their codes (Words), or made of codes.
  bool has_text(size_t i) const {
    return has_input(i) && is_list(node_.inputs[i]) && import_.lists[node_.inputs[i]].is_text();
  }
  ValueId text(size_t i) const { return import_.lists[node_.inputs[i]].values[0]; }
  ValueId emit_text(ValueId codes, bool may_be_unknown = false) {
    return import_.lists.add({.kind = ListKind::text, .values = {codes}, .may_be_unknown = may_be_unknown});
  }
  ValueId sequence(size_t i) const;  // Error(malformed_model) when it is none
  const TensorType& type(ValueId id) const;
  // The value when it is known at import (a constant of the model, or folded from such): null when not.
  const NDArray* constant(ValueId id) const { return graph_.is_constant(id) ? &*graph_.values[id].constant : nullptr; }
  // Whether its elements are known at import, perhaps in terms of open dimensions.
  bool is_known(size_t i) const { return known_elements(input(i)).has_value(); }
  // Like constant(input(i)), as integers; refuses the node when it is not known.
  std::vector<int64_t> constant_ints(size_t i) const;
  // The same, where elements may be of symbolic dimensions (shapes that a model computes with).
  std::vector<Expr> known_dims(size_t i) const;
  // The same, where a run reads what is not known: within the bounds, or it ends.
  std::vector<Expr> read_dims(size_t i, DimensionBounds bounds = {0}) { return emit_items(input(i), bounds); }
  // The only element of input i, of floats, as a fraction of a dimension; refuses the node when it is not known.
  Fraction known_fraction(size_t i) const;

  // The only element of a bool, or of an integer, in terms of open dimensions; not defined where it is not known.
  Expr known_truth(ValueId id) const { return known_element(id, true); }
  Expr known_number(ValueId id) const { return known_element(id, false); }

  // Folds at once when all inputs are known and the result is small.
  std::vector<ValueId> emit_all(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes = {});
  ValueId emit(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return emit_all(op, std::move(inputs), std::move(attributes))[0];
  }
  // The node, also where its result is known: passes want to see what it is made of.
  ValueId emit_unfolded(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return graph_.add_node(op, std::move(inputs), std::move(attributes), node_.name)[0];
  }
  // A node with regions.
  std::vector<ValueId> emit_control(const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes,
                                    std::vector<Graph> regions) {
    return graph_.add_node(op, std::move(inputs), std::move(attributes), node_.name, std::move(regions));
  }
  // A number of one element, or each of a list, as sizes: known, or read by the run.
  Expr emit_item(ValueId x, DimensionBounds bounds = {0});
  // An integer that a run finds to be this, or ends.
  void emit_required(ValueId x, int64_t number);
  // Sizes of which one at least is none of the model's dimensions: runs, or steps, make sure that they are equal.
  void rely_on_equal(const Expr& a, const Expr& b);
  Expr new_number(DimensionBounds bounds);  // that an item of this node is to read
  // A number of the run that the node calls so.
  Expr number(const std::string& what, DimensionBounds bounds);
  // Of a list of sizes, axes or pads; refuses the node where a run says how many, Error(limit) for more than
  // most_items.
  int count_items(ValueId list);
  static constexpr int most_items = 64;  // twice the dimensions of a tensor, as pads have them
  std::vector<Expr> emit_items(ValueId x, DimensionBounds bounds = {0});
  // Numbers of which some depend on open dimensions.
  ValueId emit_sizes(std::vector<Expr> values, const Shape& shape);
  ValueId emit_list(ListKind kind, std::vector<ValueId> values) { return import_.lists.add({kind, std::move(values)}); }
  Import& import() { return import_; }
  ValueId emit_constant(NDArray value) { return graph_.add_constant(node_.name, std::move(value)); }
  void require_equal(const Expr& a, const Expr& b, const std::string& message) const {
    relay::require_equal(a, b, graph_.equalities, op() + ": " + message);
  }
  // The node can be had only where both are equal: what follows takes them to be, and a run makes sure of it.
  [[noreturn]] void assume_equal(const Expr& a, const Expr& b) const;
  // This use of the operator is not supported: collected with all others.
  [[noreturn]] void refuse(const std::string& why) const;

 protected:
  const SourceNode& source() const { return node_; }

 private:
  // The elements of a value that is known, perhaps in terms of open dimensions.  Nothing: it is not, or it is long.
  std::optional<std::vector<Expr>> known_elements(ValueId id) const;
  Expr known_element(ValueId id, bool is_truth) const;
  std::optional<FoldedDims> fold_sizes(const OpDef& op, const std::vector<ValueId>& inputs,
                                       const NodeAttributes& attributes) const;

  Import& import_;
  Graph& graph_;
  const SourceNode& node_;
};

}  // namespace tw::frontends
