// Matrix products: matmul, and einsum as one general contraction.
#include <algorithm>
#include <map>

#include "relay_ir/ops/common.h"
#include "relay_ir/ops/loops.h"

namespace tw::relay {
namespace {

std::vector<Expr> batch_of(const TensorType& type) {
  return {type.shape.begin(), type.shape.end() - 2};
}

// The tensor's own batch indices, from those of the broadcast batch.
te::Indices batch_indices(const te::Tensor& t, const te::Indices& output) {
  te::Indices result;
  const size_t batch = t.shape().size() - 2, skip = output.size() - 2 - batch;
  for (size_t i = 0; i < batch; ++i) result.push_back(is_const_int(t.shape()[i], 1) ? Expr(0) : output[skip + i]);
  return result;
}
AxisUses matmul_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  const int rank = c.outputs[0].rank();
  const bool is_transposed[] = {c.attributes.get_int("transpose_a") != 0, c.attributes.get_int("transpose_b") != 0};
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<Expr>& shape = c.inputs[i].shape;
    const int own = c.inputs[i].rank(), skip = rank - own;
    for (int d = 0; d < rank - 2; ++d) {
      const bool is_one = d < skip || is_const_int(shape[d - skip], 1);
      uses[i][d] = is_one ? fixed_axis() : same_axis(d - skip);
    }
    const bool is_a = i == 0;
    uses[i][rank - 2] = is_a ? same_axis(own - (is_transposed[0] ? 1 : 2)) : fixed_axis();
    uses[i][rank - 1] = is_a ? fixed_axis() : same_axis(own - (is_transposed[1] ? 2 : 1));
  }
  return uses;
}

OpDef matmul_op() {
  OpDef op;
  op.name = "matmul";
  op.takes_narrow = true;
  op.kind = OpKind::contraction;
  op.doc =
      "c[…, i, j] = Σₖ a[…, i, k] · b[…, k, j], batch dimensions broadcast.  transpose_a, transpose_b: the last two "
      "dimensions of the input are stored the other way round.  f16 and bf16 accumulate in f32.";
  op.input_names = {"a", "b"};
  op.attributes = {{"transpose_a", 0, false, "1: a is […, k, i]"},
                   {"transpose_b", 0, false, "1: b is […, j, k]"},
                   result_attribute(),
                   operands_attribute()};
  op.facts = linear_facts(matmul_axes, Rounding::multiplies, 2, [](const OpCall& c) -> std::optional<Linear> {
    const bool ta = c.attributes.get_int("transpose_a") != 0, tb = c.attributes.get_int("transpose_b") != 0;
    const int a = c.inputs[0].rank(), b = c.inputs[1].rank();
    return Linear{.data_axis = a - (ta ? 2 : 1),
                  .weight_axis = b - (tb ? 1 : 2),
                  .result_axis = c.outputs[0].rank() - 1,
                  .filter_axis = b - (tb ? 2 : 1)};
  });
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &a = c.inputs[0], &b = c.inputs[1];
    const DType result = contraction_dtype(c);
    c.require(a.rank() >= 2 && b.rank() >= 2, "inputs have at least two dimensions");
    const bool ta = c.attributes.get_int("transpose_a") != 0, tb = c.attributes.get_int("transpose_b") != 0;
    const Expr k_of_a = a.shape[a.rank() - (ta ? 2 : 1)], k_of_b = b.shape[b.rank() - (tb ? 1 : 2)];
    c.require_equal(k_of_a, k_of_b, "inner dimensions differ");
    std::vector<Expr> shape = broadcast_shapes(c, {batch_of(a), batch_of(b)});
    shape.push_back(a.shape[a.rank() - (ta ? 1 : 2)]);
    shape.push_back(b.shape[b.rank() - (tb ? 2 : 1)]);
    return {{result, shape}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor &a = in[0], &b = in[1];
    const bool ta = c.attributes.get_int("transpose_a") != 0, tb = c.attributes.get_int("transpose_b") != 0;
    const te::Tensor product = te::reduce("matmul", c.outputs[0].shape, {a.shape()[a.rank() - (ta ? 2 : 1)]},
                                          te::Combiner::sum, {a, b}, [&](const te::Indices& s, const te::Indices& r) {
                                            te::Indices ia = batch_indices(a, s), ib = batch_indices(b, s);
                                            const Expr &i = s[s.size() - 2], &j = s[s.size() - 1], &k = r[0];
                                            ia.push_back(ta ? k : i), ia.push_back(ta ? i : k);
                                            ib.push_back(tb ? j : k), ib.push_back(tb ? k : j);
                                            return factor_of(c, 0, a(ia)) * factor_of(c, 1, b(ib));
                                          });
    return {cast_stage(product, c.outputs[0].dtype)};
  };
  op.examples = {{{tensor_type(f32, {3, 4}), tensor_type(f32, {4, 5})}, {}},
                 {{tensor_type(f16, {2, 1, 3, 4}), tensor_type(f16, {2, 5, 4})}, attributes_of({{"transpose_b", 1}})},
                 {{tensor_type(i32, {4, 3}), tensor_type(i32, {2, 4, 2})}, attributes_of({{"transpose_a", 1}})},
                 {{tensor_type(f32, {3, 4}), tensor_type(bf16, {4, 5})}, attributes_of({{"result", "f32"}})},
                 {{tensor_type(f32, {3, 4}), tensor_type(f32, {4, 5})}, attributes_of({{"operands", "tf32"}})},
                 {{tensor_type(f8e4m3fn, {3, 4}), tensor_type(f8e5m2, {4, 5})}, attributes_of({{"result", "f32"}})}};
  return op;
}

