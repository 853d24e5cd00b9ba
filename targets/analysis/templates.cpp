#include "targets/analysis/templates.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::analysis {

bool apply_template(Schedule& schedule, const std::function<bool(Schedule&)>& attempt) {
  Schedule tried = schedule;
  try {
    if (!attempt(tried)) return false;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::schedule || schedule.func().parameters.empty()) throw;
    return false;
  }
  schedule = std::move(tried);
  return true;
}

void begin_outside(Schedule& schedule) {
  for (const BlockRef& block : schedule.blocks()) {
    const Block& node = schedule.node(block);
    const auto is_reduce = [](const IterVar& iter) { return iter.kind == IterKind::reduce; };
    const bool may_be_empty = std::any_of(node.iters.begin(), node.iters.end(), [&](const IterVar& iter) {
      return is_reduce(iter) && !can_prove(iter.extent >= 1);
    });
    if (!node.init.is_defined() || !may_be_empty) continue;
    for (const LoopRef& loop : schedule.loops(block)) {
      const Var var = schedule.node(loop).var;
      const bool is_reduced = std::any_of(node.iters.begin(), node.iters.end(), [&](const IterVar& iter) {
        return is_reduce(iter) && uses_var(iter.binding, var);
      });
      if (!is_reduced) continue;
      schedule.decompose_reduction(block, loop);
      break;
    }
  }
}

}  // namespace tw::analysis
