// Ensembles of decision trees (ai.onnx.ml).
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "frontends/forest.h"
#include "frontends/onnx/scores.h"

namespace tw::frontends::onnx {
namespace {

constexpr int64_t most_columns = 1 << 20;

Floats floats_of(const NDArray& tensor) {
  Floats values(tensor.size());
  for (int64_t i = 0; i < tensor.size(); ++i) values[i] = tensor.get_float(i);
  return values;
}

// An attribute of floats, or the tensor `name`_as_tensor in its stead.
Floats floats_of(Context& c, const std::string& name) {
  if (!c.has_attribute(name + "_as_tensor")) return c.attribute_floats(name, {});
  return floats_of(c.attribute_tensor(name + "_as_tensor"));
}

// Data as what it is compared as, [rows, features].
ValueId as_rows(Context& c, bool is_wide) {
  ValueId x = is_wide ? emit_cast(c, c.input(0), f64) : as_reals(c, c.input(0));
  if (rank_of(c, x) == 1) x = emit_new_axis(c, x, 0);
  if (rank_of(c, x) != 2) c.refuse("data of type " + to_string(c.type(x)));
  return x;
}

bool has_wide_tensor(const Context& c, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) {
    return c.has_attribute(name) && c.attribute_tensor(name).dtype() == f64;
  });
}

Comparison comparison_of(Context& c, const std::string& mode) {
  if (mode == "BRANCH_LEQ") return Comparison::at_most;
  if (mode == "BRANCH_LT") return Comparison::less;
  if (mode == "BRANCH_GTE") return Comparison::at_least;
  if (mode == "BRANCH_GT") return Comparison::greater;
  if (mode == "BRANCH_EQ") return Comparison::equal;
  if (mode == "BRANCH_NEQ") return Comparison::not_equal;
  c.refuse("a node of mode " + mode);
}

// Nodes by tree and number, as the first opsets have them; `kind`_ids and so on: what leaves give.
Forest listed_forest(Context& c, const std::string& kind, DType dtype) {
  const Ints trees = c.attribute_ints("nodes_treeids", {}), numbers = c.attribute_ints("nodes_nodeids", {}),
             features = c.attribute_ints("nodes_featureids", {}), on_true = c.attribute_ints("nodes_truenodeids", {}),
             on_false = c.attribute_ints("nodes_falsenodeids", {});
  Ints missing = c.attribute_ints("nodes_missing_value_tracks_true", {});
  const std::vector<std::string> modes = c.attribute_strings("nodes_modes");
  const Floats values = floats_of(c, "nodes_values");
  const size_t count = trees.size();
  if (count == 0) malformed("trees without nodes");
  require_length("nodes_nodeids", numbers.size(), count), require_length("nodes_modes", modes.size(), count);
  require_length("nodes_featureids", features.size(), count), require_length("nodes_values", values.size(), count);
  require_length("nodes_truenodeids", on_true.size(), count);
  require_length("nodes_falsenodeids", on_false.size(), count);
  if (missing.empty()) missing.resize(count, 0);
  require_length("nodes_missing_value_tracks_true", missing.size(), count);

  Forest forest;
  forest.nodes.resize(count);
  std::map<std::pair<int64_t, int64_t>, int64_t> places;
  for (size_t i = 0; i < count; ++i) {
    places.emplace_hint(places.end(), std::pair(trees[i], numbers[i]), static_cast<int64_t>(i));
    if (places.size() != i + 1) malformed("a tree has two nodes " + std::to_string(numbers[i]));
  }
  const auto place_of = [&](int64_t tree, int64_t number) {
    const auto found = places.find({tree, number});
    if (found == places.end()) malformed("tree " + std::to_string(tree) + " has no node " + std::to_string(number));
    return found->second;
  };
  std::set<int64_t> begun;
  for (size_t i = 0; i < count; ++i) {
    if (i == 0 || trees[i] != trees[i - 1]) {
      if (!begun.insert(trees[i]).second) c.refuse("nodes of a tree that do not follow one another");
      forest.roots.push_back(static_cast<int64_t>(i));
    }
    if (modes[i] == "LEAF") continue;
    TreeNode& node = forest.nodes[i];
    node.feature = features[i];
    node.on_true = place_of(trees[i], on_true[i]), node.on_false = place_of(trees[i], on_false[i]);
    set_comparison(node, comparison_of(c, modes[i]), values[i], {}, missing[i] != 0, dtype);
  }
  const Ints columns = c.attribute_ints(kind + "_ids", {}), weight_trees = c.attribute_ints(kind + "_treeids", {}),
             weight_nodes = c.attribute_ints(kind + "_nodeids", {});
  const Floats weights = floats_of(c, kind + "_weights");
  require_length(kind + "_treeids", weight_trees.size(), columns.size());
  require_length(kind + "_nodeids", weight_nodes.size(), columns.size());
  require_length(kind + "_weights", weights.size(), columns.size());
  for (size_t i = 0; i < columns.size(); ++i)
    forest.nodes[place_of(weight_trees[i], weight_nodes[i])].weights.emplace_back(columns[i], weights[i]);
  return forest;
}

