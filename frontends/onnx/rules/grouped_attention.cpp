// GroupQueryAttention of com.microsoft: query heads that share heads of a cache, turned by their positions, causal.
//
// The cache of keys and values is of one of two kinds.  It grows: its past has as many rows as there were tokens, and
// the new ones come behind.  Or it has room: past and present have one shape, and new rows take the places of the
// tokens' numbers, which a run says; what in_place= of compile makes one array.  The model says which: it has room
// where the model gives past and present the same dimension.
#include <limits>

#include "frontends/onnx/rules/attention.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

using Dims = std::vector<Expr>;

void refuse_what_is_missing(const Context& c) {
  for (const char* attribute : {"kv_cache_bit_width", "qk_output", "sliding_window_cache"})
    if (c.attribute_int(attribute, 0) != 0) c.refuse(attribute);
  for (const char* attribute : {"k_quant_type", "v_quant_type"})
    if (c.attribute_string(attribute, "NONE") != "NONE") c.refuse(attribute);
  for (const size_t i : {size_t{12}, size_t{13}})
    if (c.has_input(i)) c.refuse("its input " + std::to_string(i));
  if (c.attribute_int("causal", 1) != 1) c.refuse("causal=0");
  if (c.has_input(3) != c.has_input(4)) c.refuse("past_key without past_value, or the other way round");
  if (c.has_input(14) != c.has_input(15)) c.refuse("q_norm_weight without k_norm_weight, or the other way round");
}

// [batch, rows, heads, size] each, of inputs that may be one.
Heads heads_of(Context& c) {
  const int64_t q_heads = c.attribute_int("num_heads", 0), kv_heads = c.attribute_int("kv_num_heads", 0);
  ValueId q = c.input(0), k = c.optional_input(1), v = c.optional_input(2);
  if (k == no_value) {
    const int64_t columns = dim_of(c, q, 2);
    if (q_heads < 1 || kv_heads < 1 || columns % (q_heads + 2 * kv_heads) != 0) c.refuse("num_heads or kv_num_heads");
    const int64_t size = columns / (q_heads + 2 * kv_heads);
    const Expr shared(size * kv_heads);
    const std::vector<ValueId> parts = emit_split(c, q, 2, {Expr(size * q_heads), shared, shared});
    q = parts[0], k = parts[1], v = parts[2];
  }
  Heads heads{split_size(c, q, q_heads, "num_heads does not fit its inputs"),
              split_size(c, k, kv_heads, "kv_num_heads does not fit its inputs"),
              split_size(c, v, kv_heads, "kv_num_heads does not fit its inputs")};
  if (c.has_input(14)) {
    const NodeAttributes attributes = attributes_of({{"epsilon", c.attribute_float("qk_norm_epsilon", 1e-6)}});
    heads.q = c.emit("rms_norm", {heads.q, c.input(14)}, attributes);
    heads.k = c.emit("rms_norm", {heads.k, c.input(15)}, attributes);
  }
  return heads;
}

// Where the run's rows lie among the keys, and which keys there are.
struct Places {
  ValueId first;  // the number of the first row: i64, [batch or 1, 1]
  ValueId last;   // of the last key of each sequence: i64, [batch, 1]
  Expr keys;
};

// Behind all that there were.
Places places_behind(Context& c, const Expr& before, const Expr& rows, ValueId last) {
  const Expr keys = simplify(before + rows);
  c.rely_on_equal(c.emit_item(c.input(6)), keys);
  if (!is_const_int(before, 0)) {  // a shorter sequence would have its new rows elsewhere
    const ValueId least = emit_reduce(c, "reduce_min", last, {0, 1}, false);
    c.rely_on_equal(c.emit_item(least), simplify(keys - 1));
  }
  return {c.emit_sizes({before}, {1, 1}), last, keys};
}

// In a cache with room: a prompt begins it, tokens follow the others of their sequence.
Places places_within(Context& c, const Expr& room, const Expr& rows, ValueId last) {
  emit_index_check(c, last, {room});
  const ValueId count = c.emit_sizes({rows}, {});
  ValueId first = c.emit("subtract", {c.emit("add", {last, emit_ints(c, {1}, {}, i64)}), count});
  const ValueId total = emit_reshape(c, emit_cast(c, c.input(6), i64), {});
  if (!is_const_int(rows, 1))
    first = c.emit("where", {c.emit("equal", {total, count}), emit_ints(c, {0}, {}, i64), first});
  return {first, last, c.emit_item(c.input(6), {1, as_int(room).value_or(std::numeric_limits<int64_t>::max())})};
}

