// Models and preprocessing that scikit-learn's converter writes (ai.onnx.ml): scalers, encoders, linear models.
#include <algorithm>
#include <cmath>

#include "frontends/onnx/scores.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

constexpr size_t most_keys = 1024;  // each is compared with each element

// One number for all columns, or one for each.
ValueId of_columns(Context& c, ValueId x, const char* attribute) {
  const Floats values = c.attribute_floats(attribute, {});
  if (values.size() == 1) return emit_scalar(c, dtype_of(c, x), values[0]);
  c.require_equal(c.type(x).shape.back(), Expr(static_cast<int64_t>(values.size())), attribute);
  return c.emit_constant(float_array(values, dtype_of(c, x)));
}

ValueId import_scaler(Context& c) {
  ValueId x = as_reals(c, c.input(0));
  if (c.has_attribute("offset")) x = c.emit("subtract", {x, of_columns(c, x, "offset")});
  if (c.has_attribute("scale")) x = c.emit("multiply", {x, of_columns(c, x, "scale")});
  return emit_cast(c, x, f32);
}

ValueId import_binarizer(Context& c) {
  const ValueId x = c.input(0);
  const double threshold = c.attribute_float("threshold", 0);
  const bool is_whole = !dtype_of(c, x).is_float();
  // A whole number is above it where it is above the next lower one.
  const ValueId bound = emit_scalar(c, dtype_of(c, x), is_whole ? std::floor(threshold) : threshold);
  return emit_cast(c, c.emit("less", {bound, x}), dtype_of(c, x));
}

ValueId import_normalizer(Context& c) {
  const std::string norm = c.attribute_string("norm", "MAX");
  const ValueId x = as_reals(c, c.input(0));
  const std::vector<int> last{rank_of(c, x) - 1};
  ValueId size = c.emit("abs", {x});
  if (norm == "MAX")
    size = emit_reduce(c, "reduce_max", size, last, true);
  else if (norm == "L1")
    size = emit_reduce(c, "reduce_sum", size, last, true);
  else if (norm == "L2")
    size = c.emit("sqrt", {emit_reduce(c, "reduce_sum", c.emit("multiply", {x, x}), last, true)});
  else
    c.refuse("norm=" + norm);
  const ValueId is_zero = c.emit("equal", {size, emit_scalar(c, dtype_of(c, x), 0)});
  const ValueId divisor = c.emit("where", {is_zero, emit_scalar(c, dtype_of(c, x), 1), size});
  return emit_cast(c, c.emit("divide", {x, divisor}), f32);
}

// Numbers in the place of one that stands for what is missing.
ValueId import_imputer(Context& c) {
  const ValueId x = c.input(0);
  const DType dtype = dtype_of(c, x);
  if (dtype.is_float()) {
    const double missing = c.attribute_float("replaced_value_float", 0);
    const ValueId is_missing =
        std::isnan(missing) ? c.emit("is_nan", {x}) : c.emit("equal", {x, emit_scalar(c, dtype, missing)});
    return c.emit("where", {is_missing, of_columns(c, x, "imputed_value_floats"), x});
  }
  const Ints values = c.attribute_ints("imputed_value_int64s", {});
  if (values.empty() || !dtype.is_integer()) c.refuse("data of type " + to_string(dtype));
  if (values.size() > 1)
    c.require_equal(c.type(x).shape.back(), Expr(static_cast<int64_t>(values.size())), "imputed_value_int64s");
  const ValueId missing = emit_ints(c, {c.attribute_int("replaced_value_int64", 0)}, {}, dtype);
  const ValueId given = emit_ints(c, values, {static_cast<int64_t>(values.size())}, dtype);
  return c.emit("where", {c.emit("equal", {x, missing}), given, x});
}

// Columns by number.
ValueId import_array_feature_extractor(Context& c) {
  const ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  if (rank < 1) c.refuse("data of rank 0");
  const std::vector<Expr> count{simplify(product_of(c.type(c.input(1)).shape))};
  const ValueId indices = emit_reshape_open(c, emit_cast(c, c.input(1), i64), count);
  const ValueId y = c.emit("gather", {x, indices}, attributes_of({{"axis", int64_t{rank - 1}}}));
  return rank > 1 ? y : emit_new_axis(c, y, 0);
}

ValueId import_feature_vectorizer(Context& c) {
  std::vector<ValueId> parts;
  for (size_t i = 0; i < c.input_count(); ++i) {
    const ValueId x = emit_cast(c, c.input(i), f32);
    if (rank_of(c, x) != 2 && rank_of(c, x) != 1) c.refuse("inputs that are no matrices");
    parts.push_back(rank_of(c, x) == 1 ? emit_new_axis(c, x, 1) : x);
  }
  const Ints stated = c.attribute_ints("inputdimensions", {});
  for (size_t i = 0; i < stated.size() && i < parts.size(); ++i)
    c.require_equal(c.type(parts[i]).shape[1], Expr(stated[i]), "inputdimensions");
  return emit_concat(c, parts, 1);
}

