// softmax(scale · q kᵀ + mask) · v.
//
// The stages, by the names that targets' schedules know them by (targets/cpu/attention.cpp); G query heads share a head
// of k and v, and every stage has the axes [batch…, head of k, query head of it, query, …]:
//
//   attention_query    scale · q
//   attention_scores   Σ query · k                 [query, key]
//   attention_masked   + mask                      where there is one
//   attention_max      the largest of a row
//   attention_weights  e^(score - max)
//   attention_sum      Σ weights
//   attention_mixed    Σ weights · v               [query, element of v]
//   attention          mixed / sum, in the shape of the result
//
// With the attribute `part` the keys are cut into parts of so many, each with a largest score of its own, so that no
// array has the length of the keys and parts may be computed side by side (Dao et al., "Flash-Decoding for long-context
// inference", 2023).  The stages up to attention_mixed then have an axis for the part behind that of the query, scores
// of places behind the last key are -∞, and these join the parts:
//
//   attention_top      the largest of all parts
//   attention_share    e^(max - top)               [query, part]
//   attention_total    Σ share · sum
//   attention_joined   Σ share · mixed             [query, element of v]
//
// With `query_tile`, too, parts are tiles of products: queries are as many as whole tiles have, and what lies behind
// the last query or key is zero in copies of the operands.  Products multiply elements as they are stored:
//
//   attention_query    q, with zeros               attention_keys, attention_values   [part, place, element]
//   attention_scores   Σ query · key               attention_masked   scale · score + mask, -∞ behind the last key
//   attention_rounded  the weights in the type of v, whose products with the values attention_mixed adds up
#include <limits>

#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

// Dimensions of q by what they are.
struct Shapes {
  std::vector<Expr> batch;
  Expr heads, shared_heads, queries, keys, size, result_size;
  int64_t group = 1;  // query heads to a head of k
  int64_t part = 0;   // keys of a part; 0: they are not cut
  int64_t tile = 0;   // queries of a tile; 0: stages have no tiles
};

Shapes shapes_of(const OpCall& c) {
  const TensorType &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2];
  const int rank = q.rank();
  Shapes s;
  s.batch.assign(q.shape.begin(), q.shape.end() - 3);
  s.heads = q.shape[rank - 3], s.shared_heads = k.shape[rank - 3];
  s.queries = q.shape[rank - 2], s.keys = k.shape[rank - 2];
  s.size = q.shape[rank - 1], s.result_size = v.shape[rank - 1];
  const auto heads = as_int(s.heads), shared = as_int(s.shared_heads);
  if (heads && shared && *shared > 0) s.group = *heads / *shared;
  s.part = decided(c.decisions, "split_kv");
  s.tile = decided(c.decisions, "query_tile");
  c.require(s.part >= 0 && (s.part == 0 || s.tile > 0 || as_int(s.keys)),
            "known keys are split into parts of one or more");
  c.require(s.tile >= 0 && (s.tile == 0 || s.part > 0), "tiles are of keys in parts");
  return s;
}

std::vector<TensorType> infer(const OpCall& c) {
  const TensorType &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2];
  c.require(q.dtype.is_float() && k.dtype == q.dtype && v.dtype == q.dtype, "q, k and v are floats of one type");
  require_operands(c);
  const int rank = q.rank();
  c.require(rank >= 3 && k.rank() == rank && v.rank() == rank, "q, k and v have one rank, 3 or more");
  for (int d = 0; d < rank - 3; ++d) {
    c.require_equal(q.shape[d], k.shape[d], "batch dimensions are equal");
    c.require_equal(q.shape[d], v.shape[d], "batch dimensions are equal");
  }
  c.require_equal(q.shape[rank - 1], k.shape[rank - 1], "q and k have elements of one size");
  c.require_equal(k.shape[rank - 2], v.shape[rank - 2], "there is a row of v for each of k");
  c.require_equal(k.shape[rank - 3], v.shape[rank - 3], "k and v have the same heads");
  c.require(c.attributes.get_int("causal") >= 0, "the first query sees some keys");
  if (!is_same_dim(q.shape[rank - 3], k.shape[rank - 3])) {
    const auto heads = as_int(q.shape[rank - 3]), shared = as_int(k.shape[rank - 3]);
    c.require(heads && shared && *shared > 0 && *heads % *shared == 0, "the heads of q are a multiple of those of k");
  }
  TensorType result = q;
  result.shape.back() = v.shape.back();
  if (c.has_input(3)) {
    const TensorType& mask = c.inputs[3];
    std::vector<Expr> scores = q.shape;
    scores.back() = k.shape[rank - 2];
    c.require(mask.dtype.is_bool() || mask.dtype.is_float(), "the mask is of bools or floats");
    c.require(mask.rank() <= rank, "the mask broadcasts to the scores");
    const std::vector<Expr> shape = broadcast_shapes(c, {scores, mask.shape});
    for (int d = 0; d < rank; ++d) c.require_equal(shape[d], scores[d], "the mask broadcasts to the scores");
  }
  return {result};
}

