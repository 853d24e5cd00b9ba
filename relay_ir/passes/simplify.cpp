// Algebra, one rule a function.  A rule sees a node whose inputs are already simplified and says which value its result
// is instead; what it no longer uses is left for eliminate_dead.
//
//   x * 1, x - 0, x / 1           ⇒  x
//   power(x, 2), power(x, 0.5)    ⇒  x * x, sqrt(x)
//   x / c, 1/c exact              ⇒  x * (1/c)
//   cast(x) to its own type       ⇒  x
//   reshape(reshape(x)), transpose(transpose(x)) ⇒ one of them, or x
//   transpose that moves only dimensions of extent 1 ⇒ reshape
//   broadcast_to, slice, pad that change nothing ⇒ x
//   conv(pad(x, 0))               ⇒  conv with pads
#include <algorithm>
#include <cmath>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : copy_(graph) {}

  Graph run() {
    for (const Node& node : copy_.from().nodes) {
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(copy_[id]);
      const ValueId replaced = node.outputs.size() == 1 ? replacement(node, inputs) : no_value;
      if (replaced != no_value && to().values[replaced].type == copy_.from().values[node.outputs[0]].type) {
        copy_.set(node.outputs[0], replaced);
        continue;
      }
      copy_.copy(node);
      remember(node);
    }
    return copy_.finish();
  }

 private:
  Graph& to() { return copy_.to(); }
  const TensorType& type(ValueId id) { return to().values[id].type; }

  // Nodes of the new graph by their result.
  void remember(const Node& old) {
    for (const ValueId id : old.outputs) producer_[copy_[id]] = static_cast<int>(to().nodes.size()) - 1;
  }
  const Node* producer(ValueId id, const char* op) {
    const auto found = producer_.find(id);
    if (found == producer_.end() || to().nodes[found->second].op->name != op) return nullptr;
    return &to().nodes[found->second];
  }
  ValueId add(const Node& node, const char* op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    const ValueId id = copy_.add(node, op, std::move(inputs), std::move(attributes))[0];
    producer_[id] = static_cast<int>(to().nodes.size()) - 1;
    return id;
  }

  std::optional<double> number(ValueId id) { return uniform_number(to(), id); }

  ValueId replacement(const Node& node, const std::vector<ValueId>& in) {
    const std::string& op = node.op->name;
    if (op == "add" || op == "multiply" || op == "subtract" || op == "divide") return arithmetic(node, in);
    if (op == "power") return power(node, in);
    if (op == "cast") return in[0];  // where the types are equal, which the caller checks
    if (op == "reshape") return reshape(node, in);
    if (op == "transpose") return transpose(node, in);
    if (op == "broadcast_to" || op == "slice" || op == "pad") return unchanged(node, in);
    if (op == "concat") return in.size() == 1 ? in[0] : no_value;
    if (op == "conv") return pad_into_conv(node, in);
    return no_value;
  }

  ValueId arithmetic(const Node& node, const std::vector<ValueId>& in) {
    const std::string& op = node.op->name;
    const auto a = number(in[0]), b = number(in[1]);
    if (op == "multiply" && b == 1) return in[0];
    if (op == "multiply" && a == 1) return in[1];
    // x + 0 is not x where x is -0.0, but differs nowhere else: no consumer but 1/x and the sign bit can tell.
    if (op == "add" && b == 0) return in[0];
    if (op == "add" && a == 0) return in[1];
    if (op == "subtract" && b == 0) return in[0];
    if (op == "divide" && b == 1) return in[0];
    if (op == "divide" && b && type(in[1]).dtype.is_float() && type(in[1]).rank() == 0) {
      int exponent = 0;
      if (std::abs(std::frexp(*b, &exponent)) == 0.5 && std::abs(exponent) < 14) {
        NDArray inverse(type(in[1]).dtype, {});
        inverse.set_float(0, 1 / *b);
        return add(node, "multiply", {in[0], to().add_constant(node.name + ".inverse", inverse)});
      }
    }
    return no_value;
  }

  ValueId power(const Node& node, const std::vector<ValueId>& in) {
    const auto exponent = number(in[1]);
    if (!exponent || !type(in[0]).dtype.is_float() || !(type(in[0]) == copy_.from().values[node.outputs[0]].type)) {
      return no_value;
    }
    if (*exponent == 1) return in[0];
    if (*exponent == 2) return add(node, "multiply", {in[0], in[0]});
    if (*exponent == 3) {
      const ValueId square = add(node, "multiply", {in[0], in[0]});
      return add(node, "multiply", {square, in[0]});
    }
    return no_value;  // power(x, 0.5) and sqrt(x) differ at -0 and -inf
  }

  ValueId reshape(const Node& node, const std::vector<ValueId>& in) {
    const TensorType& wanted = copy_.from().values[node.outputs[0]].type;
    if (type(in[0]) == wanted) return in[0];
    const Node* inner = producer(in[0], "reshape");
    if (!inner) return no_value;
    const ValueId source = inner->inputs[0];
    if (type(source) == wanted) return source;
    NodeAttributes attributes;
    attributes.set("shape", wanted.shape);
    return add(node, "reshape", {source}, attributes);
  }

  ValueId transpose(const Node& node, const std::vector<ValueId>& in) {
    Ints perm = node.attributes.get_ints("perm");
    const int64_t rank = static_cast<int64_t>(perm.size());
    for (int64_t& axis : perm) axis = axis < 0 ? axis + rank : axis;
    ValueId source = in[0];
    if (const Node* inner = producer(source, "transpose")) {
      Ints before = inner->attributes.get_ints("perm");
      for (int64_t& axis : before) axis = axis < 0 ? axis + rank : axis;
      for (int64_t& axis : perm) axis = before[axis];
      source = inner->inputs[0];
    }
    if (std::is_sorted(perm.begin(), perm.end())) return source;
    // Do the dimensions that are not 1 keep their order?
    int64_t last = -1;
    bool is_same_order = true;
    for (const int64_t axis : perm) {
      if (is_const_int(type(source).shape[axis], 1)) continue;
      is_same_order = is_same_order && axis > last;
      last = axis;
    }
    NodeAttributes attributes;
    if (is_same_order) {
      attributes.set("shape", copy_.from().values[node.outputs[0]].type.shape);
      return add(node, "reshape", {source}, attributes);
    }
    if (source == in[0]) return no_value;
    attributes.set("perm", perm);
    return add(node, "transpose", {source}, attributes);
  }

  // Where the result has the input's type: the whole of it, in its own order.
  ValueId unchanged(const Node& node, const std::vector<ValueId>& in) {
    if (node.op->name == "slice") {
      for (const int64_t step : node.attributes.get_ints("steps")) {
        if (step != 1) return no_value;
      }
    }
    if (node.op->name == "pad") {
      for (const int64_t pad : node.attributes.get_ints("pads")) {
        if (pad != 0) return no_value;
      }
    }
    return in[0];
  }

  ValueId pad_into_conv(const Node& node, const std::vector<ValueId>& in) {
    const Node* pad = producer(in[0], "pad");
    if (!pad || pad->attributes.get_string("mode") != "constant") return no_value;
    if (pad->inputs.size() > 1 && number(pad->inputs[1]) != 0.0) return no_value;
    const Ints added = pad->attributes.get_ints("pads");
    const size_t rank = added.size() / 2;
    if (std::any_of(added.begin(), added.end(), [](int64_t p) { return p < 0; })) return no_value;
    if (added[0] || added[1] || added[rank] || added[rank + 1]) return no_value;  // batch and channels
    Ints pads = node.attributes.get_ints("pads");
    if (pads.empty()) pads.assign(2 * (rank - 2), 0);
    for (size_t d = 0; d + 2 < rank; ++d) {
      pads[d] += added[2 + d];
      pads[rank - 2 + d] += added[rank + 2 + d];
    }
    NodeAttributes attributes = node.attributes;
    attributes.set("pads", pads);
    return add(node, "conv", {pad->inputs[0], in[1]}, attributes);
  }

  GraphCopy copy_;
  std::unordered_map<ValueId, int> producer_;
};

}  // namespace

Graph simplify(const Graph& graph) {
  return Simplifier(graph).run();
}

}  // namespace tw::relay