// "ij,jk->ik" with an ellipsis already replaced by letters.
struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

Equation parse_equation(const OpCall& c) {
  const std::string& text = c.attributes.get_string("equation");
  Equation result;
  const size_t arrow = text.find("->");
  c.require(arrow != std::string::npos, "the equation has an output: `->`");
  result.output = text.substr(arrow + 2);
  std::string term;
  for (const char letter : text.substr(0, arrow) + ",") {
    if (letter == ',') {
      result.inputs.push_back(term);
      term.clear();
    } else {
      term += letter;
    }
  }
  c.require(result.inputs.size() == c.inputs.size(), "the equation has as many terms as there are inputs");
  return result;
}

std::map<char, Expr> extents_of(const OpCall& c, const Equation& equation) {
  std::map<char, Expr> extents;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    const std::string& term = equation.inputs[i];
    c.require(static_cast<int>(term.size()) == c.inputs[i].rank(), "term `" + term + "` has the rank of its input");
    for (size_t k = 0; k < term.size(); ++k) {
      const Expr& dim = c.inputs[i].shape[k];
      const auto [found, is_new] = extents.emplace(term[k], dim);
      if (is_new || is_const_int(dim, 1)) continue;
      if (!is_const_int(found->second, 1))
        c.require_equal(found->second, dim, std::string("dimensions of `") + term[k] + "` differ");
      found->second = dim;
    }
  }
  return extents;
}

