// Makes a plan step by step: of a network for compile(), of one Func for the tuner.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "relay_ir/compile/constant_pool.h"
#include "relay_ir/compile/scheduled_func.h"
#include "relay_ir/graph.h"
#include "runtime/plan/plan.h"

namespace tw::relay {

// Arrays of the caller begin where they do: numpy's at multiples of 16.  A copy would cost more than vectors that lie
// across cache lines.
int caller_alignment(const Target& target);

class PlanMaker {
 public:
  PlanMaker(const std::string& model, std::vector<Var> symbols, const std::vector<Equality>& equalities,
            const Target& target, ConstantPool& constants);

  BufferUse add_input(const std::string& name, const TensorType& type);
  // `in_place`: the input whose array it is, too; -1: none.
  BufferUse add_output(const std::string& name, const TensorType& type, int32_t in_place = -1);
  BufferUse add_constant(const std::string& name, const NDArray& original, const std::vector<IndexMap>& layouts) {
    return constants_.add(name, original, layouts);
  }
  // Memory that lives from the first to the last step that uses it.
  BufferUse add_temporary(const Expr& bytes);

  // The kernels of a Func, which together move so many bytes.  `use`: where a buffer of the Func is, by position;
  // asked for those that a kernel uses.
  void add_steps(const std::string& name, const ScheduledFunc& func, const Expr& bytes,
                 const std::function<BufferUse(size_t)>& use);

  Size size_of(const Expr& e) const;
  Plan finish() &&;  // without constants, which are the pool's

 private:
  TensorInfo info(const std::string& name, const TensorType& type) const;
  double smallest(const Expr& e) const;
  BufferUse until(int step, BufferUse use);
  void place_temporaries();

  const Target& target_;
  std::vector<Var> symbols_;
  ConstantPool& constants_;
  Plan plan_;
};

}  // namespace tw::relay
