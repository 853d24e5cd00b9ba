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
#include <limits>

#include "relay_ir/ops/attention.h"
#include "relay_ir/ops/common.h"

namespace tw::relay {
namespace {

// Dimensions of q by what they are.
struct Shapes {
  std::vector<Expr> batch;
  Expr heads, shared_heads, queries, keys, size, result_size;
  int64_t group = 1;  // query heads to a head of k
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
  return s;
}

std::vector<TensorType> infer(const OpCall& c) {
  const TensorType &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2];
  c.require(q.dtype.is_float() && k.dtype == q.dtype && v.dtype == q.dtype, "q, k and v are floats of one type");
  const int rank = q.rank();
  c.require(rank >= 3 && k.rank() == rank && v.rank() == rank, "q, k and v have one rank, 3 or more");
  for (int d = 0; d < rank - 3; ++d) {
    c.require(is_same_dim(q.shape[d], k.shape[d]) && is_same_dim(q.shape[d], v.shape[d]), "batch dimensions are equal");
  }
  c.require(is_same_dim(q.shape[rank - 1], k.shape[rank - 1]), "q and k have elements of one size");
  c.require(is_same_dim(k.shape[rank - 2], v.shape[rank - 2]), "there is a row of v for each of k");
  c.require(is_same_dim(k.shape[rank - 3], v.shape[rank - 3]), "k and v have the same heads");
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
    for (int d = 0; d < rank; ++d) c.require(is_same_dim(shape[d], scores[d]), "the mask broadcasts to the scores");
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
  std::vector<Expr> rows = s.batch;
  rows.insert(rows.end(), {s.shared_heads, Expr(s.group), s.queries});
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

  const te::Tensor query = te::compute("attention_query", with(rows, s.size), {q}, [&](const te::Indices& i) {
    const Expr value = cast(wide, q(of_query(i, i.back())));
    return c.attributes.get_float("scale") == 1 ? value : value * number(c.attributes.get_float("scale"));
  });
  te::Tensor scores = te::reduce("attention_scores", with(rows, s.keys), {s.size}, te::Combiner::sum, {query, k},
                                 [&](const te::Indices& i, const te::Indices& r) {
                                   return query(appended(row(i), r[0])) * cast(wide, k(of_key(i, i.back(), r[0])));
                                 });
  if (c.has_input(3)) {
    const te::Tensor raw = scores, mask = in[3];
    std::vector<Expr> shape = q.shape();
    shape.back() = s.keys;
    scores = te::compute("attention_masked", with(rows, s.keys), {raw, mask}, [&](const te::Indices& i) {
      const Expr at = broadcast_read(mask, of_query(i, i.back()), shape);
      return mask.dtype().is_bool() ? select(at, raw(i), number(masked)) : raw(i) + cast(wide, at);
    });
  }
  const te::Tensor largest =
      te::reduce("attention_max", rows, {s.keys}, te::Combiner::max, {scores},
                 [&](const te::Indices& i, const te::Indices& r) { return scores(appended(i, r[0])); });
  const te::Tensor weights =
      te::compute("attention_weights", with(rows, s.keys), {scores, largest}, [&](const te::Indices& i) {
        Expr shift = largest(row(i));
        // A row without any score: e^(-∞ - lowest) is 0, e^(-∞ + ∞) is none.
        if (is_zero_if_masked) shift = call(Intrinsic::maximum, {shift, number(-3e38)});
        return call(Intrinsic::exp, {scores(i) - shift});
      });
  const te::Tensor sum =
      te::reduce("attention_sum", rows, {s.keys}, te::Combiner::sum, {weights},
                 [&](const te::Indices& i, const te::Indices& r) { return weights(appended(i, r[0])); });
  const te::Tensor mixed =
      te::reduce("attention_mixed", with(rows, s.result_size), {s.keys}, te::Combiner::sum, {weights, v},
                 [&](const te::Indices& i, const te::Indices& r) {
                   return weights(appended(row(i), r[0])) * cast(wide, v(of_key(i, r[0], i.back())));
                 });
  return {te::compute("attention", c.outputs[0].shape, {mixed, sum}, [&](const te::Indices& i) {
    te::Indices at(i.begin(), i.begin() + batch);
    const Expr& h = i[batch];
    at.insert(at.end(),
              {s.group == 1 ? h : floor_div(h, s.group), s.group == 1 ? Expr(0) : floor_mod(h, s.group), i[batch + 1]});
    Expr total = sum(at);
    if (is_zero_if_masked) total = select(equal(total, number(0)), number(1), total);
    return cast(dtype, mixed(appended(at, i.back())) / total);
  })};
}

}  // namespace

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
  op.min_inputs = 3, op.max_inputs = 4;
  op.attributes = {{"scale", 1.0, false, "of the scores"},
                   {"masked", -std::numeric_limits<double>::infinity(), false, "the score where a bool mask is false"},
                   {"zero_if_masked", int64_t{0}, false, "1: rows whose scores are all -∞ are 0, otherwise NaN"}};
  op.infer = infer;
  op.compute = compute;
  const TensorType q = tensor_type(f32, {2, 4, 3, 5}), k = tensor_type(f32, {2, 2, 6, 5}),
                   v = tensor_type(f32, {2, 2, 6, 7});
  op.examples = {{{q, q, q}, attributes_of({{"scale", 0.5}})},
                 {{q, k, v, tensor_type(f32, {3, 6})}},
                 {{q, k, v, tensor_type(boolean, {2, 1, 1, 6})}, attributes_of({{"zero_if_masked", int64_t{1}}})},
                 {{tensor_type(f16, {3, 4, 5}), tensor_type(f16, {3, 4, 5}), tensor_type(f16, {3, 4, 5})}}};
  return op;
}

}  // namespace tw::relay