OpDef einsum_op() {
  OpDef op;
  op.name = "einsum";
  op.kind = OpKind::contraction;
  op.doc =
      "A sum of products by index letters: \"ij,jk->ik\".  Letters that the output lacks are summed over; one that an "
      "input repeats takes its diagonal; extents of 1 broadcast.";
  op.input_names = {"inputs"};
  op.takes_any_number = true;
  op.attributes = {{"equation", "", true, "letters of each input, `->`, letters of the output"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const Equation equation = parse_equation(c);
    const auto extents = extents_of(c, equation);
    TensorType type{c.inputs[0].dtype, {}};
    for (const TensorType& input : c.inputs) c.require(input.dtype == type.dtype, "inputs have one type");
    c.require(!type.dtype.is_bool(), "takes numbers");
    for (const char letter : equation.output) {
      c.require(extents.count(letter) != 0, std::string("output letter `") + letter + "` occurs in an input");
      c.require(std::count(equation.output.begin(), equation.output.end(), letter) == 1, "output letters differ");
      type.shape.push_back(extents.at(letter));
    }
    return {type};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const Equation equation = parse_equation(c);
    const auto extents = extents_of(c, equation);
    std::string summed;
    std::vector<Expr> reduce_extents;
    for (const auto& [letter, extent] : extents) {
      if (equation.output.find(letter) != std::string::npos) continue;
      summed += letter;
      reduce_extents.push_back(extent);
    }
    const DType dtype = in[0].dtype(), accumulator = accumulator_of(dtype);
    auto value = [&](const te::Indices& s, const te::Indices& r) {
      Expr product;
      for (size_t i = 0; i < in.size(); ++i) {
        te::Indices indices;
        for (size_t k = 0; k < equation.inputs[i].size(); ++k) {
          const char letter = equation.inputs[i][k];
          const size_t at = equation.output.find(letter);
          const Expr index = at != std::string::npos ? s[at] : r[summed.find(letter)];
          indices.push_back(is_const_int(in[i].shape()[k], 1) ? Expr(0) : index);
        }
        const Expr factor = cast(accumulator, in[i](indices));
        product = product.is_defined() ? product * factor : factor;
      }
      return product;
    };
    if (reduce_extents.empty()) {
      return {te::compute("einsum", c.outputs[0].shape, in,
                          [&](const te::Indices& s) { return cast(dtype, value(s, {})); })};
    }
    return {cast_stage(te::reduce("einsum", c.outputs[0].shape, reduce_extents, te::Combiner::sum, in, value), dtype)};
  };
  op.examples = {{{tensor_type(f32, {2, 3}), tensor_type(f32, {3, 4})}, attributes_of({{"equation", "ij,jk->ik"}})},
                 {{tensor_type(f32, {2, 3, 3})}, attributes_of({{"equation", "bii->bi"}})},
                 {{tensor_type(i32, {4}), tensor_type(i32, {4})}, attributes_of({{"equation", "i,i->"}})}};
  return op;
}

OpDef determinant_op() {
  OpDef op;
  op.name = "determinant";
  op.kind = OpKind::opaque;
  op.doc =
      "Of each matrix, by elimination with the largest element of a column first.  f16 and bf16 are computed in f32.";
  op.input_names = {"x"};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType& x = c.inputs[0];
    c.require(x.dtype.is_float() && x.rank() >= 2, "takes matrices of floats");
    c.require_equal(x.shape[x.rank() - 2], x.shape.back(), "matrices have as many rows as columns");
    return {{x.dtype, {x.shape.begin(), x.shape.end() - 2}}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const DType wide = accumulator_of(x.dtype());
    const Expr n = x.shape().back(), zero(0);
    return te::opaque("determinant", in, {{x.dtype(), c.outputs[0].shape}}, [&](const std::vector<Buffer>& out) {
      const Buffer left = scratch("left", wide, {n, n}), product = scratch("product", wide, {Expr(1)}),
                   pivot = scratch("pivot", i64, {Expr(1)}), kept = scratch("kept", wide, {Expr(1)});
      const auto at = [&](const Expr& row, const Expr& column) { return load(left, {row, column}); };
      const auto size = [&](const Expr& row, const Expr& column) { return call(Intrinsic::abs, {at(row, column)}); };
      const Expr best = load(pivot, {zero}), so_far = load(product, {zero});
      const Stmt matrices = loops_over(c.outputs[0].shape, [&](const te::Indices& s) {
        const Stmt copy = loops_over({n, n}, [&](const te::Indices& i) {
          te::Indices from = s;
          from.insert(from.end(), i.begin(), i.end());
          return store(left, i, cast(wide, x(from)));
        });
        const Stmt steps = loops_over({n}, [&](const te::Indices& k) {
          const Stmt find = loops_over({n}, [&](const te::Indices& row) {
            return make_stmt<If>(row[0] > k[0] && size(row[0], k[0]) > size(best, k[0]), store(pivot, {zero}, row[0]));
          });
          const Stmt swap = loops_over({n}, [&](const te::Indices& column) {
            return seq({store(kept, {zero}, at(k[0], column[0])), store(left, {k[0], column[0]}, at(best, column[0])),
                        store(left, {best, column[0]}, load(kept, {zero}))});
          });
          const Stmt turn = make_stmt<If>(best > k[0], seq({swap, store(product, {zero}, -so_far)}));
          const Stmt eliminate = loops_over({n}, [&](const te::Indices& row) {
            const Stmt subtract = loops_over({n}, [&](const te::Indices& column) {
              const Expr rest = at(row[0], column[0]) - load(kept, {zero}) * at(k[0], column[0]);
              return make_stmt<If>(column[0] > k[0], store(left, {row[0], column[0]}, rest));
            });
            return make_stmt<If>(row[0] > k[0],
                                 seq({store(kept, {zero}, at(row[0], k[0]) / at(k[0], k[0])), subtract}));
          });
          return seq({store(pivot, {zero}, k[0]), find, turn, store(product, {zero}, so_far * at(k[0], k[0])),
                      make_stmt<If>(not_equal(at(k[0], k[0]), const_of(wide, 0)), eliminate)});
        });
        return seq({copy, store(product, {zero}, const_of(wide, 1)), steps, store(out[0], s, cast(x.dtype(), so_far))});
      });
      Stmt body = matrices;
      for (const Buffer& buffer : {left, product, pivot, kept}) body = make_stmt<Allocate>(buffer, body);
      return body;
    });
  };
  op.examples = {{{tensor_type(f32, {2, 3, 3})}}, {{tensor_type(f64, {1, 1})}}};
  return op;
}

}  // namespace

std::vector<OpDef> matmul_family() {
  return {matmul_op(), einsum_op(), determinant_op()};
}

}  // namespace tw::relay
