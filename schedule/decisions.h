// What a template or a pass of graphs leaves open: named decisions, each with the values that it may take and the one
// that analysis prefers.
//
//   const Choice tile = schedule.decide("tile", candidates, {14, 2});                        a template, of a kernel
//   const Choice part = context.decide(graph, {node}, "split_kv", candidates, {256});        a pass, of nodes
//
// A template that asks so is a sketch rule: the space of a Func is what its template asks when it runs, a point of the
// space is one value for each, and a search needs to know nothing else.  Without a decision the analytic choice holds,
// so what nobody searched for is as by default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tw {

// The value of a decision: a few numbers, {14, 2} for a tile of 14 rows and 2 vectors.
using Choice = std::vector<int64_t>;

// What was decided, by name.  What is not in it is left to analysis.
using Decisions = std::map<std::string, Choice>;
// The first number of what was decided; 0 where nothing was.
int64_t decided(const Decisions& decisions, const std::string& name);

struct Candidate {
  Choice value;
  // Predicted time of the block with it, in any unit: it compares candidates of one decision, from facts of the target
  // alone.
  double cost = 1;
};

// A decision as it was asked for.
struct AskedDecision {
  std::string name;
  std::vector<Candidate> candidates;  // the analytic choice is among them
  size_t analytic = 0, chosen = 0;    // of candidates
  const Choice& value() const { return candidates[chosen].value; }
  // Chooses this candidate; false where it is none.
  bool choose(const Choice& value);
  // Of the chosen one, by the analytic choice's: above 1 it is predicted to be slower.
  double relative_cost() const { return candidates[chosen].cost / candidates[analytic].cost; }
};

// The analytic choice is chosen until somebody decides.
AskedDecision ask(const std::string& name, std::vector<Candidate> candidates, const Choice& analytic);

// "strip=14 tile=14x2"; nothing decided is "".  parse_decisions(to_text(d)) is d; Error(text) on anything else.
std::string to_text(const Choice& choice);
std::string to_text(const Decisions& decisions);
Decisions parse_decisions(std::string_view text);

}  // namespace tw
