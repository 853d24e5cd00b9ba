// Support vector machines (ai.onnx.ml).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontends/onnx/scores.h"

namespace tw::frontends::onnx {
namespace {

constexpr int64_t most_classes = 1 << 10;

ValueId emit_power(Context& c, ValueId x, double exponent) {
  constexpr double most_products = 8;
  if (exponent != std::floor(exponent) || exponent < 1 || exponent > most_products)
    return c.emit("power", {x, emit_scalar(c, dtype_of(c, x), exponent)});
  ValueId y = x;
  for (int i = 1; i < static_cast<int>(exponent); ++i) y = c.emit("multiply", {y, x});
  return y;
}

// The kernel of each row of x [rows, features] and each vector: [rows, vectors].
ValueId emit_kernel(Context& c, ValueId x, const NDArray& vectors) {
  const std::string kind = c.attribute_string("kernel_type", "LINEAR");
  const Floats given = c.attribute_floats("kernel_params", {});
  if (!given.empty() && given.size() != 3) c.refuse(std::to_string(given.size()) + " kernel_params");
  const Floats parameters = given.empty() ? Floats{0, 0, 0} : given;
  const double gamma = parameters[0], offset = parameters[1], degree = parameters[2];
  const ValueId support = c.emit_constant(vectors);
  if (kind == "RBF") {
    // Differences rather than x² - 2xv + v², which cancel.
    const ValueId columns = emit_transpose(c, support, {1, 0});
    const ValueId difference = c.emit("subtract", {emit_new_axis(c, x, 2), emit_new_axis(c, columns, 0)});
    const ValueId distance = emit_reduce(c, "reduce_sum", c.emit("multiply", {difference, difference}), {1}, false);
    return c.emit("exp", {c.emit("multiply", {distance, emit_scalar(c, f32, -gamma)})});
  }
  const ValueId product = c.emit("matmul", {x, support}, attributes_of({{"transpose_b", int64_t{1}}}));
  if (kind == "LINEAR") return product;
  const ValueId scaled =
      c.emit("add", {c.emit("multiply", {product, emit_scalar(c, f32, gamma)}), emit_scalar(c, f32, offset)});
  if (kind == "POLY") return emit_power(c, scaled, degree);
  if (kind == "SIGMOID") return c.emit("tanh", {scaled});
  c.refuse("kernel_type=" + kind);
}

// Sums over the vectors, in f64: weights [results, vectors] may be large and of both signs.
ValueId emit_weighted(Context& c, ValueId kernel, const NDArray& weights, const Floats& offsets) {
  const ValueId wide = emit_cast(c, kernel, f64);
  const ValueId sum = c.emit("matmul", {wide, c.emit_constant(weights)}, attributes_of({{"transpose_b", int64_t{1}}}));
  return c.emit("add", {sum, c.emit_constant(float_array(offsets, f64))});
}

ValueId as_rows(Context& c) {
  ValueId x = emit_cast(c, c.input(0), f32);
  if (rank_of(c, x) == 1) x = emit_new_axis(c, x, 0);
  if (rank_of(c, x) != 2) c.refuse("data of type " + to_string(c.type(x)));
  return x;
}

// [vectors, features]
NDArray support_vectors(Context& c, ValueId x, int64_t vectors) {
  const Floats values = c.attribute_floats("support_vectors", {});
  const auto count = static_cast<int64_t>(values.size());
  if (vectors < 1 || count < 1 || count % vectors != 0) malformed("support_vectors are no " + std::to_string(vectors));
  c.require_equal(c.type(x).shape[1], Expr(count / vectors), "support_vectors of as many features");
  return float_array(values).reshape({vectors, count / vectors});
}

ValueId import_svm_regressor(Context& c) {
  const ValueId x = as_rows(c);
  const int64_t vectors = c.attribute_int("n_supports", 0);
  const Floats coefficients = c.attribute_floats("coefficients", {}), rho = c.attribute_floats("rho", {});
  if (c.attribute_string("post_transform", "NONE") != "NONE") c.refuse("post_transform of a regressor");
  require_length("rho", rho.size(), 1);
  const auto count = static_cast<int64_t>(coefficients.size());
  ValueId kernel = x;
  if (vectors > 0) {
    require_length("coefficients", coefficients.size(), static_cast<size_t>(vectors));
    kernel = emit_kernel(c, x, support_vectors(c, x, vectors));
  } else {
    c.require_equal(c.type(x).shape[1], Expr(count), "a coefficient for each feature");
  }
  const ValueId y = emit_weighted(c, kernel, float_array(coefficients, f64).reshape({1, count}), rho);
  if (c.attribute_int("one_class", 0) == 0) return emit_cast(c, y, f32);
  const ValueId is_inside = c.emit("less", {emit_scalar(c, f64, 0), y});
  return c.emit("where", {is_inside, emit_scalar(c, f32, 1), emit_scalar(c, f32, -1)});
}

// Pairs of classes in the order of their scores.
std::vector<std::pair<int64_t, int64_t>> pairs_of(int64_t classes) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0; i < classes; ++i)
    for (int64_t j = i + 1; j < classes; ++j) pairs.emplace_back(i, j);
  return pairs;
}

