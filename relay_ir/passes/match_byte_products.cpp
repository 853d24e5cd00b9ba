// Products of bytes with the signs that the target's dot product takes: i8 in the second operand, and in the first u8
// (AVX512_VNNI), i8 (Armv8.2) or either.
//
//   y = matmul(a: i8, b: i8): i32   ⇒   y = matmul(u8(i32(a) + 128), b): i32 - 128·Σ b        where it is u8 by i8
//   y = matmul(a: u8, b: i8): i32   ⇒   y = matmul(i8(i32(a) - 128), b): i32 + 128·Σ b        where it is i8 by i8
//   y = matmul(a: u8, b: u8): i32   ⇒   y = matmul(a, i8(i32(b) - 128)): i32 + 128·Σ a
//
// and convolutions alike, with pads that hold what 0 becomes.  i32 wraps, so the result is the same to the bit.
//
// It multiplies words of four neighbours along what is added up: where neither the channels nor the columns of a window
// are a multiple of four, as in most networks' first layer, filters get zeros beside their columns or channels.
//
//   y = conv(x: [1, 3, 230, 230], w: [64, 3, 7, 7])   ⇒   y = conv(pad(x): [1, 3, 230, 231], pad(w): [64, 3, 7, 8])
//
// Before constants are folded: weights and their sums are known.
#include <utility>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/passes/code_sums.h"
#include "relay_ir/passes/padding.h"
#include "relay_ir/passes/quantised.h"

namespace tw::relay {
namespace {

constexpr int64_t word = 4;  // bytes

class Matcher {
 public:
  Matcher(const Graph& graph, const Target& target) : copy_(graph), target_(target) {}

  Graph run() {
    const bool has_dot = target_.find_instruction(Intrinsic::dot_u8s8) || target_.find_instruction(Intrinsic::dot_s8s8);
    return has_dot ? copy_.rewrite([&](const Node& node) { return matched(node); }) : copy_.from();
  }

 private:
  DType dtype_of(ValueId now) { return copy_.to().values[now].type.dtype; }

  ValueId matched(const Node& node) {
    const auto form = linear_of(copy_.from(), node);
    if (!form || !node.attributes.has("result") || node.attributes.get_string("result") != "i32") return no_value;
    ValueId a = copy_[node.inputs[0]], b = copy_[node.inputs[1]];
    const auto is_byte = [&](ValueId id) { return dtype_of(id).is_integer() && dtype_of(id).bits == 8; };
    if (!is_byte(a) || !is_byte(b)) return no_value;
    const auto [type_of_a, type_of_b] = factors_for(dtype_of(a), dtype_of(b), target_);
    const bool shifts_a = dtype_of(a) != type_of_a, shifts_b = dtype_of(b) != type_of_b;
    const auto widened = widened_axis(node, *form);
    if ((!shifts_a && !shifts_b && !widened) || (shifts_b && form->groups > 1)) return no_value;
    CodeSums sums(copy_, node, *form);
    NodeAttributes attributes = node.attributes;
    ValueId sums_of_a = no_value, sums_of_b = no_value;  // to be added
    if (shifts_b) {
      sums_of_a = sums.beside(sums.of_rows(a, b), number(node, "half", -sign_shift(type_of_b)));
      b = with_other_sign(copy_, node, b);
    }
    if (shifts_a) {
      const int64_t shift = sign_shift(type_of_a);
      sums_of_b = sums.of_filters(b, number(node, "shift", -shift));
      a = with_other_sign(copy_, node, a);
      if (form->has_window) a = padded(copy_.to(), a, attributes, number(node, "pad", shift, type_of_a));
    }
    if (widened) {
      if (form->has_window) a = padded(copy_.to(), a, attributes, number(node, "zero", 0, dtype_of(a)));
      a = with_zeros(node, a, widened->of_a, widened->elements);
      b = with_zeros(node, b, widened->of_b, widened->elements);
    }
    if (sums_of_a == no_value && sums_of_b == no_value) return copy_.add(node, *node.op, {a, b}, attributes)[0];
    ValueId y = copy_.to().add_node(*node.op, {a, b}, attributes, node.name)[0];
    if (sums_of_a != no_value && sums_of_b != no_value) y = add(node, "add", {y, sums_of_a});
    return copy_.add(node, "add", {y, sums_of_b != no_value ? sums_of_b : sums_of_a})[0];
  }

  // An axis of both operands along which they get so many zeros, to be a whole number of words.
  struct Widened {
    int of_a, of_b;
    int64_t elements;
  };
  std::optional<Widened> widened_axis(const Node& node, const Linear& form) const {
    const Graph& graph = copy_.from();
    const auto weights = static_shape(graph.values[node.inputs[1]].type);
    if (!weights || form.groups > 1) return std::nullopt;
    const auto missing = [](int64_t extent) { return (word - extent % word) % word; };
    const int64_t channels = (*weights)[static_cast<size_t>(form.weight_axis)];
    const Widened by_channels{form.data_axis, form.weight_axis, missing(channels)};
    if (channels == 0 || by_channels.elements == 0) return std::nullopt;
    if (!form.has_window) return by_channels;
    const int last = static_cast<int>(weights->size()) - 1;
    const int64_t columns = weights->back();
    const std::vector<int64_t> dilations = node.attributes.get_ints("dilations");
    const Widened by_columns{last, last, missing(columns)};
    const bool are_neighbours = columns > 1 && (dilations.empty() || dilations.back() == 1);
    if (!are_neighbours || by_channels.elements * columns < by_columns.elements * channels) return by_channels;
    return by_columns.elements > 0 ? std::optional(by_columns) : std::nullopt;
  }

  ValueId with_zeros(const Node& node, ValueId x, int axis, int64_t elements) {
    const auto rank = static_cast<size_t>(copy_.to().values[x].type.rank());
    std::vector<int64_t> pads(2 * rank, 0);
    pads[rank + static_cast<size_t>(axis)] = elements;
    return add(node, "pad", {x, number(node, "zero", 0, dtype_of(x))}, attributes_of({{"pads", pads}}));
  }

  ValueId add(const Node& node, const char* op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return copy_.to().add_node(op, std::move(inputs), std::move(attributes), node.name + "." + op)[0];
  }
  ValueId number(const Node& node, const std::string& what, int64_t value, DType dtype = i32) {
    return add_number(copy_.to(), node.name + "." + what, value, dtype);
  }

  GraphCopy copy_;
  const Target& target_;
};

}  // namespace

Graph match_byte_products(const Graph& graph, const PassContext& context) {
  return Matcher(graph, context.target).run();
}

}  // namespace tw::relay
