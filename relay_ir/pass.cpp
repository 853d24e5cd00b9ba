#include "relay_ir/pass.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"
#include "targets/backend.h"

namespace tw::relay {
namespace {

struct PassRow {
  std::string_view name;
  bool is_optional, is_chosen_by_backend;
  PassFunction function;
};

PassFunction without_context(Graph (*pass)(const Graph&)) {
  return [pass](const Graph& graph, const PassContext&) { return pass(graph); };
}

const std::vector<PassRow>& rows() {
  static const std::vector<PassRow> table = {
#define PASS(name, is_optional) {#name, is_optional, false, without_context(name)},
#define TARGET_PASS(name, is_optional) {#name, is_optional, false, name},
#define BACKEND_PASS(name, is_optional) {#name, is_optional, true, name},
#include "relay_ir/passes.def"
  };
  return table;
}

bool is_listed(const char* variable, std::string_view name) {
  const char* list = std::getenv(variable);
  if (!list) return false;
  return ("," + std::string(list) + ",").find("," + std::string(name) + ",") != std::string::npos;
}

void dump(const std::string& folder, std::string_view name, const Graph& graph) {
  static std::atomic<int> number = 0;
  char prefix[32];
  std::snprintf(prefix, sizeof prefix, "relay_%02d_", ++number);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::ofstream(std::filesystem::path(folder) / (prefix + std::string(name) + ".tw")) << to_text(graph);
}

Graph run_pass(const PassRow& pass, const Graph& graph, const PassContext& context) {
  if (pass.is_optional && is_listed("TW_SKIP_RELAY", pass.name)) return graph;
  Graph result = pass.function(graph, context);
  if (const char* folder = std::getenv("TW_DUMP")) dump(folder, pass.name, result);
  if (std::getenv("TW_VERIFY")) verify(result);
  return result;
}

}  // namespace

Graph run_passes(const Graph& graph, const PassContext& context) {
  const auto& chosen = context.target.backend->graph_passes;
  Graph result = graph;
  for (const PassRow& pass : rows()) {
    if (pass.is_chosen_by_backend && std::find(chosen.begin(), chosen.end(), pass.name) == chosen.end()) continue;
    result = run_pass(pass, result, context);
  }
  return result;
}

PassFunction find_pass(std::string_view name) {
  for (const PassRow& row : rows()) {
    if (name == row.name) return row.function;
  }
  return {};
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const PassRow& row : rows()) names.emplace_back(row.name);
  return names;
}

}  // namespace tw::relay