// Whether each element is each of the keys, along a new last axis.
ValueId emit_is_key(Context& c, ValueId x, const NDArray& keys) {
  if (keys.size() < 1 || static_cast<size_t>(keys.size()) > most_keys)
    c.refuse(std::to_string(keys.size()) + " keys; at most " + std::to_string(most_keys));
  const bool are_floats = keys.dtype().is_float();
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (are_floats && std::isnan(keys.get_float(i))) c.refuse("a key that is NaN");
    for (int64_t k = 0; k < i; ++k)
      if (are_floats ? keys.get_float(i) == keys.get_float(k) : keys.get_int(i) == keys.get_int(k))
        c.refuse("a key that is there twice");
  }
  const ValueId wide = emit_new_axis(c, emit_cast(c, x, keys.dtype()), rank_of(c, x));
  return c.emit("equal", {wide, c.emit_constant(keys)});
}

bool are_strings(const Context& c, const std::string& stem) {
  return c.has_attribute(stem + "_strings") || c.has_text_tensor(stem + "_tensor");
}

// `stem` is keys or values: as floats, integers, strings or a tensor.
NDArray encoder_list(Context& c, const std::string& stem) {
  if (c.has_attribute(stem + "_strings")) return c.attribute_text(stem + "_strings");
  if (are_strings(c, stem)) {
    const NDArray tensor = c.attribute_text_tensor(stem + "_tensor");
    return tensor.reshape({tensor.size()});
  }
  const Floats floats = c.attribute_floats(stem + "_floats", {});
  const Ints ints = c.attribute_ints(stem + "_int64s", {});
  if (!floats.empty()) return float_array(floats);
  if (!ints.empty()) return int_array(ints);
  if (!c.has_attribute(stem + "_tensor")) c.refuse("without " + stem);
  const NDArray tensor = c.attribute_tensor(stem + "_tensor");
  return tensor.reshape({tensor.size()});
}

// The codes of strings, where the keys are strings.
ValueId encoded_input(Context& c, bool are_strings) {
  if (c.has_text(0) != are_strings)
    c.refuse(are_strings ? "keys that are strings of numbers" : "keys that are numbers of strings");
  return are_strings ? c.text(0) : c.input(0);
}

ValueId import_label_encoder(Context& c) {
  const NDArray keys = encoder_list(c, "keys"), values = encoder_list(c, "values");
  if (keys.size() != values.size()) c.refuse("as many keys as values");
  const DType dtype = values.dtype();
  const ValueId x = encoded_input(c, are_strings(c, "keys"));
  const ValueId is_key = emit_is_key(c, x, keys);
  const std::vector<int> last{rank_of(c, x)};
  ValueId otherwise = dtype.is_float() ? emit_scalar(c, dtype, c.attribute_float("default_float", -0.0))
                                       : emit_ints(c, {c.attribute_int("default_int64", -1)}, {}, dtype);
  const bool gives_text = are_strings(c, "values");
  if (gives_text) {
    int64_t code = c.import().words.code_of(c.attribute_string("default_string", "_Unused"));
    if (c.has_text_tensor("default_tensor")) code = c.attribute_text_tensor("default_tensor").get_int(0);
    otherwise = emit_ints(c, {code}, {}, i64);
  } else if (c.has_attribute("default_tensor"))
    otherwise = emit_reshape(c, c.emit_constant(c.attribute_tensor("default_tensor")), {});
  const ValueId none = emit_scalar(c, dtype, 0);
  const ValueId found =
      emit_reduce(c, "reduce_sum", c.emit("where", {is_key, c.emit_constant(values), none}), last, false);
  const ValueId y = c.emit("where", {emit_reduce(c, "reduce_any", is_key, last, false), found, otherwise});
  return gives_text ? c.emit_text(y) : y;
}

// A category that is unknown is all zeros, or ends the run.
ValueId import_one_hot_encoder(Context& c) {
  const bool of_strings = c.has_attribute("cats_strings");
  const ValueId x = encoded_input(c, of_strings);
  const NDArray keys = of_strings ? c.attribute_text("cats_strings") : int_array(c.attribute_ints("cats_int64s", {}));
  const ValueId is_key = emit_is_key(c, x, keys);
  if (c.attribute_int("zeros", 1) == 0) {
    const ValueId is_known = emit_reduce(c, "reduce_any", is_key, {rank_of(c, x)}, false);
    const ValueId unknown = emit_cast(c, c.emit("logical_not", {is_known}), i64);
    const Expr count = c.emit_item(emit_reduce(c, "reduce_sum", unknown, axes_from(c, unknown), false));
    c.require_equal(count, Expr(0), "elements that are none of the categories");
  }
  return emit_cast(c, is_key, f32);
}

