// Probabilities of classes from those of one class against another.
#include "relay_ir/ops/common.h"
#include "relay_ir/ops/loops.h"

namespace tw::relay {
namespace {

constexpr int64_t most_classes = 1 << 10;
constexpr int64_t most_rounds = 100;

int64_t pairs_of(int64_t classes) {
  return classes * (classes - 1) / 2;
}

// One row: p minimises pᵀQp, where Q[t, t] is the sum over j of r[j, t]² and Q[t, j] is -r[j, t]·r[t, j]; each round
// makes one entry after the other the best one.
Stmt couple_row(const Expr& row, const te::Tensor& pairs, const Buffer& result, int64_t classes) {
  const Buffer q("q", f64, {Expr(classes), Expr(classes)}, Scope::stack),
      product("product", f64, {Expr(classes)}, Scope::stack), p("p", f64, {Expr(classes)}, Scope::stack),
      state("state", f64, {Expr(2)}, Scope::stack);
  enum { whole, error };  // of state: pᵀQp; how far the round before was from done
  const auto number = [](double value) { return float_imm(f64, value); };
  const auto get = [&](int64_t which) { return load(state, {Expr(which)}); };
  const auto set = [&](int64_t which, const Expr& value) { return store(state, {Expr(which)}, value); };
  const auto at = [&](const Buffer& buffer, const Expr& i) { return load(buffer, {i}); };
  const auto loop = [&](const std::function<Stmt(const Expr&)>& body) {
    return loops_over({Expr(classes)}, [&](const te::Indices& i) { return body(i[0]); });
  };
  // Pairs follow one another: 0 and 1, 0 and 2 …, 1 and 2 …
  const auto against = [&](const Expr& a, const Expr& b) {
    const Expr first = min(a, b), second = max(a, b);
    const Expr place = floor_div(first * (2 * classes - 1 - first), Expr(2)) + second - first - 1;
    const Expr value = cast(f64, pairs({row, max(min(place, Expr(pairs_of(classes) - 1)), Expr(0))}));
    return select(a < b, value, number(1) - value);
  };
  const Stmt begin = loop([&](const Expr& t) {
    const Stmt of_pair = loop([&](const Expr& j) {
      const Expr other = against(j, t), own = against(t, j);
      return make_stmt<If>(not_equal(t, j),
                           seq({store(q, {t, t}, load(q, {t, t}) + other * other), store(q, {t, j}, -(other * own))}));
    });
    return seq({store(p, {t}, number(1.0 / static_cast<double>(classes))), store(q, {t, t}, number(0)), of_pair});
  });
  const Stmt multiply =
      seq({set(whole, number(0)), set(error, number(0)), loop([&](const Expr& t) {
             const Stmt add =
                 loop([&](const Expr& j) { return store(product, {t}, at(product, t) + load(q, {t, j}) * at(p, j)); });
             return seq({store(product, {t}, number(0)), add, set(whole, get(whole) + at(p, t) * at(product, t))});
           }),
           loop([&](const Expr& t) {
             return set(error, max(get(error), call(Intrinsic::abs, {at(product, t) - get(whole)})));
           })});
  const Stmt improve = loop([&](const Expr& t) {
    const Var step("step", f64);
    const Expr one = number(1), q_t = load(q, {t, t});
    const Expr next = (get(whole) + step * (step * q_t + number(2) * at(product, t))) / (one + step) / (one + step);
    const Stmt others = loop([&](const Expr& j) {
      return seq({store(product, {j}, (at(product, j) + step * load(q, {t, j})) / (one + step)),
                  store(p, {j}, at(p, j) / (one + step))});
    });
    return make_stmt<LetStmt>(step, (get(whole) - at(product, t)) / q_t,
                              seq({store(p, {t}, at(p, t) + step), set(whole, next), others}));
  });
  const Expr is_far = get(error) >= number(0.005 / static_cast<double>(classes));
  const Stmt round = make_stmt<If>(is_far, seq({multiply, make_stmt<If>(is_far, improve)}));
  const Stmt rounds = loops_over({Expr(most_rounds)}, [&](const te::Indices&) { return round; });
  const Stmt give = loop([&](const Expr& t) { return store(result, {row, t}, cast(result->dtype, at(p, t))); });
  Stmt body = seq({begin, set(error, number(1)), rounds, give});
  for (const Buffer& buffer : {state, p, product, q}) body = make_stmt<Allocate>(buffer, body);
  return body;
}

AxisUses coupling_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  uses[0][0] = same_axis(0);
  return uses;
}

OpDef pairwise_coupling_op() {
  OpDef op;
  op.name = "pairwise_coupling";
  op.kind = OpKind::opaque;
  op.doc =
      "Probabilities of classes, [rows, classes], from those of the first of two, for all pairs: [rows, pairs], "
      "between "
      "0 and 1.  Wu, Lin and Weng, Probability Estimates for Multi-class Classification by Pairwise Coupling (2004), "
      "algorithm 2 as LIBSVM ends it: after 100 rounds, or when the error is below 0.005 / classes.";
  op.input_names = {"pairs"};
  op.attributes = {{"classes", int64_t{2}, true, "how many"}};
  op.facts = plain_facts(coupling_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType& pairs = c.inputs[0];
    const int64_t classes = c.attributes.get_int("classes");
    c.require((pairs.dtype == f32 || pairs.dtype == f64) && pairs.rank() == 2, "pairs are f32 or f64 [rows, pairs]");
    c.require(classes >= 2 && classes <= most_classes, "2 classes or more, up to " + std::to_string(most_classes));
    c.require_equal(pairs.shape[1], Expr(pairs_of(classes)), "a number for each pair");
    return {{pairs.dtype, {pairs.shape[0], Expr(classes)}}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return te::opaque("pairwise_coupling", in, {{c.outputs[0].dtype, c.outputs[0].shape}},
                      [&](const std::vector<Buffer>& out) {
                        const Var row("row");
                        const Stmt body = couple_row(row, in[0], out[0], c.attributes.get_int("classes"));
                        return make_stmt<For>(row, in[0].shape()[0], LoopKind::parallel, body);
                      });
  };
  for (const DType dtype : {f32, f64})
    op.examples.push_back({{tensor_type(dtype, {4, 3})}, attributes_of({{"classes", int64_t{3}}}), {}, 0.1, 0.9});
  return op;
}

}  // namespace

std::vector<OpDef> coupling_family() {
  return {pairwise_coupling_op()};
}

}  // namespace tw::relay
