// Products of bytes with the signs that the target's dot product takes: i8 in the second operand, and in the first u8
// (AVX512_VNNI), i8 (Armv8.2) or either.
//
//   y = matmul(a: i8, b: i8): i32   ⇒   y = matmul(u8(i32(a) + 128), b): i32 - 128·Σ b        where it is u8 by i8
//   y = matmul(a: u8, b: i8): i32   ⇒   y = matmul(i8(i32(a) - 128), b): i32 + 128·Σ b        where it is i8 by i8
//   y = matmul(a: u8, b: u8): i32   ⇒   y = matmul(a, i8(i32(b) - 128)): i32 + 128·Σ a
//
// and convolutions alike, with pads that hold what 0 becomes.  i32 wraps, so the result is the same to the bit.  Before
// constants are folded: weights and their sums are known.
#include <utility>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/passes/code_sums.h"
#include "relay_ir/passes/padding.h"

namespace tw::relay {
namespace {

constexpr int64_t half_of_codes = 128;

class Matcher {
 public:
  Matcher(const Graph& graph, const Target& target)
      : copy_(graph),
        has_u8s8_(target.find_instruction(Intrinsic::dot_u8s8)),
        has_s8s8_(target.find_instruction(Intrinsic::dot_s8s8)) {}

  Graph run() {
    if (!has_u8s8_ && !has_s8s8_) return copy_.from();
    return copy_.rewrite([&](const Node& node) { return matched(node); });
  }

 private:
  DType dtype_of(ValueId now) { return copy_.to().values[now].type.dtype; }

  ValueId matched(const Node& node) {
    const auto form = linear_of(copy_.from(), node);
    if (!form || !node.attributes.has("result") || node.attributes.get_string("result") != "i32") return no_value;
    ValueId a = copy_[node.inputs[0]], b = copy_[node.inputs[1]];
    const auto is_byte = [&](ValueId id) { return dtype_of(id).is_integer() && dtype_of(id).bits == 8; };
    if (!is_byte(a) || !is_byte(b)) return no_value;
    const bool shifts_b = dtype_of(b) == u8, shifts_a = dtype_of(a) == u8 ? !has_u8s8_ : !has_s8s8_;
    if ((!shifts_a && !shifts_b) || (shifts_b && form->groups > 1)) return no_value;
    CodeSums sums(copy_, node, *form);
    NodeAttributes attributes = node.attributes;
    ValueId of_a = no_value, of_b = no_value;  // what is to be added
    if (shifts_b) {
      of_a = sums.beside(sums.of_rows(a, b), sums.number("half", half_of_codes));
      b = shifted(node, b);
    }
    if (shifts_a) {
      const int64_t shift = shift_of(a);
      of_b = sums.of_filters(b, sums.number("shift", -shift));
      a = shifted(node, a);
      if (form->has_window) a = padded(copy_.to(), a, attributes, number(node, "pad", shift, dtype_of(a)));
    }
    ValueId y = copy_.to().add_node(*node.op, {a, b}, attributes, node.name)[0];
    if (of_a != no_value && of_b != no_value) y = add(node, "add", {y, of_a});
    return copy_.add(node, "add", {y, of_b != no_value ? of_b : of_a})[0];
  }

  // To the other sign.
  int64_t shift_of(ValueId codes) { return dtype_of(codes) == u8 ? -half_of_codes : half_of_codes; }
  ValueId shifted(const Node& node, ValueId codes) {
    const DType other = dtype_of(codes) == u8 ? i8 : u8;
    const ValueId shift = number(node, "shift", shift_of(codes), i32);
    return cast(node, add(node, "add", {cast(node, codes, i32), shift}), other);
  }

  ValueId add(const Node& node, const char* op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return copy_.to().add_node(op, std::move(inputs), std::move(attributes), node.name + "." + op)[0];
  }
  ValueId cast(const Node& node, ValueId value, DType dtype) {
    return add(node, "cast", {value}, attributes_of({{"to", to_string(dtype)}}));
  }
  ValueId number(const Node& node, const std::string& what, int64_t value, DType dtype) {
    return copy_.to().add_constant(node.name + "." + what, int_array({value}, dtype).reshape({}));
  }

  GraphCopy copy_;
  const bool has_u8s8_, has_s8s8_;
};

}  // namespace

Graph match_byte_products(const Graph& graph, const PassContext& context) {
  return Matcher(graph, context.target).run();
}

}  // namespace tw::relay
