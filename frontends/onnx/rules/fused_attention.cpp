// Attention as ONNX Runtime's optimiser fuses it (com.microsoft): with the projections before it, masks of several
// forms, caches, rotations.  What the CPU kernels of ONNX Runtime compute is what the operators mean.
#include <cmath>
#include <limits>

#include "frontends/onnx/rules/attention.h"
#include "frontends/onnx/rules/quantize.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {

using Dims = std::vector<Expr>;

ValueId to_heads_first(Context& c, ValueId x) {
  return emit_transpose(c, x, {0, 2, 1, 3});
}

ValueId join_heads(Context& c, ValueId x) {
  const Dims dims = c.type(x).shape;
  return emit_reshape_open(c, to_heads_first(c, x), {dims[0], dims[2], simplify(dims[1] * dims[3])});
}

double scale_of(Context& c, const Heads& heads) {
  const double scale = c.attribute_float("scale", 0);
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(dim_of(c, heads.q, 3)));
}

ValueId emit_attention(Context& c, const Heads& heads, ValueId bias, ValueId allowed) {
  if (allowed != no_value) {
    const DType dtype = bias == no_value ? accumulator_of(dtype_of(c, heads.q)) : dtype_of(c, bias);
    const ValueId lowest = emit_scalar(c, dtype, -std::numeric_limits<double>::infinity());
    bias = bias == no_value ? allowed : c.emit("where", {allowed, bias, lowest});
  }
  return c.emit("attention", {heads.q, heads.k, heads.v, bias}, attributes_of({{"scale", scale_of(c, heads)}}));
}

