// ONNX's attention and rotary embedding, composed from matmul, softmax and elementwise operators.

#include "frontends/onnx/rules/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

using Dims = std::vector<Expr>;

// One of so many equal parts; refuses the node when that is no number.
Expr part_of(Context& c, const Expr& whole, int64_t parts, const std::string& why) {
  if (parts < 1 || as_int(whole).value_or(0) % parts != 0) c.refuse(why);
  const Expr part = simplify(floor_div(whole, parts));
  c.require_equal(whole, simplify(part * parts), why);
  return part;
}

// Query heads to each of the others; heads that are open are equal.
int64_t group_of(Context& c, const Expr& heads, const Expr& shared) {
  const auto a = as_int(heads), b = as_int(shared);
  if (a && b && (*b < 1 || *a % *b != 0)) c.refuse("query heads that are no multiple of the others");
  if (!a || !b) c.require_equal(heads, shared, "query heads and the others");
  return a && b ? *a / *b : 1;
}

ValueId matmul(Context& c, ValueId a, ValueId b, bool transpose_b) {
  return c.emit("matmul", {a, b}, attributes_of({{"transpose_b", int64_t{transpose_b}}}));
}

}  // namespace

ValueId split_heads(Context& c, ValueId x, int64_t heads) {
  const Dims dims = c.type(x).shape;
  const std::string why = "q_num_heads or kv_num_heads does not fit its inputs";
  if (dims.size() == 4) return x;
  if (dims.size() != 3) c.refuse(why);
  const Expr size = part_of(c, dims[2], heads, why);
  return emit_transpose(c, emit_reshape_open(c, x, {dims[0], dims[1], Expr(heads), size}), {0, 2, 1, 3});
}

ValueId grouped_matmul(Context& c, ValueId a, ValueId b, bool transpose_b) {
  const Dims da = c.type(a).shape, db = c.type(b).shape;
  const int64_t group = group_of(c, da[1], db[1]);
  if (group == 1) return matmul(c, a, b, transpose_b);
  const ValueId grouped = emit_reshape_open(c, a, {da[0], db[1], Expr(group), da[2], da[3]});
  const ValueId shared = emit_reshape_open(c, b, {db[0], db[1], Expr(1), db[2], db[3]});
  const ValueId y = matmul(c, grouped, shared, transpose_b);
  return emit_reshape_open(c, y, {da[0], da[1], da[2], transpose_b ? db[2] : db[3]});
}