// softmax(softcap · tanh(scores / softcap) + bias) · v, in whose sum a head may have one more score, which has no value
// (Miller, "Attention Is Off By One", 2023; with a learned one gpt-oss).
ValueId emit_capped_attention(Context& c, const Heads& heads, ValueId bias, ValueId allowed, double softcap,
                              ValueId sink) {
  const DType dtype = dtype_of(c, heads.q), wide = accumulator_of(dtype);
  const ValueId scale = emit_scalar(c, wide, scale_of(c, heads));
  ValueId scores =
      grouped_matmul(c, c.emit("multiply", {emit_cast(c, heads.q, wide), scale}), emit_cast(c, heads.k, wide), true);
  if (softcap != 0) {
    const ValueId limit = emit_scalar(c, wide, softcap);
    scores = c.emit("multiply", {c.emit("tanh", {c.emit("divide", {scores, limit})}), limit});
  }
  if (bias != no_value) scores = c.emit("add", {scores, bias});
  scores = c.emit("where", {allowed, scores, emit_scalar(c, wide, -std::numeric_limits<double>::infinity())});
  ValueId weights;
  if (sink == no_value) {
    weights = c.emit("softmax", {scores});
  } else {
    const ValueId largest = c.emit("maximum", {emit_reduce(c, "reduce_max", scores, {3}, true), sink});
    const ValueId powers = c.emit("exp", {c.emit("subtract", {scores, largest})});
    const ValueId rest = c.emit("exp", {c.emit("subtract", {sink, largest})});
    weights = c.emit("divide", {powers, c.emit("add", {emit_reduce(c, "reduce_sum", powers, {3}, true), rest})});
  }
  return emit_cast(c, grouped_matmul(c, weights, emit_cast(c, heads.v, wide), false), dtype);
}

std::vector<ValueId> import_group_query_attention(Context& c) {
  refuse_what_is_missing(c);
  Heads heads = heads_of(c);
  const Expr batch = c.type(heads.q).shape[0], rows = c.type(heads.q).shape[1];
  const Expr before = c.has_input(3) ? c.type(c.input(3)).shape.at(2) : Expr(0);
  const bool has_room = c.has_input(3) && c.declares_equal(3, 1, 2);
  const ValueId last = emit_reshape_open(c, emit_cast(c, c.input(5), i64), {batch, Expr(1)});
  const Places places = has_room ? places_within(c, before, rows, last) : places_behind(c, before, rows, last);
  const ValueId row_numbers =
      c.emit("add", {emit_range(c, rows, {Expr(1), rows}), places.first});  // [batch or 1, rows]
  if (c.attribute_int("do_rotary", 0) != 0) {
    const ValueId positions = c.has_input(9) ? c.input(9) : row_numbers;
    const int64_t turned = 2 * dim_of(c, c.input(7), 1);
    const Rotation rotation{c.input(7), c.input(8), positions,
                            1,          turned,     c.attribute_int("rotary_interleaved", 0) != 0};
    heads.q = emit_rotation(c, heads.q, rotation), heads.k = emit_rotation(c, heads.k, rotation);
  }
  heads = {to_heads_first(c, heads.q), to_heads_first(c, heads.k), to_heads_first(c, heads.v)};
  std::vector<ValueId> caches{heads.k, heads.v};
  for (size_t i = 0; i < 2 && c.has_input(3); ++i) {
    const ValueId past = c.input(3 + i);
    if (has_room) {
      const ValueId at =
          emit_broadcast_open(c, emit_reshape_open(c, places.first, {c.type(places.first).shape[0]}), {batch});
      caches[i] = c.emit("cache_update", {past, caches[i], at}, attributes_of({{"axis", int64_t{2}}}));
    } else {
      caches[i] = emit_concat(c, {past, caches[i]}, 2);
    }
  }
  heads.k = caches[0], heads.v = caches[1];
  if (has_room)
    heads.k = emit_slice(c, heads.k, 2, 0, places.keys), heads.v = emit_slice(c, heads.v, 2, 0, places.keys);
  // [batch or 1, 1, rows, keys]
  const auto spread = [&](ValueId x, const Expr& columns, bool is_row) {
    const Expr first = c.type(x).shape[0], one(1);
    return emit_reshape_open(c, x, is_row ? Dims{first, one, columns, one} : Dims{first, one, one, columns});
  };
  const ValueId key = emit_range(c, places.keys, {places.keys});
  const ValueId row = spread(row_numbers, rows, true);
  ValueId allowed = c.emit("less_equal", {key, row});
  allowed = c.emit("logical_and", {allowed, c.emit("less_equal", {key, spread(places.last, Expr(1), false)})});
  if (const int64_t window = c.attribute_int("local_window_size", -1); window >= 0) {
    const ValueId behind = c.emit("add", {key, emit_ints(c, {window}, {}, i64)});
    allowed = c.emit("logical_and", {allowed, c.emit("less", {row, behind})});
  }
  const DType wide = accumulator_of(dtype_of(c, heads.q));
  const ValueId bias = c.has_input(10) ? emit_cast(c, c.input(10), wide) : no_value;
  const double softcap = c.attribute_float("softcap", 0);
  ValueId sink = no_value;
  if (c.has_input(11)) {
    sink = emit_reshape(c, emit_cast(c, c.input(11), wide), {1, c.attribute_int("num_heads", 0), 1, 1});
  } else if (c.attribute_int("smooth_softmax", 0) > 0) {
    sink = emit_scalar(c, wide, 0);
  }
  const ValueId y = softcap == 0 && sink == no_value ? emit_attention(c, heads, bias, allowed)
                                                     : emit_capped_attention(c, heads, bias, allowed, softcap, sink);
  return {join_heads(c, y), caches[0], caches[1]};
}

}  // namespace

std::vector<Rule> grouped_attention_rules() {
  return {{"GroupQueryAttention", microsoft, 1, import_group_query_attention}};
}

}  // namespace tw::frontends::onnx
