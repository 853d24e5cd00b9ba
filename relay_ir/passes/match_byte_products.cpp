// Products of bytes with the signs that the target's dot product takes.
//
//   y = matmul(a: i8, b: i8): i32
//     ⇒   y = matmul(u8(i32(a) + 128), b): i32 - 128·Σ b        where u8 by i8 is all there is (AVX512_VNNI)
//   y = matmul(a: u8, b: i8): i32
//     ⇒   y = matmul(i8(i32(a) - 128), b): i32 + 128·Σ b        where i8 by i8 is (Armv8.2)
//
// and convolutions alike, with pads that hold what 0 becomes.  b is known, so its sums are.  i32 wraps, so the result
// is the same to the bit.
#include <utility>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/passes/padding.h"

namespace tw::relay {
namespace {

class Matcher {
 public:
  Matcher(const Graph& graph, const Target& target)
      : copy_(graph),
        has_u8s8_(target.find_instruction(Intrinsic::dot_u8s8)),
        has_s8s8_(target.find_instruction(Intrinsic::dot_s8s8)) {}

  Graph run() {
    return copy_.rewrite([&](const Node& node) {
      const int64_t shift = shift_of(node);
      return shift ? shifted(node, shift) : no_value;
    });
  }

 private:
  // What is to be added to the elements of the first operand; 0: nothing.
  int64_t shift_of(const Node& node) const {
    const auto form = linear_of(copy_.from(), node);
    if (!form || !node.attributes.has("result") || node.attributes.get_string("result") != "i32") return 0;
    const Value &a = copy_.from().values[node.inputs[0]], &b = copy_.from().values[node.inputs[1]];
    if (!b.constant || b.type.dtype != i8 || (!form->has_window && b.type.rank() != 2)) return 0;
    if (a.type.dtype == i8 && has_u8s8_ && !has_s8s8_) return 128;
    if (a.type.dtype == u8 && has_s8s8_ && !has_u8s8_) return -128;
    return 0;
  }

  ValueId add(OpRef op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return copy_.to().add_node(op, std::move(inputs), std::move(attributes))[0];
  }

  ValueId cast(ValueId value, DType dtype) { return add("cast", {value}, attributes_of({{"to", to_string(dtype)}})); }

  ValueId constant(const std::string& name, DType dtype, const Shape& shape, const std::vector<int64_t>& values) {
    return copy_.to().add_constant(name, int_array(values, dtype).reshape(shape));
  }

  ValueId shifted(const Node& node, int64_t shift) {
    const DType shifted_type = shift > 0 ? u8 : i8;
    ValueId a = copy_[node.inputs[0]];
    a = cast(add("add", {cast(a, i32), constant("shift", i32, {}, {shift})}), shifted_type);
    NodeAttributes attributes = node.attributes;
    const NDArray& b = *copy_.from().values[node.inputs[1]].constant;
    const Shape& shape = b.shape();
    const Linear form = *linear_of(copy_.from(), node);
    const auto kept = static_cast<size_t>(form.filter_axis);
    // The sums' shape, to stand beside the result.
    Shape beside(copy_.from().values[node.outputs[0]].type.rank() - form.result_axis, 1);
    beside[0] = shape[kept];
    if (attributes.has("pads")) a = padded(copy_.to(), a, attributes, constant("pad", shifted_type, {}, {shift}));
    int64_t inner = 1;
    for (size_t d = kept + 1; d < shape.size(); ++d) inner *= shape[d];
    std::vector<int64_t> sums(static_cast<size_t>(shape[kept]), 0);
    for (int64_t i = 0; i < b.size(); ++i) sums[static_cast<size_t>(i / inner % shape[kept])] += shift * b.get_int(i);
    const ValueId product = add(*node.op, {a, copy_[node.inputs[1]]}, attributes);
    const ValueId correction = constant("shift_sums", i32, beside, sums);
    return copy_.add(node, "subtract", {product, correction})[0];
  }

  GraphCopy copy_;
  const bool has_u8s8_, has_s8s8_;
};

}  // namespace

Graph match_byte_products(const Graph& graph, const PassContext& context) {
  return Matcher(graph, context.target).run();
}

}  // namespace tw::relay
