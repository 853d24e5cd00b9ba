// Algebra, one rule a function.  A rule sees a node whose inputs are already simplified and says which value its result
// is instead; what it no longer uses is left for eliminate_dead.
//
//   x * 1, x - 0, x / 1           ⇒  x
//   power(x, 2), power(x, 0.5)    ⇒  x * x, sqrt(x)
//   x / c, 1/c exact              ⇒  x * (1/c)
//   cast(x) to its own type       ⇒  x
//   reshape(reshape(x)), transpose(transpose(x)) ⇒ one of them, or x
//   reshape(transpose(reshape(x))) that merges and splits what the transpose leaves first ⇒ transpose(reshape(x))
//   transpose that moves only dimensions of extent 1 ⇒ reshape
//   broadcast_to, slice, pad that change nothing ⇒ x
//   conv(pad(x, 0))               ⇒  conv with pads
//   conv whose window begins or ends in padding, wherever it is ⇒ conv with a smaller window
#include <algorithm>
#include <cmath>
#include <numeric>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : copy_(graph) {}

  Graph run() {
    return copy_.rewrite([&](const Node& node) {
      const std::vector<ValueId> inputs = copy_.inputs_of(node);
      const ValueId replaced = node.outputs.size() == 1 ? replacement(node, inputs) : no_value;
      const bool keeps_type = replaced != no_value && type(replaced) == copy_.from().values[node.outputs[0]].type;
      return keeps_type ? replaced : no_value;
    });
  }

 private:
  Graph& to() { return copy_.to(); }
  const TensorType& type(ValueId id) { return to().values[id].type; }

  ValueId add(const Node& node, const char* op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return copy_.add(node, op, std::move(inputs), std::move(attributes))[0];
  }

  std::optional<double> number(ValueId id) { return uniform_number(to(), id); }

  using Rule = ValueId (Simplifier::*)(const Node& node, const std::vector<ValueId>& in);

  ValueId replacement(const Node& node, const std::vector<ValueId>& in) {
    static const RulesByOp<Rule> rules = {{"add", &Simplifier::sum},
                                          {"subtract", &Simplifier::difference},
                                          {"multiply", &Simplifier::product},
                                          {"divide", &Simplifier::quotient},
                                          {"power", &Simplifier::power},
                                          {"cast", &Simplifier::input},
                                          {"reshape", &Simplifier::reshape},
                                          {"transpose", &Simplifier::transpose},
                                          {"broadcast_to", &Simplifier::input},
                                          {"slice", &Simplifier::slice},
                                          {"pad", &Simplifier::pad},
                                          {"concat", &Simplifier::concat},
                                          {"conv", &Simplifier::conv}};
    const Rule* rule = rules.find(node);
    return rule ? (this->*(*rule))(node, in) : no_value;
  }

  // Where the result has the input's type, which the caller checks.
  ValueId input(const Node&, const std::vector<ValueId>& in) { return in[0]; }

  // x + 0 is not x where x is -0.0, but differs nowhere else: no consumer but 1/x and the sign bit can tell.
  ValueId sum(const Node&, const std::vector<ValueId>& in) {
    return number(in[1]) == 0 ? in[0] : number(in[0]) == 0 ? in[1] : no_value;
  }
  ValueId difference(const Node&, const std::vector<ValueId>& in) { return number(in[1]) == 0 ? in[0] : no_value; }
  ValueId product(const Node&, const std::vector<ValueId>& in) {
    return number(in[1]) == 1 ? in[0] : number(in[0]) == 1 ? in[1] : no_value;
  }

  ValueId quotient(const Node& node, const std::vector<ValueId>& in) {
    const auto b = number(in[1]);
    if (b == 1) return in[0];
    if (!b || !type(in[1]).dtype.is_float() || type(in[1]).rank() != 0) return no_value;
    int exponent = 0;
    if (std::abs(std::frexp(*b, &exponent)) != 0.5 || std::abs(exponent) >= 14) return no_value;
    NDArray inverse(type(in[1]).dtype, {});
    inverse.set_float(0, 1 / *b);
    return add(node, "multiply", {in[0], to().add_constant(node.name + ".inverse", inverse)});
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
    const Node* inner = copy_.made_by(in[0], "reshape");
    if (!inner) return split_before_transpose(node, in[0], wanted.shape);
    const ValueId source = inner->inputs[0];
    if (type(source) == wanted) return source;
    return add(node, "reshape", {source}, attributes_of({{"shape", wanted.shape}}));
  }

  // An axis that was merged, and that a transpose leaves first, is split before the transpose.
  ValueId split_before_transpose(const Node& node, ValueId transposed, const std::vector<Expr>& wanted) {
    const Node* transpose = copy_.made_by(transposed, "transpose");
    const Node* merge = transpose ? copy_.made_by(transpose->inputs[0], "reshape") : nullptr;
    if (!merge) return no_value;
    const Ints& perm = transpose->attributes.get_ints("perm");
    const std::vector<Expr>&merged = type(transpose->inputs[0]).shape, &shape = type(transposed).shape;
    if (perm.empty() || perm[0] != 0 || wanted.size() <= shape.size()) return no_value;
    const auto behind = wanted.end() - (static_cast<std::ptrdiff_t>(shape.size()) - 1);
    if (!is_same_shape({behind, wanted.end()}, {shape.begin() + 1, shape.end()})) return no_value;
    std::vector<Expr> split(wanted.begin(), behind);
    const auto more = static_cast<int64_t>(split.size()) - 1;
    split.insert(split.end(), merged.begin() + 1, merged.end());
    Ints moved(static_cast<size_t>(more) + 1);
    std::iota(moved.begin(), moved.end(), 0);
    for (size_t i = 1; i < perm.size(); ++i)
      moved.push_back(more + (perm[i] < 0 ? perm[i] + std::ssize(perm) : perm[i]));
    ValueId x = merge->inputs[0];
    if (!is_same_shape(type(x).shape, split)) x = add(node, "reshape", {x}, attributes_of({{"shape", split}}));
    return add(node, "transpose", {x}, attributes_of({{"perm", moved}}));
  }

  ValueId transpose(const Node& node, const std::vector<ValueId>& in) {
    Ints perm = node.attributes.get_ints("perm");
    const int64_t rank = static_cast<int64_t>(perm.size());
    for (int64_t& axis : perm) axis = axis < 0 ? axis + rank : axis;
    ValueId source = in[0];
    if (const Node* inner = copy_.made_by(source, "transpose")) {
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
    if (is_same_order) {
      const std::vector<Expr>& shape = copy_.from().values[node.outputs[0]].type.shape;
      return add(node, "reshape", {source}, attributes_of({{"shape", shape}}));
    }
    return source == in[0] ? no_value : add(node, "transpose", {source}, attributes_of({{"perm", perm}}));
  }

  ValueId slice(const Node& node, const std::vector<ValueId>& in) {
    const Ints& steps = node.attributes.get_ints("steps");
    return std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step == 1; }) ? in[0] : no_value;
  }
  ValueId pad(const Node& node, const std::vector<ValueId>& in) {
    const std::vector<Expr>& pads = node.attributes.get_dims("pads");
    return std::all_of(pads.begin(), pads.end(), [](const Expr& pad) { return is_const_int(pad, 0); }) ? in[0]
                                                                                                       : no_value;
  }
  ValueId concat(const Node&, const std::vector<ValueId>& in) { return in.size() == 1 ? in[0] : no_value; }

  ValueId conv(const Node& node, const std::vector<ValueId>& in) {
    const ValueId padded = pad_into_conv(node, in);
    return padded != no_value ? padded : crop_window(node, in);
  }

  // 3×3 with a dilation of 24 on a map of 14×14 is 1×1.
  ValueId crop_window(const Node& node, const std::vector<ValueId>& in) {
    const TensorType &data = type(in[0]), &weight = type(in[1]);
    const Ints& before = node.attributes.get_ints("pads");
    if (before.empty() || !to().is_constant(in[1])) return no_value;
    const TensorType& result = copy_.from().values[node.outputs[0]].type;
    const size_t rank = before.size() / 2;
    Ints pads = before, axes;
    std::vector<Expr> starts, sizes;
    for (size_t d = 0; d < rank; ++d) {
      const auto of_dimension = [&](const char* name) {
        const Ints& values = node.attributes.get_ints(name);
        return values.empty() ? int64_t{1} : values[d];
      };
      const int64_t stride = of_dimension("strides"), dilation = of_dimension("dilations");
      const auto extent = as_int(data.shape[2 + d]), results = as_int(result.shape[2 + d]);
      const auto window = as_int(weight.shape[2 + d]);
      if (!extent || !results || !window || *results < 1) continue;
      // Elements of the data that step `k` of the window sees lie from `first` to `last`.
      const auto first = [&](int64_t k) { return k * dilation - before[d]; };
      const auto last = [&](int64_t k) { return first(k) + (*results - 1) * stride; };
      int64_t begin = 0, end = *window;
      while (end - begin > 1 && last(begin) < 0 && pads[d] >= dilation) ++begin, pads[d] -= dilation;
      while (end - begin > 1 && first(end - 1) >= *extent && pads[rank + d] >= dilation)
        --end, pads[rank + d] -= dilation;
      if (end - begin == *window) continue;
      axes.push_back(static_cast<int64_t>(2 + d));
      starts.emplace_back(begin), sizes.emplace_back(end - begin);
    }
    if (axes.empty()) return no_value;
    const ValueId cropped =
        add(node, "slice", {in[1]}, attributes_of({{"axes", axes}, {"starts", starts}, {"sizes", sizes}}));
    NodeAttributes attributes = node.attributes;
    attributes.set("pads", pads);
    return add(node, "conv", {in[0], cropped}, attributes);
  }

  ValueId pad_into_conv(const Node& node, const std::vector<ValueId>& in) {
    const Node* pad = copy_.made_by(in[0], "pad");
    if (!pad || pad->attributes.get_string("mode") != "constant") return no_value;
    if (pad->inputs.size() > 1 && number(pad->inputs[1]) != 0.0) return no_value;
    Ints added;
    for (const Expr& rows : pad->attributes.get_dims("pads")) added.push_back(as_int(rows).value_or(-1));
    const size_t rank = added.size() / 2;
    if (std::any_of(added.begin(), added.end(), [](int64_t p) { return p < 0; })) return no_value;  // or open
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
};

}  // namespace

Graph simplify(const Graph& graph) {
  return Simplifier(graph).run();
}

}  // namespace tw::relay
