// The one list of rules, gathered from the families.
#include "frontends/onnx/rules.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

namespace tw::frontends::onnx {

#define RULES(name) std::vector<Rule> name##_rules();
#include "frontends/onnx/rules.def"

namespace {

// (domain, op type) → rules by first opset.
using Registry = std::map<std::pair<std::string, std::string>, std::map<int, Rule>>;

const Registry& registry() {
  static const Registry instance = [] {
    Registry result;
    const auto add = [&](std::vector<Rule> rules) {
      for (Rule& rule : rules) {
        auto& versions = result[{rule.domain, rule.op_type}];
        check(versions.emplace(rule.since_opset, rule).second, "rules: one for an operator and opset");
      }
    };
#define RULES(name) add(name##_rules());
#include "frontends/onnx/rules.def"
    return result;
  }();
  return instance;
}

}  // namespace

const Rule* find_rule(std::string_view domain, std::string_view op_type, int opset) {
  const auto found = registry().find({std::string(domain), std::string(op_type)});
  if (found == registry().end()) return nullptr;
  const auto after = found->second.upper_bound(opset);
  return after == found->second.begin() ? nullptr : &std::prev(after)->second;
}

std::vector<const Rule*> all_rules() {
  std::vector<const Rule*> result;
  for (const auto& [key, versions] : registry()) {
    for (const auto& [opset, rule] : versions) result.push_back(&rule);
  }
  return result;
}

Rule rule(const std::string& op_type, int since_opset, std::function<ValueId(Context&)> import) {
  return {op_type, "", since_opset,
          [import = std::move(import)](Context& c) { return std::vector<ValueId>{import(c)}; }};
}

Rule with_text(Rule rule, TextUse text) {
  rule.text = text;
  return rule;
}

Rule rule_of(const std::string& domain, const std::string& op_type, std::function<ValueId(Context&)> import) {
  Rule result = rule(op_type, 1, std::move(import));
  result.domain = domain;
  return result;
}

Ints axes_of(const Context& c, size_t input) {
  if (c.has_input(input)) return c.constant_ints(input);
  return c.attribute_ints("axes", {});
}

std::vector<int> chosen_axes(const Context& c, ValueId x) {
  return c.has_attribute("axes") ? rule_axes(c, c.attribute_ints("axes", {}), rank_of(c, x)) : axes_from(c, x);
}

namespace {

std::string extents_text(const std::vector<Expr>& extents) {
  std::string text;
  for (const Expr& extent : extents) text += (text.empty() ? "" : " × ") + to_text(extent);
  return text;
}

// Whether a number that a run computes is in them.
bool is_sized_by_run(Context& c, const std::vector<Expr>& dims) {
  return !std::ranges::all_of(dims, [&](const Expr& dim) { return is_made_of(dim, c.import().graph.symbols); });
}

// The first of known ones that is outside of known extents.
std::optional<int64_t> wrong_index(const NDArray& indices, const std::vector<Expr>& extents) {
  for (int64_t i = 0; i < indices.size(); ++i) {
    const auto extent = as_int(extents[static_cast<size_t>(i) % extents.size()]);
    const int64_t index = indices.get_int(i);
    if (extent && (index < -*extent || index >= *extent)) return index;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Expr> indexed_extents(Context& c, ValueId x, ValueId indices, int64_t batch) {
  const std::vector<Expr> shape = c.type(x).shape, of_indices = c.type(indices).shape;
  const int64_t count = of_indices.empty() ? 0 : as_int(of_indices.back()).value_or(0);
  if (batch < 0 || count < 0 || batch + count > static_cast<int64_t>(shape.size())) return {};  // which is refused
  return {shape.begin() + batch, shape.begin() + batch + count};
}

void emit_index_check(Context& c, ValueId indices, const std::vector<Expr>& extents) {
  if (extents.empty()) return;
  const std::string text = c.place() + ": an index into " + extents_text(extents);
  if (const NDArray* known = c.constant(indices)) {
    if (const auto wrong = wrong_index(*known, extents))
      malformed(text + " is " + std::to_string(*wrong) + ", which is outside");
    return;
  }
  if (!c.import().checks_indices || c.import().open_regions > 0) return;
  if (is_sized_by_run(c, c.type(indices).shape) || is_sized_by_run(c, extents)) return;
  const ValueId index = emit_cast(c, indices, i64);
  const bool is_one = extents.size() == 1;
  const ValueId extent = c.emit_sizes(extents, is_one ? Shape{} : Shape{static_cast<int64_t>(extents.size())});
  const ValueId least = c.emit("subtract", {emit_ints(c, {0}, {}, i64), extent});
  const ValueId is_wrong =
      c.emit("logical_or", {c.emit("less", {index, least}), c.emit("less_equal", {extent, index})});
  const ValueId nothing = emit_ints(c, {std::numeric_limits<int64_t>::min()}, {}, i64);
  const ValueId wrong = c.emit("where", {is_wrong, index, nothing});
  c.emit_control("demand", {emit_reduce(c, "reduce_max", wrong, axes_from(c, wrong), false)},
                 attributes_of({{"text", text}}), {});
}

}  // namespace tw::frontends::onnx
