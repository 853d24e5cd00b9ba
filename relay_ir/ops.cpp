// The one list of operators, gathered from the families.
#include <unordered_map>

#include "relay_ir/op.h"

namespace tw::relay {

#define FAMILY(name) std::vector<OpDef> name##_family();
#include "relay_ir/families.def"

namespace {

struct Registry {
  std::vector<std::vector<OpDef>> families;
  std::vector<const OpDef*> ops;
  std::unordered_map<std::string_view, const OpDef*> by_name;

  Registry() {
#define FAMILY(name) families.push_back(name##_family());
#include "relay_ir/families.def"
    for (const std::vector<OpDef>& family : families) {
      for (const OpDef& op : family) {
        check(by_name.emplace(op.name, &op).second, "ops: names of operators are unique");
        ops.push_back(&op);
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

}  // namespace tw::relay