te::Indices appended(te::Indices indices, const Expr& last) {
  indices.push_back(last);
  return indices;
}

std::vector<te::Tensor> compute(const OpCall& c, const std::vector<te::Tensor>& in) {
  const te::Tensor &q = in[0], &k = in[1], &v = in[2];
  const Shapes s = shapes_of(c);
  const DType dtype = q.dtype(), wide = accumulator_of(dtype);
  const size_t batch = s.batch.size();
  const auto number = [&](double value) { return float_imm(wide, value); };
  const double masked = c.attributes.get_float("masked");
  const bool is_zero_if_masked = c.attributes.get_int("zero_if_masked") != 0;

  // [batch…, head of k, query head of it, query]
  const bool is_tiled = s.tile > 0;
  const auto divided_up = [](const Expr& extent, int64_t by) { return simplify(floor_div(extent + (by - 1), by)); };
  const Expr queries = is_tiled ? simplify(divided_up(s.queries, s.tile) * s.tile) : s.queries;
  const bool has_rows_left = is_tiled && !is_known_equal(queries, s.queries);
  std::vector<Expr> rows = s.batch;
  rows.insert(rows.end(), {s.shared_heads, Expr(s.group), queries});
  const auto with = [](std::vector<Expr> shape, const Expr& last) {
    shape.push_back(last);
    return shape;
  };
  const auto head = [&](const te::Indices& i) { return s.group == 1 ? i[batch] : i[batch] * s.group + i[batch + 1]; };
  // The place in q's layout of a row, and in k's and v's of a key.
  const auto of_query = [&](const te::Indices& i, const Expr& element) {
    te::Indices at(i.begin(), i.begin() + batch);
    at.insert(at.end(), {head(i), i[batch + 2], element});
    return at;
  };
  const auto of_key = [&](const te::Indices& i, const Expr& key, const Expr& element) {
    te::Indices at(i.begin(), i.begin() + batch + 1);
    at.insert(at.end(), {key, element});
    return at;
  };
  const auto row = [&](const te::Indices& i) { return te::Indices(i.begin(), i.begin() + batch + 3); };

  // Of scores: one axis of keys, or parts and places in them.
  const bool is_cut = s.part > 0;
  const bool has_places_left = is_cut && !is_known_equal(divided_up(s.keys, s.part) * s.part, s.keys);
  const size_t first_key_axis = rows.size();
  std::vector<Expr> parts = rows, scored = rows;
  if (is_cut) parts.push_back(divided_up(s.keys, s.part)), scored = with(parts, Expr(s.part));
  if (!is_cut) scored = with(rows, s.keys);
  const std::vector<Expr> key_extent{is_cut ? Expr(s.part) : s.keys};
  // The key of the place in part i[…]; is_key guards what is read there.
  const auto key_at = [&](const te::Indices& i, const Expr& place) {
    return is_cut ? i[first_key_axis] * s.part + place : place;
  };
  const auto is_key = [&](const Expr& key) { return has_places_left ? key < s.keys : Expr(); };
  const auto head_of = [&](const te::Indices& i) { return te::Indices(i.begin(), i.begin() + parts.size()); };

  const auto is_query = [&](const te::Indices& i) { return has_rows_left ? i[batch + 2] < s.queries : Expr(); };
  const auto scaled = [&](const Expr& value) {
    return c.attributes.get_float("scale") == 1 ? value : value * number(c.attributes.get_float("scale"));
  };

  const te::Tensor query = te::compute("attention_query", with(rows, s.size), {q}, [&](const te::Indices& i) {
    const Expr value = load(q.buffer(), of_query(i, i.back()), is_query(i));
    return is_tiled ? value : scaled(cast(wide, value));
  });
  // An element of k or v, of the place i[…] in its part.
  const auto tiles_of = [&](const std::string& name, const te::Tensor& of) {
    std::vector<Expr> shape = s.batch;
    shape.insert(shape.end(), {s.shared_heads, parts.back(), Expr(s.part), of.shape().back()});
    return te::compute(name, shape, {of}, [&](const te::Indices& i) {
      const Expr key = i[batch + 1] * s.part + i[batch + 2];
      return load(of.buffer(), of_key(i, key, i.back()), is_key(key));
    });
  };
  const te::Tensor keys = is_tiled ? tiles_of("attention_keys", k) : k;
  const auto element_of = [&](const te::Tensor& of, const te::Indices& i, const Expr& place, const Expr& element) {
    if (!is_tiled)
      return factor_of(c, 0, load(of.buffer(), of_key(i, key_at(i, place), element), is_key(key_at(i, place))));
    te::Indices at(i.begin(), i.begin() + batch + 1);
    at.insert(at.end(), {i[first_key_axis], place, element});
    return factor_of(c, 0, of(at));
  };
  te::Tensor scores =
      te::reduce("attention_scores", scored, {s.size}, te::Combiner::sum, {query, keys},
                 [&](const te::Indices& i, const te::Indices& r) {
                   return factor_of(c, 0, query(appended(row(i), r[0]))) * element_of(keys, i, i.back(), r[0]);
                 });
  const int64_t seen_first = c.attributes.get_int("causal");
  if (c.has_input(3) || has_places_left || is_tiled || seen_first > 0) {
    const te::Tensor raw = scores, mask = c.has_input(3) ? in[3] : te::Tensor();
    std::vector<Expr> shape = q.shape();
    shape.back() = s.keys;
    std::vector<te::Tensor> uses{raw};
    if (c.has_input(3)) uses.push_back(mask);
    scores = te::compute("attention_masked", scored, uses, [&](const te::Indices& i) {
      const Expr key = key_at(i, i.back());
      Expr value = is_tiled ? scaled(raw(i)) : raw(i);
      if (c.has_input(3)) {
        const Expr read = broadcast_read(mask, of_query(i, key), shape);
        const Expr is_there = has_places_left && has_rows_left ? is_key(key) && is_query(i)
                              : has_rows_left                  ? is_query(i)
                                                               : is_key(key);
        const Expr at = load(mask.buffer(), read.as<Load>()->indices, is_there);
        value = mask.dtype().is_bool() ? select(at, value, number(masked)) : value + cast(wide, at);
      }
      Expr is_seen = seen_first > 0 ? key < i[batch + 2] + seen_first : Expr();
      if (has_places_left) is_seen = is_seen.is_defined() ? is_key(key) && is_seen : is_key(key);
      const Expr nothing = number(-std::numeric_limits<double>::infinity());
      return is_seen.is_defined() ? select(is_seen, value, nothing) : value;
    });
  }
  const te::Tensor largest =
      te::reduce("attention_max", parts, key_extent, te::Combiner::max, {scores},
                 [&](const te::Indices& i, const te::Indices& r) { return scores(appended(i, r[0])); });
  // Rows without any score: e^(-∞ - lowest) is 0, e^(-∞ + ∞) is none.  Masks have the least number there is, too.
  const double lowest = is_tiled ? double{std::numeric_limits<float>::lowest()} : -3e38;
  const auto shift_of = [&](const Expr& value) { return call(Intrinsic::maximum, {value, number(lowest)}); };
  const te::Tensor weights = te::compute("attention_weights", scored, {scores, largest}, [&](const te::Indices& i) {
    const Expr shift = largest(head_of(i));
    return call(Intrinsic::exp_nonpositive, {scores(i) - (is_zero_if_masked || is_cut ? shift_of(shift) : shift)});
  });
  const te::Tensor sum =
      te::reduce("attention_sum", parts, key_extent, te::Combiner::sum, {weights},
                 [&](const te::Indices& i, const te::Indices& r) { return weights(appended(i, r[0])); });
  const te::Tensor values = is_tiled ? tiles_of("attention_values", v) : v;
  const te::Tensor factors = is_tiled ? te::compute("attention_rounded", scored, {weights},
                                                    [&](const te::Indices& i) { return cast(dtype, weights(i)); })
                                      : weights;
  const te::Tensor mixed = te::reduce("attention_mixed", with(parts, s.result_size), key_extent, te::Combiner::sum,
                                      {factors, values}, [&](const te::Indices& i, const te::Indices& r) {
                                        const Expr factor = factor_of(c, 0, factors(appended(head_of(i), r[0])));
                                        const Expr value = element_of(values, i, r[0], i.back());
                                        // Stages come in the order of what they read: the tile before the scores.
                                        return is_tiled ? value * factor : factor * value;
                                      });
  te::Tensor total = sum, joined = mixed;
  if (is_cut) {
    const std::vector<Expr> count{parts.back()};
    const te::Tensor top =
        te::reduce("attention_top", rows, count, te::Combiner::max, {largest},
                   [&](const te::Indices& i, const te::Indices& r) { return largest(appended(i, r[0])); });
    const te::Tensor share = te::compute("attention_share", parts, {largest, top}, [&](const te::Indices& i) {
      return call(Intrinsic::exp_nonpositive, {largest(i) - shift_of(top(row(i)))});
    });
    total = te::reduce(
        "attention_total", rows, count, te::Combiner::sum, {share, sum},
        [&](const te::Indices& i, const te::Indices& r) { return share(appended(i, r[0])) * sum(appended(i, r[0])); });
    joined = te::reduce("attention_joined", with(rows, s.result_size), count, te::Combiner::sum, {share, mixed},
                        [&](const te::Indices& i, const te::Indices& r) {
                          const te::Indices part = appended(row(i), r[0]);
                          const Expr of_part = mixed(appended(part, i.back()));
                          return is_tiled ? of_part * share(part) : share(part) * of_part;
                        });
  }
  return {te::compute("attention", c.outputs[0].shape, {joined, total}, [&](const te::Indices& i) {
    te::Indices at(i.begin(), i.begin() + batch);
    const Expr& h = i[batch];
    at.insert(at.end(),
              {s.group == 1 ? h : floor_div(h, s.group), s.group == 1 ? Expr(0) : floor_mod(h, s.group), i[batch + 1]});
    Expr divisor = total(at);
    if (is_zero_if_masked) divisor = select(equal(divisor, number(0)), number(1), divisor);
    return cast(dtype, joined(appended(at, i.back())) / divisor);
  })};
}

