#include "relay_ir/pass.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"

namespace tw::relay {
namespace {

struct PassRow {
  const char* name;
  bool is_optional;
  PassFunction function;
};

const PassRow rows[] = {
#define PASS(name, is_optional) {#name, is_optional, name},
#include "relay_ir/passes.def"
};

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

}  // namespace

PassFunction find_pass(std::string_view name) {
  for (const PassRow& row : rows) {
    if (name == row.name) return row.function;
  }
  return nullptr;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const PassRow& row : rows) names.emplace_back(row.name);
  return names;
}

Graph run_pass(std::string_view name, const Graph& graph, bool is_optional,
               const std::function<Graph(const Graph&)>& pass) {
  if (is_optional && is_listed("TW_SKIP_RELAY", name)) return graph;
  Graph result = pass(graph);
  if (const char* folder = std::getenv("TW_DUMP")) dump(folder, name, result);
  if (std::getenv("TW_VERIFY")) verify(result);
  return result;
}

}  // namespace tw::relay
