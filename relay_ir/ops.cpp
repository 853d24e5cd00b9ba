// The one list of operators and of ONNX rules, gathered from the families.
#include <map>
#include <unordered_map>

#include "relay_ir/op.h"

namespace tw::relay {

#define FAMILY(name) OpFamily name##_family();
#include "relay_ir/families.def"

namespace {

struct Registry {
  std::vector<OpFamily> families;
  std::vector<const OpDef*> ops;
  std::unordered_map<std::string_view, const OpDef*> by_name;
  // (domain, op type) → rules by first opset
  std::map<std::pair<std::string, std::string>, std::map<int, const OnnxRule*>> rules;

  Registry() {
#define FAMILY(name) families.push_back(name##_family());
#include "relay_ir/families.def"
    for (const OpFamily& family : families) {
      for (const OpDef& op : family.ops) {
        check(by_name.emplace(op.name, &op).second, "ops: names of operators are unique");
        ops.push_back(&op);
      }
    }
    for (const OpFamily& family : families) {
      for (const OnnxRule& rule : family.onnx_rules) {
        auto& versions = rules[{rule.domain == "ai.onnx" ? "" : rule.domain, rule.op_type}];
        check(versions.emplace(rule.since_opset, &rule).second, "ops: one ONNX rule for an operator and opset");
      }
    }
  }
};

const Registry& registry() {
  static const Registry instance;
  return instance;
}

}  // namespace

const std::vector<const OpDef*>& all_ops() {
  return registry().ops;
}

const OpDef* find_op(std::string_view name) {
  const auto found = registry().by_name.find(name);
  return found == registry().by_name.end() ? nullptr : found->second;
}

const OnnxRule* find_onnx_rule(std::string_view domain, std::string_view op_type, int opset) {
  const auto found =
      registry().rules.find({domain == "ai.onnx" ? std::string() : std::string(domain), std::string(op_type)});
  if (found == registry().rules.end()) return nullptr;
  const auto after = found->second.upper_bound(opset);
  return after == found->second.begin() ? nullptr : std::prev(after)->second;
}

std::vector<const OnnxRule*> all_onnx_rules() {
  std::vector<const OnnxRule*> result;
  for (const auto& [key, versions] : registry().rules) {
    for (const auto& [opset, rule] : versions) result.push_back(rule);
  }
  return result;
}

}  // namespace tw::relay
