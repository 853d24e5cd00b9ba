// LinearAttention, and the convolution along time that stands before it in most networks.
#include "frontends/linear_attention.h"

#include <cmath>

#include "frontends/onnx/rules/attention.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

// In f32, whatever the inputs are, as the definition has it.
std::vector<ValueId> import_linear_attention(Context& c) {
  const int64_t heads = c.attribute_int("kv_num_heads", 0), query_heads = c.attribute_int("q_num_heads", 0);
  if (heads < 1 || query_heads < 1 || query_heads % heads != 0)
    c.refuse("q_num_heads=" + std::to_string(query_heads) + " with kv_num_heads=" + std::to_string(heads));
  const std::string rule = c.attribute_string("update_rule", "gated_delta");
  const bool is_gated = rule == "gated" || rule == "gated_delta", is_delta = rule == "delta" || rule == "gated_delta";
  if (!is_gated && !is_delta && rule != "linear") c.refuse("update_rule=" + rule);
  if (is_gated != c.has_input(4)) c.refuse("update_rule=" + rule + (is_gated ? " without" : " with") + " decay");
  if (is_delta != c.has_input(5)) c.refuse("update_rule=" + rule + (is_delta ? " without" : " with") + " beta");
  const DType dtype = dtype_of(c, c.input(0));
  const auto in_heads = [&](size_t input, int64_t count) {
    if (rank_of(c, c.input(input)) != 3) c.refuse("inputs that are not [batch, steps, heads · size]");
    return emit_cast(c, split_heads(c, c.input(input), count), f32);
  };
  LinearAttention attention{in_heads(0, query_heads), in_heads(1, heads), in_heads(2, heads)};
  if (c.has_input(3)) attention.state = emit_cast(c, c.input(3), f32);
  if (is_gated) attention.decay = in_heads(4, heads);
  if (is_delta) attention.beta = in_heads(5, is_const_int(c.type(c.input(5)).shape.back(), 1) ? 1 : heads);
  attention.scale = c.attribute_float("scale", 0);
  if (attention.scale == 0) attention.scale = 1 / std::sqrt(static_cast<double>(dim_of(c, attention.q, 3)));
  const std::vector<ValueId> results = emit_linear_attention(c, attention);
  const std::vector<Expr> dims = c.type(results[0]).shape;
  const ValueId y = emit_reshape_open(c, emit_transpose(c, results[0], {0, 2, 1, 3}),
                                      {dims[0], dims[2], simplify(dims[1] * dims[3])});
  return {emit_cast(c, y, dtype), emit_cast(c, results[1], c.has_input(3) ? dtype_of(c, c.input(3)) : dtype)};
}

// A convolution of each channel over the last k steps, those before the first from the state.
std::vector<ValueId> import_causal_conv(Context& c) {
  const ValueId x = c.input(0), weight = c.input(1);
  const std::string activation = c.attribute_string("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish") c.refuse("activation=" + activation);
  if (rank_of(c, x) != 3 || rank_of(c, weight) != 3) c.refuse("inputs that are not [batch, channels, steps]");
  const std::vector<Expr> dims = c.type(x).shape;
  const int64_t before = dim_of(c, weight, 2) - 1, channels = dim_of(c, weight, 0);
  const ValueId all = c.has_input(3)
                          ? emit_concat(c, {c.input(3), x}, 2)
                          : c.emit("pad", {x}, attributes_of({{"pads", std::vector<Expr>{0, 0, before, 0, 0, 0}}}));
  const Ints one{1}, none{0, 0};
  ValueId y = c.emit("conv", {all, weight},
                     attributes_of({{"strides", one}, {"dilations", one}, {"pads", none}, {"groups", channels}}));
  if (c.has_input(2)) y = c.emit("add", {y, emit_along_axis(c, c.input(2), 1, 3)});
  if (activation != "none") y = in_accumulator(c, y, [&](ValueId wide) { return c.emit("silu", {wide}); });
  return {y, emit_slice(c, all, 2, dims[2], Expr(before))};
}

}  // namespace

std::vector<Rule> linear_attention_rules() {
  return {
      {"LinearAttention", "", 27, import_linear_attention},
      {"CausalConvWithState", "", 27, import_causal_conv},
  };
}

}  // namespace tw::frontends::onnx