// What the rows of x [rows, features] get from all trees: [rows, columns].
ValueId emit_walk(Context& c, ValueId x, Forest forest, int64_t columns, const std::string& combine) {
  const DType dtype = dtype_of(c, x);
  if (columns < 1 || columns > most_columns) c.refuse(std::to_string(columns) + " columns of results");
  const WalkedTrees trees = walked(std::move(forest), dim_of(c, x, 1), columns, combine, dtype);
  std::vector<ValueId> inputs{x};
  for (const NDArray* array : {&trees.nodes, &trees.thresholds, &trees.leaves, &trees.values, &trees.trees})
    inputs.push_back(c.emit_constant(*array));
  const int64_t missing_lowest = trees.has_missing ? 1 : 0;
  return c.emit("tree_ensemble", inputs,
                attributes_of({{"columns", columns}, {"combine", combine}, {"missing_lowest", missing_lowest}}));
}

// Sums, means or extrema over the trees.
ValueId emit_aggregate(Context& c, ValueId x, Forest forest, int64_t columns, const std::string& function) {
  const auto trees = static_cast<double>(forest.roots.size());
  if (function == "SUM") return emit_walk(c, x, std::move(forest), columns, "sum");
  if (function == "AVERAGE") {
    const ValueId sum = emit_walk(c, x, std::move(forest), columns, "sum");
    return c.emit("divide", {sum, emit_scalar(c, dtype_of(c, x), trees)});
  }
  if (function != "MIN" && function != "MAX") c.refuse("aggregate_function=" + function);
  for (const TreeNode& node : forest.nodes)
    for (const auto& [column, weight] : node.weights)
      if (!std::isfinite(weight)) c.refuse("a weight that is not finite, of aggregate_function=" + function);
  // Columns that no leaf gives are 0.
  const ValueId y = emit_walk(c, x, std::move(forest), columns, function == "MIN" ? "min" : "max");
  return c.emit("where", {c.emit("is_inf", {y}), emit_scalar(c, dtype_of(c, x), 0), y});
}

ValueId emit_with_base(Context& c, ValueId scores, const Floats& base, int64_t columns) {
  if (base.empty()) return scores;
  if (static_cast<int64_t>(base.size()) != columns)
    c.refuse(std::to_string(base.size()) + " base_values for " + std::to_string(columns) + " columns");
  return c.emit("add", {scores, c.emit_constant(float_array(base, dtype_of(c, scores)))});
}

ValueId import_tree_ensemble_regressor(Context& c) {
  const bool is_wide =
      has_wide_tensor(c, {"nodes_values_as_tensor", "target_weights_as_tensor", "base_values_as_tensor"});
  const ValueId x = as_rows(c, is_wide);
  const int64_t targets = c.attribute_int("n_targets", 1);
  const ValueId y = emit_aggregate(c, x, listed_forest(c, "target", dtype_of(c, x)), targets,
                                   c.attribute_string("aggregate_function", "SUM"));
  return emit_cast(c, emit_post_transform(c, emit_with_base(c, y, floats_of(c, "base_values"), targets)), f32);
}

