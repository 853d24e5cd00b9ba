// The one list of rules, gathered from the families.
#include "frontends/onnx/rules.h"

#include <map>

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

}  // namespace tw::frontends::onnx