// Coefficients are [classes - 1, vectors]: of a vector of class i those against each other class.
NDArray pair_weights(const Floats& coefficients, const Ints& counts) {
  const auto pairs = pairs_of(static_cast<int64_t>(counts.size()));
  Ints starts(counts.size(), 0);
  std::partial_sum(counts.begin(), counts.end() - 1, starts.begin() + 1);
  const int64_t vectors = starts.back() + counts.back();
  NDArray weights(f64, {static_cast<int64_t>(pairs.size()), vectors});
  for (size_t p = 0; p < pairs.size(); ++p) {
    const auto [i, j] = pairs[p];
    const int64_t row = static_cast<int64_t>(p) * vectors;
    for (int64_t v = 0; v < vectors; ++v) weights.set_float(row + v, 0);
    for (int64_t v = starts[i]; v < starts[i] + counts[i]; ++v)
      weights.set_float(row + v, coefficients[(j - 1) * vectors + v]);
    for (int64_t v = starts[j]; v < starts[j] + counts[j]; ++v)
      weights.set_float(row + v, coefficients[i * vectors + v]);
  }
  return weights;
}

// The class that wins most pairs, of equals the first.
ValueId emit_winner(Context& c, ValueId scores, int64_t classes) {
  const auto pairs = pairs_of(classes);
  const auto count = static_cast<int64_t>(pairs.size());
  NDArray gains(f32, {count, classes});
  Floats second(classes, 0);
  for (int64_t k = 0; k < count * classes; ++k) gains.set_float(k, 0);
  for (int64_t p = 0; p < count; ++p) {
    gains.set_float(p * classes + pairs[p].first, 1), gains.set_float(p * classes + pairs[p].second, -1);
    second[pairs[p].second] += 1;
  }
  const ValueId is_first = emit_cast(c, c.emit("less", {emit_scalar(c, f64, 0), scores}), f32);
  const ValueId votes =
      c.emit("add", {c.emit("matmul", {is_first, c.emit_constant(gains)}), c.emit_constant(float_array(second))});
  return c.emit("arg_max", {votes}, attributes_of({{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}));
}

std::vector<ValueId> import_svm_classifier(Context& c) {
  const ClassLabels labels(c, "classlabels_ints", "classlabels_strings");
  const int64_t classes = labels.count();
  const Ints counts = c.attribute_ints("vectors_per_class", {});
  const Floats coefficients = c.attribute_floats("coefficients", {}), rho = c.attribute_floats("rho", {}),
               slopes = c.attribute_floats("prob_a", {}), offsets = c.attribute_floats("prob_b", {});
  if (counts.empty()) c.refuse("without support vectors");
  if (classes > most_classes) c.refuse(std::to_string(classes) + " classes");
  constexpr int64_t most_vectors = 1 << 28;
  int64_t vectors = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > most_vectors - vectors) malformed("vectors_per_class are no numbers of vectors");
    vectors += count;
  }
  const size_t pairs = pairs_of(classes).size();
  require_length("vectors_per_class", counts.size(), static_cast<size_t>(classes));
  require_length("coefficients", coefficients.size(), static_cast<size_t>(classes - 1) * static_cast<size_t>(vectors));
  require_length("rho", rho.size(), pairs);
  const ValueId x = as_rows(c);
  const ValueId kernel = emit_kernel(c, x, support_vectors(c, x, vectors));
  const ValueId scores = emit_weighted(c, kernel, pair_weights(coefficients, counts), rho);
  const ValueId label = labels.emit(emit_winner(c, scores, classes));
  if (!slopes.empty()) {
    // Platt's: 1 / (1 + exp(a · score + b)) that the first of a pair is right.
    require_length("prob_a", slopes.size(), pairs), require_length("prob_b", offsets.size(), pairs);
    const ValueId exponent = c.emit("add", {c.emit("multiply", {scores, c.emit_constant(float_array(slopes, f64))}),
                                            c.emit_constant(float_array(offsets, f64))});
    const ValueId first = c.emit("sigmoid", {c.emit("negate", {exponent})});
    const double least = 1e-7;
    const ValueId inside =
        c.emit("minimum", {c.emit("maximum", {first, emit_scalar(c, f64, least)}), emit_scalar(c, f64, 1 - least)});
    const ValueId shares = c.emit("pairwise_coupling", {inside}, attributes_of({{"classes", classes}}));
    return {label, emit_cast(c, emit_post_transform(c, shares), f32)};
  }
  if (classes > 2) return {label, emit_cast(c, emit_post_transform(c, scores), f32)};
  if (c.attribute_string("post_transform", "NONE") != "NONE") c.refuse("post_transform of one score for two classes");
  return {label, emit_cast(c, emit_concat(c, {c.emit("negate", {scores}), scores}, 1), f32)};
}

}  // namespace

std::vector<Rule> support_vectors_rules() {
  const std::string domain = "ai.onnx.ml";
  return {
      {"SVMClassifier", domain, 1, import_svm_classifier},
      rule_of(domain, "SVMRegressor", import_svm_regressor),
  };
}

}  // namespace tw::frontends::onnx
