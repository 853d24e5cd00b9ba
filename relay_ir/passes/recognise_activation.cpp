// Activations: GELU in both forms, SiLU, hard sigmoid, hard swish.
#include <cmath>

#include "relay_ir/passes/recognise.h"

namespace tw::relay {
namespace {

// a · b · 0.5 in any grouping.
Pattern half_product(const Pattern& a, const Pattern& b) {
  return either({scaled(a * b, 0.5), scaled(a, 0.5) * b, a * scaled(b, 0.5)});
}

Recognition gelu_by_erf() {
  const Pattern x = any();
  const Pattern inner = scaled(x, std::sqrt(0.5));
  return {half_product(x, op("erf", {inner}) + number(1)), [=](Site& s) { return s.result("gelu", {s[x]}); }};
}

// √(2/π) · (x + 0.044715 x³), or √(2/π) · x · (1 + 0.044715 x²).
Recognition gelu_by_tanh() {
  const Pattern x = any();
  const Pattern cube = either({(x * x) * x, op("power", {x, number(3)})});
  const double root = std::sqrt(2 / M_PI);
  const Pattern factor = number(1) + number(0.044715) * (x * x);
  const Pattern inner = either({number(root) * (x + number(0.044715) * cube), (number(root) * x) * factor,
                                number(root) * (x * factor), x * (number(root) * factor)});
  return {half_product(x, op("tanh", {inner}) + number(1)),
          [=](Site& s) { return s.result("gelu", {s[x]}, attributes_of({{"approximate", int64_t{1}}})); }};
}

Recognition silu() {
  const Pattern x = any(), alpha = number();
  const Pattern plain = x * op("sigmoid", {x}), steep = x * op("sigmoid", {alpha * x});
  return {either({plain, steep}), [=](Site& s) -> ValueId {
            const double slope = s.has(alpha) ? s.number(alpha) : 1.0;
            if (!(s.type(x) == s.result_type())) return no_value;  // alpha may be larger than x
            return s.result("silu", {s[x]}, attributes_of({{"alpha", slope}}));
          }};
}

Pattern clipped(const Pattern& x, double high) {
  const auto has_bounds = [high](const Node& clip) {
    return clip.attributes.get_float("low") == 0 && clip.attributes.get_float("high") == high;
  };
  return either({op("clip", {x}, has_bounds), op("minimum", {op("relu", {x}), number(high)}),
                 op("minimum", {op("maximum", {x, number(0)}), number(high)})});
}

// clip(x + 3, 0, 6) / 6
Pattern sixth_of_clipped(const Pattern& x) {
  return scaled(clipped(x + number(3), 6), 1.0 / 6);
}

Recognition hard_sigmoid() {
  const Pattern x = any();
  return {sixth_of_clipped(x), [=](Site& s) -> ValueId {
            if (!(s.type(x) == s.result_type())) return no_value;
            return s.result("hard_sigmoid", {s[x]}, attributes_of({{"alpha", 1.0 / 6}, {"beta", 0.5}}));
          }};
}

Recognition hard_swish() {
  const Pattern x = any();
  const auto is_sixth = [](const Node& node) {
    const double alpha = node.attributes.get_float("alpha");
    return std::abs(alpha * 6 - 1) < 1e-6 && node.attributes.get_float("beta") == 0.5;
  };
  const Pattern gate = either({sixth_of_clipped(x), op("hard_sigmoid", {x}, is_sixth)});
  const Pattern product = either(
      {x * gate, scaled(x * clipped(x + number(3), 6), 1.0 / 6), scaled(x, 1.0 / 6) * clipped(x + number(3), 6)});
  return {product,
          [=](Site& s) -> ValueId { return s.type(x) == s.result_type() ? s.result("hard_swish", {s[x]}) : no_value; }};
}

}  // namespace

std::vector<Recognition> activation_recognitions() {
  return {gelu_by_erf(), gelu_by_tanh(), silu(), hard_swish(), hard_sigmoid()};
}

}  // namespace tw::relay