OpDef attention_op() {
  OpDef op;
  op.name = "attention";
  op.kind = OpKind::composite;
  op.doc =
      "softmax(scale · q kᵀ + mask) · v over the keys, for q […, heads, queries, size], k […, shared heads, keys, "
      "size] "
      "and v […, shared heads, keys, size of the result]; each head of k and v serves as many of q.  A mask broadcasts "
      "to […, heads, queries, keys]: floats are added, where bools are false the score is `masked`.  f16 and bf16 are "
      "computed in f32.";
  op.input_names = {"q", "k", "v", "mask"};
  op.optional_inputs = 1;
  op.attributes = {{"scale", 1.0, false, "of the scores"},
                   {"masked", -std::numeric_limits<double>::infinity(), false, "the score where a bool mask is false"},
                   {"zero_if_masked", 0, false, "1: rows whose scores are all -∞ are 0, otherwise NaN"},
                   {"causal", 0, false, "keys that the first query sees, and each next one sees one more; 0: all"},
                   operands_attribute()};
  op.decisions = {{"split_kv", "keys of a part, whose results are joined; 0: all together"},
                  {"query_tile", "queries of a tile, which meet a part at a time; 0: stages have no tiles"}};
  op.facts = {.axes = unknown_axes,
              .rounding = Rounding::multiplies,
              .operands = 3,
              .linear = not_linear,
              .update = makes_all_anew,
              .part = no_part,
              .takes_strides = true};
  op.infer = infer;
  op.compute = compute;
  const TensorType q = tensor_type(f32, {2, 4, 3, 5}), k = tensor_type(f32, {2, 2, 6, 5}),
                   v = tensor_type(f32, {2, 2, 6, 7});
  op.examples = {{{q, q, q}, attributes_of({{"scale", 0.5}})},
                 {{q, k, v, tensor_type(f32, {3, 6})}},
                 {{q, k, v, tensor_type(boolean, {2, 1, 1, 6})}, attributes_of({{"zero_if_masked", 1}})},
                 {{q, k, v}, attributes_of({{"causal", 2}})},
                 {{q, k, v}, attributes_of({{"operands", "tf32"}})},
                 {{tensor_type(f16, {3, 4, 5}), tensor_type(f16, {3, 4, 5}), tensor_type(f16, {3, 4, 5})}}};
  return op;
}

}  // namespace

std::vector<OpDef> attention_family() {
  return {attention_op()};
}

}  // namespace tw::relay
