// Slices come in front of the reshapes and transposes that follow them, next to what they cut: a slice of whole heads
// is then a matter of indices for attention, and one of whole rows no work at all.
//
//   reshape(slice(x: [5, 72], 24 columns from 24), [5, 3, 8])   ⇒  slice(reshape(x, [5, 9, 8]), 3 heads from 3)
//   gather(x: [5, 3, 4, 8], number 1 of axis 1)                 ⇒  slice(reshape(x, [5, 12, 8]), 4 from 4)
//   gather(transpose(x), number n)                              ⇒  transpose(gather(x, number n))
//
// A reshape that drops an axis of which one position is sliced is such a gather.
#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

// One axis of x, elements begin … begin + size.
struct Cut {
  ValueId x = no_value;
  size_t axis = 0;
  int64_t begin = 0, size = 0;
};

class Hoister {
 public:
  explicit Hoister(const Graph& graph) : copy_(graph) {}

  Graph run() {
    return copy_.rewrite([&](const Node& node) { return replacement(node); });
  }

 private:
  Graph& to() { return copy_.to(); }
  const std::vector<Expr>& shape_of(ValueId id) { return to().values[id].type.shape; }

  ValueId add(const Node& node, const char* op, ValueId x, NodeAttributes attributes) {
    return to().add_node(op, {x}, std::move(attributes), node.name + "." + op)[0];
  }

  using Rule = ValueId (Hoister::*)(const Node& node, const std::vector<Expr>& wanted);

  ValueId replacement(const Node& node) {
    static const RulesByOp<Rule> rules = {{"gather", &Hoister::of_gather}, {"reshape", &Hoister::of_reshape}};
    const Rule* rule = rules.find(node);
    if (!rule) return no_value;
    const std::vector<Expr>& wanted = copy_.from().values[node.outputs[0]].type.shape;
    return is_const_int(product_of(wanted), 0) ? no_value : (this->*(*rule))(node, wanted);
  }

  ValueId of_gather(const Node& node, const std::vector<Expr>&) {
    const ValueId x = copy_[node.inputs[0]];
    const TensorType& indices = copy_.from().values[node.inputs[1]].type;
    const auto number = uniform_number(copy_.from(), node.inputs[1]);
    const std::vector<Expr>& shape = shape_of(x);
    if (indices.rank() != 0 || !number || to().is_constant(x)) return no_value;
    const int64_t axis = node.attributes.get_int("axis");
    const size_t at = axis < 0 ? axis + shape.size() : axis;
    const auto extent = as_int(shape[at]);
    if (!extent) return no_value;
    const int64_t index = *number < 0 ? static_cast<int64_t>(*number) + *extent : static_cast<int64_t>(*number);
    if (index < 0 || index >= *extent) return no_value;  // gather says what that means
    return pick(node, {x, at, index, 1});
  }

  ValueId of_reshape(const Node& node, const std::vector<Expr>& wanted) {
    const Node* slice = copy_.made_by(copy_[node.inputs[0]], "slice");
    if (!slice) return no_value;
    const Ints &axes = slice->attributes.get_ints("axes"), &steps = slice->attributes.get_ints("steps");
    if (axes.size() != 1 || (!steps.empty() && steps[0] != 1)) return no_value;
    const std::vector<Expr>& shape = shape_of(slice->inputs[0]);
    const auto size = as_int(slice->attributes.get_dims("sizes")[0]);
    const auto start = as_int(slice->attributes.get_dims("starts")[0]);
    if (!size || !start) return no_value;
    const Cut cut{slice->inputs[0], static_cast<size_t>(axes[0] < 0 ? axes[0] + shape.size() : axes[0]), *start, *size};
    std::vector<Expr> without = shape;
    without.erase(without.begin() + cut.axis);
    return cut.size == 1 && is_same_shape(wanted, without) ? pick(node, cut) : reshaped(node, cut, wanted);
  }

  // One position of an axis, without that axis.
  ValueId pick(const Node& node, const Cut& cut) {
    const Node* transpose = copy_.made_by(cut.x, "transpose");
    if (!transpose) {
      std::vector<Expr> wanted = shape_of(cut.x);
      wanted.erase(wanted.begin() + cut.axis);
      return reshaped(node, cut, wanted);
    }
    Ints perm = transpose->attributes.get_ints("perm");
    for (int64_t& axis : perm) axis = axis < 0 ? axis + static_cast<int64_t>(perm.size()) : axis;
    const int64_t from = perm[cut.axis];
    const ValueId picked = pick(node, {transpose->inputs[0], static_cast<size_t>(from), cut.begin, 1});
    if (picked == no_value) return no_value;
    perm.erase(perm.begin() + cut.axis);
    for (int64_t& axis : perm) axis -= axis > from;
    return add(node, "transpose", picked, attributes_of({{"perm", perm}}));
  }

  // The cut in shape `wanted`, where it is a cut of an axis of that shape's kind.
  ValueId reshaped(const Node& node, const Cut& cut, const std::vector<Expr>& wanted) {
    const std::vector<Expr> shape = shape_of(cut.x);
    const Expr before = product_of({shape.begin(), shape.begin() + cut.axis});
    const auto behind = as_int(product_of({shape.begin() + cut.axis + 1, shape.end()})),
               extent = as_int(shape[cut.axis]);
    if (!behind || !extent) return no_value;
    for (size_t axis = wanted.size(); axis-- > 0;) {
      const auto unit = as_int(product_of({wanted.begin() + axis + 1, wanted.end()}));
      if (!unit || !is_known_equal(product_of({wanted.begin(), wanted.begin() + axis}), before)) continue;
      if (cut.begin * *behind % *unit != 0 || *extent * *behind % *unit != 0) continue;
      std::vector<Expr> whole = wanted;
      whole[axis] = Expr(*extent * *behind / *unit);
      const ValueId x =
          is_same_shape(whole, shape) ? cut.x : add(node, "reshape", cut.x, attributes_of({{"shape", whole}}));
      return add(node, "slice", x,
                 attributes_of({{"axes", Ints{static_cast<int64_t>(axis)}},
                                {"starts", Ints{cut.begin * *behind / *unit}},
                                {"sizes", std::vector<Expr>{wanted[axis]}}}));
    }
    return no_value;
  }

  GraphCopy copy_;
};

}  // namespace

Graph hoist_slices(const Graph& graph) {
  return Hoister(graph).run();
}

}  // namespace tw::relay
