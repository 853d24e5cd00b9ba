#include "tensor_ir/pass.h"

#include <algorithm>

#include "tensor_ir/pass_scope.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/verify.h"

namespace tw {
namespace {

struct PassRow {
  std::string_view name;
  bool is_optional;
  PassFunction function;
};

constexpr PassRow passes[] = {
#define PASS(name, is_optional) {#name, is_optional, name},
#include "tensor_ir/passes.def"
};

const PassRow* find_row(std::string_view name) {
  const auto* row = std::find_if(std::begin(passes), std::end(passes), [&](const auto& r) { return r.name == name; });
  return row == std::end(passes) ? nullptr : row;
}

PassSubject subject(const Func& f) {
  return {"func", f.name, [&f] { return to_text(f); }, [&f] { verify(f); }};
}

}  // namespace

Func run_pass(std::string_view name, const Func& f, const std::function<Func(const Func&)>& pass) {
  const auto* row = find_row(name);
  if (row && row->is_optional && is_skipped(name)) return f;
  Func after;
  run_in_scope(name, subject(f), [&] { return after = pass(f), subject(after); });
  return after;
}

PassFunction find_pass(std::string_view name) {
  const auto* row = find_row(name);
  return row ? row->function : nullptr;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const auto& row : passes) names.emplace_back(row.name);
  return names;
}

}  // namespace tw