// x · coefficients + intercepts: [rows, results].
ValueId emit_scores(Context& c, ValueId x, int64_t results) {
  const Floats coefficients = c.attribute_floats("coefficients", {}), intercepts = c.attribute_floats("intercepts", {});
  const auto count = static_cast<int64_t>(coefficients.size());
  if (rank_of(c, x) == 1) x = emit_new_axis(c, x, 0);
  if (rank_of(c, x) != 2 || results < 1 || count < 1 || count % results != 0)
    c.refuse("coefficients that do not fit data of type " + to_string(c.type(x)));
  c.require_equal(c.type(x).shape[1], Expr(count / results), "a coefficient for each column");
  const ValueId weight = c.emit_constant(float_array(coefficients, dtype_of(c, x)).reshape({results, count / results}));
  ValueId y = c.emit("matmul", {x, weight}, attributes_of({{"transpose_b", int64_t{1}}}));
  if (intercepts.empty()) return y;
  if (static_cast<int64_t>(intercepts.size()) != results) c.refuse("intercepts that do not fit");
  return c.emit("add", {y, c.emit_constant(float_array(intercepts, dtype_of(c, x)))});
}

ValueId import_linear_regressor(Context& c) {
  const ValueId scores = emit_scores(c, as_reals(c, c.input(0)), c.attribute_int("targets", 1));
  return emit_cast(c, emit_post_transform(c, scores), f32);
}

// Labels are those of the highest scores; scores of one column are those of the second of two classes.
std::vector<ValueId> import_linear_classifier(Context& c) {
  const ClassLabels labels(c, "classlabels_ints", "classlabels_strings");
  const int64_t classes = labels.count();
  const ValueId x = as_reals(c, c.input(0));
  const size_t rows = c.attribute_floats("intercepts", {}).size();
  ValueId scores = emit_scores(c, x, rows == 1 ? 1 : classes);
  if (rows == 1 && classes != 2) c.refuse("one row of coefficients for " + std::to_string(classes) + " classes");
  if (rows == 1) scores = emit_concat(c, {c.emit("negate", {scores}), scores}, 1);
  const ValueId best = c.emit("arg_max", {scores}, attributes_of({{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}));
  return {labels.emit(best), emit_cast(c, emit_post_transform(c, scores), f32)};
}

// Of each row a map from classes to their scores.
ValueId import_zip_map(Context& c) {
  ValueId x = c.input(0);
  if (rank_of(c, x) == 1) x = emit_new_axis(c, x, 0);
  if (rank_of(c, x) != 2) c.refuse("data of type " + to_string(c.type(x)));
  List maps{ListKind::map, {x}};
  maps.words = c.attribute_strings("classlabels_strings");
  if (maps.words.empty()) maps.numbers = c.attribute_ints("classlabels_int64s", {});
  const auto keys = static_cast<int64_t>(maps.words.size() + maps.numbers.size());
  if (keys < 1) c.refuse("no class labels");
  c.require_equal(c.type(x).shape[1], Expr(keys), "a label for each column");
  return c.import().lists.add(std::move(maps));
}

// Of each row of a from each row of b, as converters of scikit-learn write it.
ValueId import_distances(Context& c) {
  const std::string metric = c.attribute_string("metric", "sqeuclidean");
  if (metric != "euclidean" && metric != "sqeuclidean") c.refuse("metric=\"" + metric + "\"");
  if (rank_of(c, c.input(0)) != 2 || rank_of(c, c.input(1)) != 2) c.refuse("data that is no matrix");
  const ValueId difference = c.emit("subtract", {emit_new_axis(c, c.input(0), 1), emit_new_axis(c, c.input(1), 0)});
  const ValueId squares = emit_reduce(c, "reduce_sum", c.emit("multiply", {difference, difference}), {2}, false);
  return metric == "euclidean" ? c.emit("sqrt", {squares}) : squares;
}

}  // namespace

std::vector<Rule> classical_rules() {
  const std::string domain = "ai.onnx.ml";
  return {
      with_text(rule_of(domain, "ArrayFeatureExtractor", import_array_feature_extractor), TextUse::moved),
      rule_of(domain, "Binarizer", import_binarizer),
      rule_of(domain, "FeatureVectorizer", import_feature_vectorizer),
      rule_of(domain, "Imputer", import_imputer),
      with_text(rule_of(domain, "LabelEncoder", import_label_encoder), TextUse::read),
      {"LinearClassifier", domain, 1, import_linear_classifier},
      rule_of(domain, "LinearRegressor", import_linear_regressor),
      rule_of(domain, "Normalizer", import_normalizer),
      with_text(rule_of(domain, "OneHotEncoder", import_one_hot_encoder), TextUse::read),
      rule_of(domain, "Scaler", import_scaler),
      rule_of(domain, "ZipMap", import_zip_map),
      rule_of(microsoft, "CDist", import_distances),
  };
}

}  // namespace tw::frontends::onnx