namespace {

ValueId sum_of(Context& c, ValueId a, ValueId b) {
  return a == no_value ? b : b == no_value ? a : c.emit("add", {a, b});
}

// A mask of keys has one of these forms: [batch], how many there are, from the first on; [2 · batch], their ends, then
// their begins; [batch, keys] and [batch, rows, keys], 0 for those that are not seen.  What is added to their scores.
ValueId key_mask_bias(Context& c, ValueId mask, const Expr& batch, const Expr& keys, DType dtype, double masked) {
  const Dims dims = c.type(mask).shape;
  const ValueId nothing = emit_scalar(c, dtype, 0), low = emit_scalar(c, dtype, masked);
  if (dims.size() == 2 || dims.size() == 3) {
    c.require_equal(dims.back(), keys, "keys and their mask");
    const ValueId is_masked = c.emit("equal", {mask, emit_scalar(c, dtype_of(c, mask), 0)});
    const Expr rows = dims.size() == 2 ? Expr(1) : dims[1];
    return c.emit("where", {emit_reshape_open(c, is_masked, {dims[0], Expr(1), rows, keys}), low, nothing});
  }
  if (dims.size() != 1) c.refuse("a mask of type " + to_string(c.type(mask)));
  const ValueId key = emit_range(c, keys, {keys});
  const auto column = [&](ValueId x) {
    return emit_reshape_open(c, emit_cast(c, x, i64), {batch, Expr(1), Expr(1), Expr(1)});
  };
  ValueId seen = c.emit("less", {key, column(emit_slice(c, mask, 0, Expr(0), batch))});
  if (is_same_dim(dims[0], simplify(batch * 2))) {
    const ValueId begin = column(emit_slice(c, mask, 0, batch, batch));
    seen = c.emit("logical_and", {seen, c.emit("less_equal", {begin, key})});
  } else if (!is_same_dim(dims[0], batch)) {
    c.refuse("a mask of type " + to_string(c.type(mask)));
  }
  return c.emit("where", {seen, nothing, low});
}

// Keys behind their query, which is the one of number past + row.
ValueId causal(Context& c, const Expr& rows, const Expr& keys, const Expr& past) {
  const ValueId key = emit_range(c, keys, {keys});
  const ValueId query = c.emit("add", {emit_range(c, rows, {rows, Expr(1)}), c.emit_sizes({past}, {})});
  return c.emit("less_equal", {key, query});
}

struct Past {
  ValueId k = no_value, v = no_value;  // [batch, heads, past, size]
};

double mask_filter_value(const Context& c) {
  return c.attribute_float("mask_filter_value", -10000);
}

// Of MultiHeadAttention and Attention: q, k and v with their cache, masks, and results.
std::vector<ValueId> import_heads(Context& c, Heads heads, const Past& past, ValueId mask, ValueId added,
                                  bool stacks_cache) {
  const DType dtype = dtype_of(c, heads.q), wide = accumulator_of(dtype);
  Expr before(0);
  if (past.k != no_value) {
    before = c.type(past.k).shape[2];
    heads.k = emit_concat(c, {past.k, heads.k}, 2);
    heads.v = emit_concat(c, {past.v, heads.v}, 2);
  }
  const Dims dq = c.type(heads.q).shape, dk = c.type(heads.k).shape;
  ValueId bias = no_value;
  if (mask != no_value) bias = key_mask_bias(c, mask, dq[0], dk[2], wide, mask_filter_value(c));
  if (added != no_value) bias = sum_of(c, bias, emit_cast(c, added, wide));
  const ValueId allowed = c.attribute_int("unidirectional", 0) ? causal(c, dq[2], dk[2], before) : no_value;
  std::vector<ValueId> results{join_heads(c, emit_attention(c, heads, bias, allowed))};
  if (stacks_cache) {
    if (c.wants_output(1)) results.push_back(emit_stack(c, {heads.k, heads.v}, 0));
  } else {
    results.push_back(heads.k), results.push_back(heads.v);
  }
  return results;
}

// Of q, k and v, which lie in one array, one behind the other.
std::vector<ValueId> import_projected(Context& c, ValueId all, ValueId mask, ValueId stacked_past, ValueId added) {
  if (c.attribute_int("do_rotary", 0) || c.attribute_int("past_present_share_buffer", 0))
    c.refuse("do_rotary or past_present_share_buffer");
  const int64_t heads = c.attribute_int("num_heads", 0);
  const int64_t columns = dim_of(c, all, 2);
  Ints sizes = c.attribute_ints("qkv_hidden_sizes", {});
  if (sizes.empty()) sizes = Ints(3, columns / 3);
  if (sizes.size() != 3 || sizes[0] != sizes[1] || sizes[0] + sizes[1] + sizes[2] != columns)
    c.refuse("qkv_hidden_sizes that do not fit its weights");
  const std::vector<ValueId> parts = emit_split(c, all, 2, {Expr(sizes[0]), Expr(sizes[1]), Expr(sizes[2])});
  const auto head = [&](size_t i) { return to_heads_first(c, split_size(c, parts[i], heads, "num_heads")); };
  Past past;
  if (stacked_past != no_value) {
    past.k = emit_without_axis(c, emit_slice(c, stacked_past, 0, 0, 1), 0);
    past.v = emit_without_axis(c, emit_slice(c, stacked_past, 0, 1, 1), 0);
  }
  return import_heads(c, {head(0), head(1), head(2)}, past, mask, added, true);
}

std::vector<ValueId> import_projected_attention(Context& c) {
  if (c.has_input(6)) c.refuse("past_sequence_length");
  ValueId all = emit_matmul(c, c.input(0), c.input(1));
  if (c.has_input(2)) all = c.emit("add", {all, c.input(2)});
  return import_projected(c, all, c.optional_input(3), c.optional_input(4), c.optional_input(5));
}

// The projections are products of bytes.
std::vector<ValueId> import_quantized_attention(Context& c) {
  const ValueId sum = emit_integer_matmul(c, c.input(0), c.optional_input(6), c.input(1), c.optional_input(7));
  const ValueId weight_scale = c.input(4), scale = c.emit("multiply", {scalar_or_refuse(c, c.input(3)), weight_scale});
  ValueId all = c.emit("multiply", {emit_cast(c, sum, f32), scale});
  if (c.has_input(2)) all = c.emit("add", {all, c.input(2)});
  return import_projected(c, all, c.optional_input(5), c.optional_input(8), no_value);
}

std::vector<ValueId> import_multi_head_attention(Context& c) {
  if (c.has_input(8) || c.has_input(9)) c.refuse("past_sequence_length or cache_indirection");
  if (c.wants_output(3)) c.refuse("the scores as an output");
  const int64_t heads = c.attribute_int("num_heads", 0);
  const std::string why = "num_heads does not fit its inputs";
  // Each is [batch, rows, heads · size], or behind a packed one [batch, rows, heads, size].
  ValueId q = c.input(0), k = c.optional_input(1), v = c.optional_input(2);
  const auto part = [&](ValueId packed, int64_t i) { return emit_without_axis(c, emit_slice(c, packed, 3, i, 1), 3); };
  const bool is_packed = rank_of(c, q) == 5;
  const bool is_cache = !is_packed && k != no_value && rank_of(c, k) == 4;  // [batch, heads, keys, size], with its bias
  if (is_packed) {
    if (k != no_value || v != no_value) c.refuse("a packed query beside a key");
    const ValueId packed = q;
    q = part(packed, 0), k = part(packed, 1), v = part(packed, 2);
  } else if (k != no_value && rank_of(c, k) == 5) {
    const ValueId packed = k;
    if (v != no_value) c.refuse("a packed key beside a value");
    k = part(packed, 0), v = part(packed, 1);
  }
  if (k == no_value || v == no_value) c.refuse("a query without key and value");
  if (c.has_input(3)) {
    if (is_packed || (rank_of(c, k) == 4 && !is_cache)) c.refuse("a bias beside packed inputs");
    const int64_t hidden = dim_of(c, q, 2), size = dim_of(c, c.input(3), 0) - 2 * hidden;
    const std::vector<ValueId> biases = emit_split(c, c.input(3), 0, {Expr(hidden), Expr(hidden), Expr(size)});
    q = c.emit("add", {q, biases[0]});
    if (!is_cache) k = c.emit("add", {k, biases[1]}), v = c.emit("add", {v, biases[2]});
  }
  const auto head = [&](ValueId x, bool lies_so) {
    if (lies_so) return x;
    return to_heads_first(c, rank_of(c, x) == 4 ? x : split_size(c, x, heads, why));
  };
  return import_heads(c, {head(q, false), head(k, is_cache), head(v, is_cache)},
                      {c.optional_input(6), c.optional_input(7)}, c.optional_input(4), c.optional_input(5), false);
}

ValueId import_fused_rotary_embedding(Context& c) {
  if (c.attribute_int("is_packed_batching", 0) != 0) c.refuse("is_packed_batching");
  ValueId x = c.input(0), positions = c.input(1);
  const Dims original = c.type(x).shape;
  const int64_t turned = c.attribute_int("rotary_embedding_dim", 0);
  const bool is_flat = original.size() == 3;
  if (is_flat) {
    int64_t heads = c.attribute_int("num_heads", 0);
    if (heads == 0) heads = dim_of(c, x, 2) / (2 * dim_of(c, c.input(2), 1));
    x = split_size(c, x, heads, "num_heads does not fit its input");
  } else if (original.size() != 4) {
    c.refuse("data of rank " + std::to_string(original.size()));
  }
  const int rows_axis = is_flat ? 1 : 2;
  const Expr rows = c.type(x).shape[rows_axis];
  if (rank_of(c, positions) == 1)  // that of the first row
    positions = c.emit("add", {emit_cast(c, positions, i64), emit_range(c, rows, {Expr(1), rows})});
  const Rotation rotation{c.input(2), c.input(3), positions, rows_axis, turned, c.attribute_int("interleaved", 0) != 0};
  return emit_reshape_open(c, emit_rotation(c, x, rotation), original);
}

// Words, their positions and their segments, summed and normalised.
std::vector<ValueId> import_embed_layer_norm(Context& c) {
  const auto rows_of = [&](size_t table, ValueId ids) {
    emit_index_check(c, ids, {c.type(c.input(table)).shape.at(0)});
    return c.emit("gather", {c.input(table), emit_cast(c, ids, i64)});
  };
  const ValueId words = c.input(0);
  const Dims dims = c.type(words).shape;
  if (dims.size() != 2) c.refuse("words of rank " + std::to_string(dims.size()));
  const ValueId positions = c.has_input(8) ? c.input(8) : emit_range(c, dims[1], {Expr(1), dims[1]});
  ValueId sum = c.emit("add", {rows_of(2, words), rows_of(3, positions)});
  if (c.has_input(1)) sum = c.emit("add", {sum, rows_of(4, c.input(1))});
  const ValueId y = in_accumulator(c, sum, [&](ValueId x) {
    const DType dtype = dtype_of(c, x);
    return c.emit("layer_norm", {x, emit_cast(c, c.input(5), dtype), emit_cast(c, c.input(6), dtype)},
                  attributes_of({{"axis", int64_t{-1}}, {"epsilon", c.attribute_float("epsilon", 1e-12)}}));
  });
  ValueId count = no_value;
  if (c.wants_output(1)) {
    count = c.has_input(7) ? emit_reduce(c, "reduce_sum", emit_cast(c, c.input(7), i32), {1}, false)
                           : emit_broadcast_open(c, emit_ints(c, {0}, {1}, i32), {dims[0]});
  }
  return {y, count, sum};
}

}  // namespace

std::vector<Rule> fused_attention_rules() {
  return {
      {"Attention", microsoft, 1, import_projected_attention},
      {"QAttention", microsoft, 1, import_quantized_attention},
      {"MultiHeadAttention", microsoft, 1, import_multi_head_attention},
      {"EmbedLayerNormalization", microsoft, 1, import_embed_layer_norm},
      rule_of(microsoft, "RotaryEmbedding", import_fused_rotary_embedding),
  };
}

}  // namespace tw::frontends::onnx