namespace {

ValueId both(Context& c, ValueId a, ValueId b) {
  return a == no_value ? b : b == no_value ? a : c.emit("logical_and", {a, b});
}

bool is_all_true(Context& c, ValueId id) {
  const NDArray* value = c.constant(id);
  if (!value) return false;
  for (int64_t i = 0; i < value->size(); ++i) {
    if (value->get_int(i) == 0) return false;
  }
  return true;
}

struct Masks {
  ValueId allowed = no_value;  // bool, broadcast to [batch, heads, rows, keys]
  ValueId bias = no_value;     // floats that are added to the scores
};

struct MaskShape {
  Expr rows, keys, past;
};

// Which keys a query may see: by the mask input, the causal frontier, the window and the number of keys in use.
Masks masks_of(Context& c, const MaskShape& shape, DType dtype, DType wide) {
  Masks masks;
  if (c.has_input(3)) {
    ValueId mask = c.input(3);
    const Dims dims = c.type(mask).shape;
    if (dims.empty() || dims.size() > 4) c.refuse("a mask of type " + to_string(c.type(mask)));
    const auto width = as_int(dims.back()), keys = as_int(shape.keys);
    if (width && keys && *width > *keys) c.refuse("a mask of type " + to_string(c.type(mask)));
    if (!width || !keys) c.require_equal(shape.keys, dims.back(), "keys and their mask");
    const bool is_bool = dtype_of(c, mask).is_bool();
    if (!is_bool && dtype_of(c, mask) != dtype) c.refuse("a mask of another type than the data");
    if (width && keys && *width < *keys) {
      Ints pads(2 * dims.size(), 0);
      pads.back() = *keys - *width;
      std::vector<ValueId> inputs{mask};
      if (!is_bool) inputs.push_back(emit_scalar(c, dtype, -std::numeric_limits<double>::infinity()));
      mask = c.emit("pad", inputs, attributes_of({{"pads", pads}}));
    }
    (is_bool ? masks.allowed : masks.bias) = is_bool ? mask : emit_cast(c, mask, wide);
  }
  const bool has_length = c.has_input(6);
  const bool is_causal = c.attribute_int("is_causal", 0) != 0;
  const int64_t left = c.attribute_int("left_window_size", -1), right = c.attribute_int("right_window_size", -1);
  const ValueId key = emit_range(c, shape.keys, {shape.keys});
  ValueId length = no_value;
  if (has_length) {
    if (c.has_input(4)) c.refuse("nonpad_kv_seqlen beside past_key");
    const Expr count = simplify(product_of(c.type(c.input(6)).shape));
    length = emit_reshape_open(c, emit_cast(c, c.input(6), i64), {count, Expr(1), Expr(1), Expr(1)});
    masks.allowed = both(c, masks.allowed, c.emit("less", {key, length}));
  }
  if (is_causal || left >= 0 || right >= 0) {
    // The position of query i among the keys.
    ValueId query = emit_range(c, shape.rows, {shape.rows, Expr(1)});
    query = c.emit("add", {query, has_length ? c.emit("subtract", {length, c.emit_sizes({shape.rows}, {})})
                                             : c.emit_sizes({shape.past}, {})});
    auto at_most = [&](ValueId a, ValueId b, int64_t distance) {  // a ≤ b + distance
      return c.emit("less_equal", {a, c.emit("add", {b, emit_ints(c, {distance}, {}, i64)})});
    };
    if (is_causal) masks.allowed = both(c, masks.allowed, at_most(key, query, 0));
    if (left >= 0) masks.allowed = both(c, masks.allowed, at_most(query, key, left));
    if (right >= 0) masks.allowed = both(c, masks.allowed, at_most(key, query, right));
  }
  if (masks.allowed != no_value && is_all_true(c, masks.allowed)) masks.allowed = no_value;
  return masks;
}

// Both masks as one.
ValueId joined_mask(Context& c, const Masks& masks) {
  if (masks.bias == no_value || masks.allowed == no_value) return masks.bias == no_value ? masks.allowed : masks.bias;
  const ValueId lowest = emit_scalar(c, dtype_of(c, masks.bias), -std::numeric_limits<double>::infinity());
  return c.emit("where", {masks.allowed, masks.bias, lowest});
}

// Softmax over the keys; a row that may see none is zero.
ValueId masked_softmax(Context& c, ValueId scores, const Masks& masks, DType dtype) {
  DType precision = dtype;
  if (c.has_attribute("softmax_precision")) {
    const DType asked = c.attribute_dtype("softmax_precision");
    if (!asked.is_float()) c.refuse("softmax_precision of type " + to_string(asked));
    if (asked.bits > precision.bits) precision = asked;
  }
  ValueId probability = c.emit("softmax", {emit_cast(c, scores, precision)});
  ValueId open = masks.allowed;
  if (masks.bias != no_value) {
    const ValueId lowest = emit_scalar(c, dtype, -std::numeric_limits<double>::infinity());
    open = both(c, open, c.emit("less", {lowest, masks.bias}));
  }
  if (open != no_value) {
    const ValueId any = emit_reduce(c, "reduce_any", open, {rank_of(c, open) - 1}, true);
    if (!is_all_true(c, any)) probability = c.emit("where", {any, probability, emit_scalar(c, precision, 0)});
  }
  return emit_cast(c, probability, dtype);
}

std::vector<ValueId> import_attention(Context& c) {
  const bool is_flat = rank_of(c, c.input(0)) == 3;
  const int64_t q_heads = c.attribute_int("q_num_heads", 0), kv_heads = c.attribute_int("kv_num_heads", 0);
  const ValueId q = split_heads(c, c.input(0), q_heads);
  ValueId k = split_heads(c, c.input(1), kv_heads), v = split_heads(c, c.input(2), kv_heads);
  const DType dtype = dtype_of(c, q);
  if (!dtype.is_float() || dtype_of(c, k) != dtype || dtype_of(c, v) != dtype) c.refuse("inputs of different types");
  if (c.has_input(4) != c.has_input(5)) c.refuse("past_key without past_value, or the other way round");
  Expr past(0);
  if (c.has_input(4)) {
    if (rank_of(c, c.input(4)) != 4 || rank_of(c, c.input(5)) != 4) c.refuse("a cache of another rank than 4");
    past = c.type(c.input(4)).shape[2];
    k = emit_concat(c, {c.input(4), k}, 2);
    v = emit_concat(c, {c.input(5), v}, 2);
  }
  const Dims dq = c.type(q).shape, dk = c.type(k).shape;
  const double scale =
      c.has_attribute("scale") ? c.attribute_float("scale", 1) : 1 / std::sqrt(static_cast<double>(dim_of(c, q, 3)));
  if (!(scale >= 0)) c.refuse("a negative scale");
  const auto joined_heads = [&](ValueId y) {
    if (!is_flat) return y;
    const Dims dy = c.type(y).shape;
    return emit_reshape_open(c, emit_transpose(c, y, {0, 2, 1, 3}), {dy[0], dy[2], simplify(dy[1] * dy[3])});
  };
  if (c.attribute_float("softcap", 0) == 0 && !c.wants_output(3) && !c.has_attribute("softmax_precision")) {
    group_of(c, dq[1], dk[1]);
    const ValueId mask = joined_mask(c, masks_of(c, {dq[2], dk[2], past}, dtype, accumulator_of(dtype)));
    NodeAttributes attributes = attributes_of({{"scale", scale}, {"zero_if_masked", int64_t{mask != no_value}}});
    return {joined_heads(c.emit("attention", {q, k, v, mask}, attributes)), k, v};
  }
  // Halves are computed in f32 throughout: no product leaves the range, and only the results are rounded.
  const DType wide = accumulator_of(dtype);
  const ValueId scaled = c.emit("multiply", {emit_cast(c, q, wide), emit_scalar(c, wide, scale)});
  const ValueId raw = grouped_matmul(c, scaled, emit_cast(c, k, wide), true);
  ValueId scores = raw;
  if (const double cap = c.attribute_float("softcap", 0); cap != 0) {
    const ValueId limit = emit_scalar(c, wide, cap);
    scores = c.emit("multiply", {c.emit("tanh", {c.emit("divide", {scores, limit})}), limit});
  }
  const ValueId capped = scores;
  const Masks masks = masks_of(c, {dq[2], dk[2], past}, dtype, wide);
  if (masks.bias != no_value) scores = c.emit("add", {scores, masks.bias});
  if (masks.allowed != no_value) {
    const ValueId lowest = emit_scalar(c, wide, -std::numeric_limits<double>::infinity());
    scores = c.emit("where", {masks.allowed, scores, lowest});
  }
  const ValueId probability = masked_softmax(c, scores, masks, wide);
  const ValueId y = joined_heads(emit_cast(c, grouped_matmul(c, probability, emit_cast(c, v, wide), false), dtype));
  const int64_t mode = c.attribute_int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) c.refuse("qk_matmul_output_mode=" + std::to_string(mode));
  const ValueId stages[] = {raw, capped, scores, probability};
  return {y, k, v, emit_cast(c, stages[mode], dtype)};
}

}  // namespace

