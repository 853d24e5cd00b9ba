// Rows of one input: mathematics, activations, predicates.
#include "relay_ir/ops/elementwise_rows.h"

namespace tw::relay {
namespace {

Expr attribute(const OpCall& c, const char* name, const Expr& like) {
  return number(like, c.attributes.get_float(name));
}

template <Intrinsic intrinsic>
Expr math(const OpCall&, const Args& a) {
  return call(intrinsic, {a[0]});
}

// x (1 + erf(x / √2)) / 2, which is x · normal_cdf(x); or with tanh(y), y = √(2/π) (x + 0.044715 x³), in erf's place,
// and (1 + tanh(y)) / 2 is sigmoid(2y): shorter, and nothing cancels below 0.
Expr gelu(const OpCall& c, const Args& a) {
  const Expr& x = a[0];
  if (c.attributes.get_int("approximate") != 0) {
    constexpr double twice_root = 1.5957691216057308;  // 2 √(2/π)
    return x * call(Intrinsic::sigmoid, {x * (number(x, twice_root) + number(x, twice_root * 0.044715) * (x * x))});
  }
  return x * call(Intrinsic::normal_cdf, {x});
}

// log(1 + y) for y ≥ 0 without losing small y: y · log(u) / (u - 1) with u = 1 + y is exact to rounding.
Expr log_one_plus(const Expr& y) {
  const Expr u = y + number(y, 1);
  const Expr is_tiny = equal(u, number(y, 1));
  return select(is_tiny, y, y * (call(Intrinsic::log, {u}) / select(is_tiny, number(y, 1), u - number(y, 1))));
}

Expr softplus_of(const Expr& x) {
  return maximum_of(x, number(x, 0)) + log_one_plus(call(Intrinsic::exp, {-call(Intrinsic::abs, {x})}));
}

Expr hard_sigmoid_of(const Expr& x, double alpha, double beta) {
  return maximum_of(minimum_of(number(x, alpha) * x + number(x, beta), number(x, 1)), number(x, 0));
}

Expr abs_of(const OpCall&, const Args& a) {
  return a[0].dtype().is_unsigned_integer() ? a[0] : call(Intrinsic::abs, {a[0]});
}

Expr sign_of(const OpCall&, const Args& a) {
  const Expr& x = a[0];
  if (x.dtype().is_float() || x.dtype().is_signed_integer()) return call(Intrinsic::sign, {x});
  return select(not_equal(x, 0), number(x, 1), number(x, 0));
}

Expr reciprocal(const OpCall&, const Args& a) {
  return number(a[0], 1) / a[0];
}

Expr clip(const OpCall& c, const Args& a) {
  return minimum_of(maximum_of(a[0], attribute(c, "low", a[0])), attribute(c, "high", a[0]));
}

Expr leaky_relu(const OpCall& c, const Args& a) {
  return select(a[0] < 0, attribute(c, "alpha", a[0]) * a[0], a[0]);
}

Expr elu(const OpCall& c, const Args& a) {
  const double beta = c.attributes.get_float("beta");
  const Expr scaled = beta == 1 ? a[0] : a[0] / number(a[0], beta);
  const Expr below = attribute(c, "alpha", a[0]) * (call(Intrinsic::exp, {scaled}) - number(a[0], 1));
  const Expr value = select(a[0] < 0, below, a[0]);
  return c.attributes.get_float("gamma") == 1 ? value : attribute(c, "gamma", a[0]) * value;
}

Expr silu(const OpCall& c, const Args& a) {
  const bool is_plain = c.attributes.get_float("alpha") == 1;
  return a[0] * call(Intrinsic::sigmoid, {is_plain ? a[0] : attribute(c, "alpha", a[0]) * a[0]});
}

Expr hard_sigmoid(const OpCall& c, const Args& a) {
  return hard_sigmoid_of(a[0], c.attributes.get_float("alpha"), c.attributes.get_float("beta"));
}

Expr thresholded_relu(const OpCall& c, const Args& a) {
  return select(a[0] > attribute(c, "alpha", a[0]), a[0], number(a[0], 0));
}

Expr shrink(const OpCall& c, const Args& a) {
  const Expr lambda = attribute(c, "lambda", a[0]), bias = attribute(c, "bias", a[0]);
  const Expr zero = number(a[0], 0);
  return select(a[0] < number(a[0], -c.attributes.get_float("lambda")), a[0] + bias,
                select(a[0] > lambda, a[0] - bias, zero));
}

Expr is_inf(const OpCall& c, const Args& a) {
  const bool positive = c.attributes.get_int("positive") != 0, negative = c.attributes.get_int("negative") != 0;
  if (positive && negative) return call(Intrinsic::is_inf, {a[0]});
  if (positive) return equal(a[0], highest_of(a[0].dtype()));
  if (negative) return equal(a[0], lowest_of(a[0].dtype()));
  return not_equal(number(a[0], 0), number(a[0], 0));
}

}  // namespace

std::vector<ElementwiseRow> unary_rows() {
  using enum Takes;
  using enum Gives;
  using enum Rounding;
  using I = Intrinsic;
  const std::vector<std::string> x{"x"};
  return {
      {"abs", x, numbers, same, keeps, "|x|", abs_of},
      {"negate", x, signed_numbers, same, keeps, "-x", [](const OpCall&, const Args& a) { return -a[0]; }},
      {"sign", x, numbers, same, exact, "-1, 0 or 1; NaN stays", sign_of},
      {"ceil", x, floats, same, exact, "the next whole number above", math<I::ceil>},
      {"floor", x, floats, same, exact, "the next whole number below", math<I::floor>},
      {"round", x, floats, same, exact, "to the nearest whole number, ties to even", math<I::round_even>},
      {"sqrt", x, floats, same, exact, "square root", math<I::sqrt>, {}, 0.1, 4},
      {"rsqrt", x, floats, same, exact, "1 / √x", math<I::rsqrt>, {}, 0.1, 4},
      {"reciprocal", x, floats, same, exact, "1 / x", reciprocal, {}, 0.5, 2},
      {"exp", x, floats, same, exact, "e to the x", math<I::exp>},
      {"log", x, floats, same, exact, "natural logarithm", math<I::log>, {}, 0.1, 4},
      {"sin", x, floats, same, exact, "sine", math<I::sin>},
      {"cos", x, floats, same, exact, "cosine", math<I::cos>},
      {"tan", x, floats, same, exact, "tangent", math<I::tan>, {}, -1, 1},
      {"asin", x, floats, same, exact, "arc sine", math<I::asin>, {}, -1, 1},
      {"acos", x, floats, same, exact, "arc cosine", math<I::acos>, {}, -1, 1},
      {"atan", x, floats, same, exact, "arc tangent", math<I::atan>},
      {"sinh", x, floats, same, exact, "hyperbolic sine", math<I::sinh>},
      {"cosh", x, floats, same, exact, "hyperbolic cosine", math<I::cosh>},
      {"asinh", x, floats, same, exact, "inverse hyperbolic sine", math<I::asinh>},
      {"acosh", x, floats, same, exact, "inverse hyperbolic cosine", math<I::acosh>, {}, 1, 4},
      {"atanh", x, floats, same, exact, "inverse hyperbolic tangent", math<I::atanh>, {}, -0.9, 0.9},
      {"tanh", x, floats, same, keeps, "hyperbolic tangent", math<I::tanh>},
      {"erf", x, floats, same, keeps, "error function", math<I::erf>},
      {"sigmoid", x, floats, same, keeps, "1 / (1 + e^-x)", math<I::sigmoid>},
      {"relu", x, numbers, same, keeps, "max(x, 0)",
       [](const OpCall&, const Args& a) { return maximum_of(a[0], number(a[0], 0)); }},
      {"clip", x, floats, same, keeps, "min(max(x, low), high)", clip,
       Attributes{{"low", 0.0, false, "lower bound"}, {"high", 1.0, false, "upper bound"}}},
      {"leaky_relu", x, floats, same, keeps, "x, or alpha·x where x < 0", leaky_relu,
       Attributes{{"alpha", 0.01, false, "slope below 0"}}},
      {"elu", x, floats, same, keeps, "gamma·x, or gamma·alpha·(e^(x / beta) - 1) where x < 0", elu,
       Attributes{{"alpha", 1.0, false, "limit below"},
                  {"beta", 1.0, false, "width below"},
                  {"gamma", 1.0, false, "scale of all"}}},
      {"gelu", x, floats, same, keeps, "x · Φ(x), Φ the normal distribution's; or its tanh approximation", gelu,
       Attributes{{"approximate", 0, false, "1: the tanh form"}}},
      {"silu", x, floats, same, keeps, "x · sigmoid(alpha·x)", silu,
       Attributes{{"alpha", 1.0, false, "of the sigmoid's argument"}}},
      {"softplus", x, floats, same, keeps, "log(1 + e^x)",
       [](const OpCall&, const Args& a) { return softplus_of(a[0]); }},
      {"softsign", x, floats, same, keeps, "x / (1 + |x|)",
       [](const OpCall&, const Args& a) { return a[0] / (number(a[0], 1) + call(I::abs, {a[0]})); }},
      {"mish", x, floats, same, keeps, "x · tanh(log(1 + e^x))",
       [](const OpCall&, const Args& a) { return a[0] * call(I::tanh, {softplus_of(a[0])}); }},
      {"hard_sigmoid", x, floats, same, keeps, "min(max(alpha·x + beta, 0), 1)", hard_sigmoid,
       Attributes{{"alpha", 0.2, false, "slope"}, {"beta", 0.5, false, "value at 0"}}},
      {"hard_swish", x, floats, same, keeps, "x · min(max(x / 6 + 0.5, 0), 1)",
       [](const OpCall&, const Args& a) { return a[0] * hard_sigmoid_of(a[0], 1.0 / 6, 0.5); }},
      {"thresholded_relu", x, floats, same, exact, "x where x > alpha, otherwise 0", thresholded_relu,
       Attributes{{"alpha", 1.0, false, "threshold"}}},
      {"shrink", x, numbers, same, keeps, "x + bias where x < -lambda, x - bias where x > lambda, otherwise 0", shrink,
       Attributes{{"lambda", 0.5, false, "threshold"}, {"bias", 0.0, false, "moved towards 0 by this"}}},
      {"is_nan", x, floats, truth, exact, "whether x is not a number", math<I::is_nan>},
      {"is_inf", x, floats, truth, exact, "whether x is infinite", is_inf,
       Attributes{{"positive", 1, false, "+∞ counts"}, {"negative", 1, false, "-∞ counts"}}},
      {"logical_not", x, bools, truth, exact, "not x", [](const OpCall&, const Args& a) { return !a[0]; }},
      {"bit_not", x, integers, same, exact, "every bit of x inverted",
       [](const OpCall&, const Args& a) { return make_expr<Unary>(a[0].dtype(), UnaryOp::bit_not, a[0]); }},
  };
}

}  // namespace tw::relay
