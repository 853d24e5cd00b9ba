#include "relay_ir/pass.h"

#include <algorithm>

#include "relay_ir/text/printer.h"
#include "relay_ir/verify.h"
#include "targets/backend.h"
#include "tensor_ir/diagnostic.h"
#include "tensor_ir/pass_scope.h"

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

PassSubject subject(const Graph& graph) {
  return {"graph", graph.name, [&graph] { return to_text(graph); }, [&graph] { verify(graph); }};
}

// On the graph's regions first.
Graph apply(const PassFunction& pass, Graph graph, const PassContext& context) {
  PassContext within = context;
  within.in_place.clear();  // names of the model's inputs and outputs
  for (Node& node : graph.nodes)
    for (Graph& region : node.regions) region = apply(pass, std::move(region), within);
  return pass(graph, context);
}

Graph run_pass(const PassRow& pass, const Graph& graph, const PassContext& context) {
  if (pass.is_optional && (is_skipped(pass.name) || context.skipped_passes.contains(std::string(pass.name))))
    return graph;
  Graph after;
  run_in_scope(pass.name, subject(graph), [&] {
    after = apply(pass.function, graph, context);
    if (context.after_pass) after = context.after_pass(pass.name, std::move(after));
    return subject(after);
  });
  return after;
}

void require_optional(const std::set<std::string>& skipped) {
  const std::vector<std::string> optional = optional_passes();
  for (const std::string& name : skipped)
    if (std::find(optional.begin(), optional.end(), name) == optional.end())
      throw Error(ErrorCode::text,
                  "`" + name + "` is no optional pass of graphs\n  help: " + suggest_name(name, optional));
}

}  // namespace

bool is_named(const Node& node, const std::set<std::string>& names) {
  if (names.empty()) return false;
  if (names.contains(node.name)) return true;
  const size_t end = node.name.find_last_of("_.");
  if (end == std::string::npos || end + 1 == node.name.size()) return false;
  const char* suffix = node.name[end] == '_' ? "0123456789" : "abcdefghijklmnopqrstuvwxyz";
  return node.name.find_first_not_of(suffix, end + 1) == std::string::npos && names.contains(node.name.substr(0, end));
}

bool PassContext::allows(const std::string& name, const Choice& value) const {
  const auto constraint = constraints.find(name);
  return constraint == constraints.end() || constraint->second == value;
}

Choice PassContext::decide(const Graph& graph, const std::vector<size_t>& nodes, const std::string& name,
                           std::vector<Candidate> candidates, const Choice& analytic) const {
  AskedDecision open = ask(name, std::move(candidates), analytic);
  const auto constraint = constraints.find(name);
  const bool is_constrained = constraint != constraints.end() && open.choose(constraint->second);
  if (is_constrained || open.candidates.size() == 1) return open.value();
  GraphDecision decision = make_decision(graph, nodes, std::move(open), precision);
  if (source) check(decision.asked.choose(source(decision)), "decide: a choice is one of the candidates");
  const Choice choice = decision.asked.value();
  if (asked) asked->push_back(std::move(decision));
  return choice;
}

Graph run_passes(const Graph& graph, const PassContext& context) {
  require_optional(context.skipped_passes);
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
    if (name == row.name)
      return [&row](const Graph& graph, const PassContext& context) { return apply(row.function, graph, context); };
  }
  return {};
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const PassRow& row : rows()) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> optional_passes() {
  std::vector<std::string> names;
  for (const PassRow& row : rows())
    if (row.is_optional && std::find(names.begin(), names.end(), row.name) == names.end()) names.emplace_back(row.name);
  return names;
}

}  // namespace tw::relay