ValueId emit_rotation(Context& c, ValueId x, const Rotation& rotation) {
  const Dims dims = c.type(x).shape;
  const Expr rows = dims[rotation.rows_axis];
  const int64_t size = dim_of(c, x, 3), turned = rotation.turned == 0 ? size : rotation.turned;
  if (turned % 2 != 0 || turned > size || turned < 0) c.refuse("rotary_embedding_dim=" + std::to_string(turned));
  if (rotation.positions != no_value && !c.type(rotation.cosines).shape.empty())
    emit_index_check(c, rotation.positions, {c.type(rotation.cosines).shape[0]});
  auto table = [&](ValueId t) {
    if (rotation.positions != no_value) t = c.emit("gather", {t, emit_cast(c, rotation.positions, i64)});
    const Dims shape = c.type(t).shape;
    const std::string why = "tables of type " + to_string(c.type(t));
    if (shape.size() != 3) c.refuse(why);
    const Expr one(1), half(turned / 2);
    for (const auto& [have, wanted] : {std::pair(shape[1], rows), std::pair(shape[2], half)}) {
      if (as_int(have) && as_int(wanted) && *as_int(have) != *as_int(wanted)) c.refuse(why);
      c.require_equal(wanted, have, why);
    }
    const bool rows_first = rotation.rows_axis == 1;
    return emit_reshape_open(c, t, rows_first ? Dims{shape[0], rows, one, half} : Dims{shape[0], one, rows, half});
  };
  const ValueId cosine = table(rotation.cosines), sine = table(rotation.sines);
  const ValueId part = emit_slice(c, x, 3, 0, turned);
  const int64_t half = turned / 2;
  const bool interleaved = rotation.interleaved;
  const ValueId a = interleaved ? emit_slice(c, part, 3, 0, half, 2) : emit_slice(c, part, 3, 0, half);
  const ValueId b = interleaved ? emit_slice(c, part, 3, 1, half, 2) : emit_slice(c, part, 3, half, half);
  const ValueId real = c.emit("subtract", {c.emit("multiply", {cosine, a}), c.emit("multiply", {sine, b})});
  const ValueId imaginary = c.emit("add", {c.emit("multiply", {sine, a}), c.emit("multiply", {cosine, b})});
  ValueId y;
  if (interleaved) {
    Dims pairs = dims, shape = dims;
    shape[3] = Expr(turned), pairs[3] = Expr(half);
    pairs.emplace_back(1);
    const ValueId both = emit_concat(c, {emit_reshape_open(c, real, pairs), emit_reshape_open(c, imaginary, pairs)}, 4);
    y = emit_reshape_open(c, both, shape);
  } else {
    y = emit_concat(c, {real, imaginary}, 3);
  }
  return turned < size ? emit_concat(c, {y, emit_slice(c, x, 3, turned, size - turned)}, 3) : y;
}

