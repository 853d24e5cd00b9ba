// Makes a plan step by step: of a network for compile(), of one Func for the tuner.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "relay_ir/compile/constant_pool.h"
#include "relay_ir/compile/scheduled_func.h"
#include "relay_ir/graph.h"
#include "runtime/plan/plan.h"
#include "tensor_ir/plan_size.h"

namespace tw::relay {

// Arrays of the caller begin where they do: numpy's at multiples of 16.  A copy would cost more than vectors that lie
// across cache lines.
int caller_alignment(const Target& target);

class PlanMaker {
 public:
  PlanMaker(const std::string& model, std::vector<Var> symbols, const std::vector<Equality>& equalities,
            const Target& target, ConstantPool& constants);

  BufferUse add_input(const std::string& name, const TensorType& type);
  BufferUse random_state() const { return {Storage::random, 0, 0, 16}; }
  // `in_place`: the input whose array it is, too; -1: none.
  BufferUse add_output(const std::string& name, const TensorType& type, int32_t in_place = -1);
  BufferUse add_constant(const std::string& name, const NDArray& original, const std::vector<IndexMap>& layouts) {
    return constants_.add(name, original, layouts);
  }
  // Memory that lives from the first to the last step that uses it; through a loop that both lie on different sides of.
  // Of what grows with the steps of loops around it, as much as the largest takes.
  BufferUse add_temporary(const Expr& bytes);

  // Memory that is given again and again as a loop's steps give it another size: of so many bytes for what is there
  // before a step, which takes what is there when a number in them is set, and of others for what the step makes of it,
  // which is there behind the loop.
  std::pair<BufferUse, BufferUse> add_growing(const Expr& before, const Expr& after);
  // The same in one place, where what is there before a step stays.
  BufferUse add_growing(const Expr& bytes);

  // The kernels of a Func, which together move so many bytes.  `parameters`: what its parameters are here.  `use`:
  // where a buffer of the Func is, by position; asked for those that a kernel uses.
  void add_steps(const std::string& name, const ScheduledFunc& func, const std::vector<Expr>& parameters,
                 const Expr& bytes, const std::function<BufferUse(size_t)>& use);

  // A function of the host, with these buffers of these extents.  Error(unsupported): the target has none.
  void add_call(const std::string& name, HostCall call, const std::vector<BufferUse>& buffers,
                const std::vector<Expr>& extents);

  // Ends the run where a number is not the least i64 (ops/control.cpp, demand).
  void add_demand(const std::string& name, const std::string& text, const BufferUse& number);

  // A number that is set when its value is known.
  struct Waiting {
    std::string name;
    Var number;
    Expr value;
  };

  // Steps of control (StepKind): `begin` adds the first of a branch, which leads to where `end` is called; `turn` ends
  // its first way and begins the other.
  struct Control {
    uint32_t step = 0, counter = 0;
    // Before a branch, of which both ways may read a number.
    std::unordered_set<Var> announced = {};
    std::vector<Equality> unknown = {};
    std::vector<Waiting> waiting = {};
  };
  Control begin_branch(const std::string& name, const BufferUse& condition);
  Control turn(Control branch);
  void end_branch(Control branch);
  bool is_known(const Expr& e) const;  // by then
  // The run ends where both differ: before it begins, or as soon as both are known.
  void rely_on(const Equality& equal);
  // A number that will be read: sizes of outputs may be made of it.
  void announce(const Var& number);
  // `number`: what is in `x`, from there on (ops/control.cpp, item).
  void add_read(const std::string& name, const BufferUse& x, const Expr& number);
  // `number` is `value` from there on; at most what the counter can be, if one is given.
  void add_set(const std::string& name, const Var& number, const Expr& value, std::optional<uint32_t> counter = {});
  // Several numbers, each a variable and its value; the run ends where one is outside of its bounds.  Memory is given
  // when all are known.
  void add_sets(const std::string& name, const std::vector<std::pair<Var, Expr>>& numbers);
  // The same of one as soon as its value is known, now or behind a step that comes.
  void set_when_known(const std::string& name, const Var& number, const Expr& value);
  // In expressions, `number` is the step's within the loop, and `done` that of all steps behind it.  `grown`: a
  // variable that is set to 0 before the loop and here to the steps done after this one, where memory is given in each
  // step.
  Control begin_loop(const std::string& name, const Var& number, const Var& done, const Expr& steps,
                     const std::optional<BufferUse>& condition, const std::optional<Var>& grown);
  void end_loop(Control loop, const std::optional<BufferUse>& condition);

  Size size_of(const Expr& e) const;
  // …of memory or work: in a branch that a run does not take they may be negative, and are 0.
  Size extent_of(const Expr& e) const;
  void set_lists(const Graph& graph) {
    plan_.input_lists = graph.input_lists;
    plan_.output_lists = graph.output_lists;
  }
  Plan finish() &&;  // without constants, which are the pool's

 private:
  void add_check(const Equality& equal);
  void add_known_checks();
  void set_known();
  TensorInfo info(const std::string& name, const TensorType& type) const;
  double smallest(const Expr& e) const;
  Expr most_in_loops(Expr e) const;
  BufferUse until(int step, BufferUse use);
  void keep_through_loops();

  const Target& target_;
  std::vector<Var> symbols_;
  ConstantPool& constants_;
  Counters counters_;
  std::unordered_set<Var> announced_;  // numbers that are still to be read
  std::vector<Equality> unknown_;      // made of such
  std::vector<Waiting> waiting_;       // likewise
  int branches_ = 0;                   // around the next step
  struct Steps {
    Var number;
    Expr last;
    std::optional<Var> grown;  // `number` + 1, for which memory is given in each step
  };
  std::vector<Steps> around_;               // loops around the next step, outer ones first
  std::vector<std::pair<int, int>> loops_;  // their first and last steps, inner ones first
  Plan plan_;
};

}  // namespace tw::relay
