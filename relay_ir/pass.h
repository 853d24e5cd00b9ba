// Passes over graphs (passes.def), each of which runs in a scope (tensor_ir/pass_scope.h).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "relay_ir/decision.h"
#include "relay_ir/graph.h"
#include "relay_ir/precision.h"
#include "targets/target.h"

namespace tw::relay {

// What becomes of the graph that a pass has given: a test puts a fault of the compiler there.
using AfterPass = std::function<Graph(std::string_view pass, Graph graph)>;

// What passes ask for.
struct PassContext {
  const Target& target;
  Precision precision = Precision::f32;              // CompileOptions
  std::map<std::string, std::string> in_place = {};  // CompileOptions
  Decisions constraints = {};                        // CompileOptions
  DecisionSource source = {};                        // who decides; not set: analysis
  std::vector<GraphDecision>* asked = nullptr;       // what passes asked is added to it
  std::set<std::string> kept_nodes = {};             // CompileOptions
  std::set<std::string> skipped_passes = {};         // CompileOptions
  AfterPass after_pass = {};                         // CompileOptions

  // False where a constraint says another value: it need not be a candidate.
  bool allows(const std::string& name, const Choice& value) const;
  // What to do with the nodes, in order, of which the last one's results alone are used elsewhere: one of the
  // candidates.  Where a constraint says which, or there is but one, nobody is asked.
  Choice decide(const Graph& graph, const std::vector<size_t>& nodes, const std::string& name,
                std::vector<Candidate> candidates, const Choice& analytic) const;
};

#define PASS(name, is_optional) Graph name(const Graph& graph);
#define TARGET_PASS(name, is_optional) Graph name(const Graph& graph, const PassContext& context);
#define BACKEND_PASS(name, is_optional) TARGET_PASS(name, is_optional)
#include "relay_ir/passes.def"

// Whether a node is among those that are named, or was made beside or from one of these: `conv1_2` and `conv1.joined`
// of the model's node `conv1`.
bool is_named(const Node& node, const std::set<std::string>& names);

// Multiply-adds of such operands, with sums in f32, that the target does in the time of one on f32; below 1 where it
// has none that are worth using, 0 where it has none.
double product_rate(Precision precision, const Target& target);
// The same of codes of 8 bits by tensor cores, with sums in i32 of integers and in f32 of floats; 0 where it has none.
double code_product_rate(DType codes, const Target& target);

// Whether one of its dimensions is known to be 0.
bool has_no_elements(const TensorType& type);

// All passes that the target's graphs go through.  Error(text) where a skipped one is no optional pass.
Graph run_passes(const Graph& graph, const PassContext& context);

using PassFunction = std::function<Graph(const Graph&, const PassContext&)>;
PassFunction find_pass(std::string_view name);  // not set: unknown
std::vector<std::string> pass_names();          // in the order of passes.def
std::vector<std::string> optional_passes();     // each once

}  // namespace tw::relay