ValueId split_size(Context& c, ValueId x, int64_t heads, const std::string& why) {
  const Dims dims = c.type(x).shape;
  return emit_reshape_open(c, x, {dims[0], dims[1], Expr(heads), part_of(c, dims[2], heads, why)});
}

namespace {

ValueId import_rotary_embedding(Context& c) {
  ValueId x = c.input(0);
  const Dims original = c.type(x).shape;
  const bool is_flat = original.size() == 3;
  if (is_flat) {
    x = split_size(c, x, c.attribute_int("num_heads", 0), "num_heads does not fit its input");
  } else if (original.size() != 4) {
    c.refuse("data of rank " + std::to_string(original.size()));
  }
  // [batch, rows, heads, size], or [batch, heads, rows, size] as given.
  const Rotation rotation{c.input(1),
                          c.input(2),
                          c.optional_input(3),
                          is_flat ? 1 : 2,
                          c.attribute_int("rotary_embedding_dim", 0),
                          c.attribute_int("interleaved", 0) != 0};
  return emit_reshape_open(c, emit_rotation(c, x, rotation), original);
}

}  // namespace

std::vector<Rule> attention_rules() {
  return {
      {"Attention", "", 23, import_attention},
      rule("RotaryEmbedding", 23, import_rotary_embedding),
  };
}

}  // namespace tw::frontends::onnx
