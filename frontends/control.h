// Control flow: regions of the graph, for what frontends call branches, loops and scans.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frontends/builder.h"

namespace tw::frontends {

// While one is open, all that is emitted goes into a region of the graph that was there before.  Regions are left,
// finished, or abandoned by an exception, in the opposite order.
class Region {
 public:
  // `branch`: its name, if a run may go by another one.
  explicit Region(Import& import, const std::string& branch = "");
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // While it is left, what is emitted goes into the graph before again.
  void leave() { swap(); }
  void enter() { swap(); }
  // The region's graph, when it is left.
  const Graph& inside() const { return graph_; }
  // The graph before, while it is entered.
  const Graph& around() const { return graph_; }

  void add_symbol(const Var& symbol) { import_.graph.symbols.push_back(symbol); }
  // A symbol of the region: 0 … count - 1.
  Var add_step(const Expr& count);
  ValueId add_input(const std::string& name, const TensorType& type);
  const Value& outside(ValueId id) const { return graph_.values[id]; }  // of the graph before
  bool is_known_outside(const Expr& e) const;                           // what it is made of
  // The last inputs that were added go again.
  void keep_inputs(size_t count) { import_.graph.inputs.resize(count); }
  // A value of the graph before, in the region: constants and known sizes are there, others become inputs.  A list:
  // each of its tensors.
  ValueId capture(ValueId outside);
  ValueId capture_random_state();
  // The number of the step, of each loop around what is emitted now; the outer ones first.
  std::vector<Var> steps() const;

  struct Result {
    Graph graph;                    // its inputs: those that were added, then what was captured
    std::vector<ValueId> captured;  // values of the graph before
  };
  Result finish(const std::vector<ValueId>& outputs);

 private:
  void swap();

  Import& import_;
  Graph graph_;                                 // the one that is not the import's now
  std::map<ValueId, std::vector<Expr>> sizes_;  // of its values
  std::vector<ValueId> captured_, captures_;    // outside and inside
  std::map<ValueId, ValueId> known_;            // by the value outside
  std::string branch_;                          // around it
  Region* around_ = nullptr;                    // while it is open; else the one that is entered next
  std::vector<Var> step_;                       // of a loop: one
  bool is_open_ = false;
};

// One of two regions of results of the same types, each finished.
std::vector<ValueId> emit_branch(Builder& b, ValueId condition, Region::Result first, Region::Result second);

// While it is there, what steps of a loop read are other numbers than those of the times before, in which they were
// imported with values of other types: what was learned of these does not hold.
class AnotherTime {
 public:
  AnotherTime(Import& import, int time, char mark) : import_(import), before_(import.times) {
    import.times += std::string(static_cast<size_t>(time), mark);
  }
  ~AnotherTime() { import_.times = before_; }
  AnotherTime(const AnotherTime&) = delete;
  AnotherTime& operator=(const AnotherTime&) = delete;

 private:
  Import& import_;
  const std::string before_;
};

struct LoopStep {
  ValueId condition = no_value;  // whether there is another step
  // The carried values after the step, but for last ones that no step has used and nobody wants; what is kept of it.
  std::vector<ValueId> carried, kept;
};
// `body`: emits a step, whose number is the symbol, in the region.  `condition`: bool[] or no_value.  `reversed`: that
// the last step's part comes first in what is kept, by position; empty: of none.  Results: the carried values, then
// what was kept of the steps that were done.  Sizes of carried values may grow by as much in each step, or change as
// the step or data decide, which is found by running the body more than once.
std::vector<ValueId> emit_loop(
    Builder& b, const Expr& steps, ValueId condition, std::vector<ValueId> carried,
    const std::vector<int64_t>& reversed,
    const std::function<LoopStep(Region&, const Var& step, const std::vector<ValueId>&)>& body);

// x at one position of an axis, which may be symbolic, without the axis.
ValueId emit_pick(Builder& b, ValueId x, int axis, const Expr& index);

}  // namespace tw::frontends