// Of two classes whose leaves give one number s: the second is chosen above a bound, and scores are those of both.
std::vector<ValueId> two_classes(Context& c, ValueId s, bool are_positive, const ClassLabels& labels) {
  const DType dtype = dtype_of(c, s);
  const std::string form = c.attribute_string("post_transform", "NONE");
  if (form == "PROBIT") c.refuse("post_transform=PROBIT of one score for two classes");
  const ValueId is_second = c.emit("less", {emit_scalar(c, dtype, are_positive ? 0.5 : 0), s});
  const ValueId label = labels.emit(emit_without_axis(c, emit_cast(c, is_second, i64), 1));
  const bool is_share = are_positive && form != "LOGISTIC";
  const ValueId other = is_share ? c.emit("subtract", {emit_scalar(c, dtype, 1), s}) : c.emit("negate", {s});
  ValueId scores = emit_concat(c, {other, s}, 1);
  if (form == "LOGISTIC") scores = emit_post_transform(c, scores, form);
  return {label, emit_cast(c, scores, f32)};
}

std::vector<ValueId> import_tree_ensemble_classifier(Context& c) {
  const bool is_wide =
      has_wide_tensor(c, {"nodes_values_as_tensor", "class_weights_as_tensor", "base_values_as_tensor"});
  const ValueId x = as_rows(c, is_wide);
  const DType dtype = dtype_of(c, x);
  const ClassLabels labels(c, "classlabels_int64s", "classlabels_strings");
  Forest forest = listed_forest(c, "class", dtype);
  const Floats base = floats_of(c, "base_values");
  std::vector<bool> is_given(labels.count(), false);
  bool are_positive = true;
  for (TreeNode& node : forest.nodes) {
    for (const auto& [column, weight] : node.weights) {
      if (column < 0 || column >= labels.count()) malformed("a weight of a class that is not there");
      is_given[column] = true, are_positive &= weight >= 0;
    }
  }
  if (labels.count() == 2 && is_given[0] != is_given[1]) {
    if (is_given[1] || base.size() > 1)
      c.refuse("scores of the second of two classes alone, or two base_values of one");
    const ValueId s = emit_walk(c, x, std::move(forest), 1, "sum");
    return two_classes(c, emit_with_base(c, s, base, 1), are_positive, labels);
  }
  const ValueId scores =
      emit_with_base(c, emit_walk(c, x, std::move(forest), labels.count(), "sum"), base, labels.count());
  // What no leaf gives is no class's score.
  ValueId compared = scores;
  if (base.empty() && std::find(is_given.begin(), is_given.end(), false) != is_given.end()) {
    Floats lowest(labels.count(), 0);
    for (int64_t k = 0; k < labels.count(); ++k)
      if (!is_given[k]) lowest[k] = -std::numeric_limits<double>::infinity();
    compared = c.emit("add", {scores, c.emit_constant(float_array(lowest, dtype))});
  }
  const ValueId best = c.emit("arg_max", {compared}, attributes_of({{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}));
  return {labels.emit(best), emit_cast(c, emit_post_transform(c, scores), f32)};
}

// Nodes and leaves of all trees in one list each.
Forest forest_of_tensors(Context& c, DType dtype) {
  const NDArray modes = c.attribute_tensor("nodes_modes");
  const Floats splits = floats_of(c.attribute_tensor("nodes_splits")),
               weights = floats_of(c.attribute_tensor("leaf_weights"));
  const Ints features = c.attribute_ints("nodes_featureids", {}), on_true = c.attribute_ints("nodes_truenodeids", {}),
             on_false = c.attribute_ints("nodes_falsenodeids", {}), targets = c.attribute_ints("leaf_targetids", {}),
             is_true_leaf = c.attribute_ints("nodes_trueleafs", {}),
             is_false_leaf = c.attribute_ints("nodes_falseleafs", {});
  Ints missing = c.attribute_ints("nodes_missing_value_tracks_true", {});
  const size_t count = splits.size();
  require_length("nodes_modes", static_cast<size_t>(modes.size()), count);
  require_length("nodes_featureids", features.size(), count);
  require_length("nodes_truenodeids", on_true.size(), count);
  require_length("nodes_falsenodeids", on_false.size(), count);
  require_length("nodes_trueleafs", is_true_leaf.size(), count);
  require_length("nodes_falseleafs", is_false_leaf.size(), count);
  require_length("leaf_targetids", targets.size(), weights.size());
  if (missing.empty()) missing.resize(count, 0);
  require_length("nodes_missing_value_tracks_true", missing.size(), count);
  if (modes.dtype().is_float()) c.refuse("nodes_modes of type " + to_string(modes.dtype()));

  Forest forest;
  forest.nodes.resize(count + weights.size());
  for (size_t i = 0; i < weights.size(); ++i) forest.nodes[count + i].weights = {{targets[i], weights[i]}};
  const auto place_of = [&](int64_t number, bool is_leaf) {
    const size_t extent = is_leaf ? weights.size() : count;
    if (number < 0 || number >= static_cast<int64_t>(extent)) malformed("a tree leads to a node that is not there");
    return is_leaf ? number + static_cast<int64_t>(count) : number;
  };
  Floats members;
  if (c.has_attribute("membership_values")) members = floats_of(c.attribute_tensor("membership_values"));
  size_t member = 0;
  for (size_t i = 0; i < count; ++i) {
    TreeNode& node = forest.nodes[i];
    node.feature = features[i];
    node.on_true = place_of(on_true[i], is_true_leaf[i] != 0);
    node.on_false = place_of(on_false[i], is_false_leaf[i] != 0);
    const int64_t mode = modes.get_int(static_cast<int64_t>(i));
    if (mode < 0 || mode > static_cast<int64_t>(Comparison::member)) c.refuse("a node of mode " + std::to_string(mode));
    const auto comparison = static_cast<Comparison>(mode);
    Floats of_node;  // up to a NaN
    if (comparison == Comparison::member) {
      while (member < members.size() && !std::isnan(members[member])) of_node.push_back(members[member++]);
      if (++member > members.size() + (of_node.empty() ? 0 : 1)) malformed("membership_values of fewer nodes");
    }
    set_comparison(node, comparison, splits[i], std::move(of_node), missing[i] != 0, dtype);
  }
  for (const int64_t root : c.attribute_ints("tree_roots", {})) forest.roots.push_back(place_of(root, false));
  if (forest.roots.empty()) malformed("no trees");
  return forest;
}

ValueId import_tree_ensemble(Context& c) {
  const DType dtype = dtype_of(c, c.input(0));
  if (!dtype.is_float()) c.refuse("data of type " + to_string(dtype));
  const ValueId x = as_rows(c, false);
  const std::string functions[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  const std::string forms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const int64_t function = c.attribute_int("aggregate_function", 1), form = c.attribute_int("post_transform", 0);
  if (function < 0 || function > 3) c.refuse("aggregate_function=" + std::to_string(function));
  if (form < 0 || form > 4) c.refuse("post_transform=" + std::to_string(form));
  const ValueId y =
      emit_aggregate(c, x, forest_of_tensors(c, dtype_of(c, x)), c.attribute_int("n_targets", 1), functions[function]);
  return emit_cast(c, emit_post_transform(c, y, forms[form]), dtype);
}

}  // namespace

std::vector<Rule> trees_rules() {
  const std::string domain = "ai.onnx.ml";
  return {
      rule_of(domain, "TreeEnsemble", import_tree_ensemble),
      {"TreeEnsembleClassifier", domain, 1, import_tree_ensemble_classifier},
      rule_of(domain, "TreeEnsembleRegressor", import_tree_ensemble_regressor),
  };
}

}  // namespace tw::frontends::onnx
