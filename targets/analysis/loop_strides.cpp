#include "targets/analysis/loop_strides.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::analysis {

std::optional<int64_t> loop_stride(const Schedule& schedule, const BlockRef& block, const Access& access,
                                   const LoopRef& loop) {
  const Expr step = loop_step(schedule, block, access, loop);
  return step.is_defined() ? as_int(step) : std::nullopt;
}

PlaceInLoops place_in_loops(const Schedule& schedule, const BlockRef& block, const Access& access) {
  const Block& node = schedule.node(block);
  Substitution bindings;
  for (const IterVar& iter : node.iters) bindings[iter.var] = iter.binding;
  Assumptions assumptions;
  for (const LoopRef& l : schedule.loops(block)) assumptions.bind_range(l.var, schedule.node(l).extent);
  Expr offset(0), stride(1);
  for (size_t d = access.indices.size(); d-- > 0;) {
    offset = substitute(access.indices[d], bindings) * stride + offset;
    stride = stride * access.buffer->shape[d];
  }
  return {offset, assumptions};
}

Expr loop_step(const Schedule& schedule, const BlockRef& block, const Access& access, const LoopRef& loop) {
  const auto [offset, assumptions] = place_in_loops(schedule, block, access);
  const Expr canonical = simplify(offset, assumptions);
  if (!uses_var(canonical, loop.var)) return Expr(0);
  // Linear in the loop: the offset without the loop's own part must not depend on it.
  const auto affine = as_affine(canonical);
  if (affine) return Expr(affine->coefficient(loop.var));
  const Expr at_zero = simplify(substitute(canonical, {{loop.var, Expr(0)}}), assumptions);
  const Expr difference = simplify(canonical - at_zero, assumptions);
  const auto linear = as_affine(difference);
  if (linear && linear->constant == 0 && linear->terms.size() == 1) return Expr(linear->coefficient(loop.var));
  // A symbolic stride: of the Func's parameters only.
  const Expr step = simplify(substitute(difference, {{loop.var, loop.var + 1}}) - difference, assumptions);
  bool is_linear = true;
  visit(step, [&](const VarNode& var) {
    const auto& parameters = schedule.func().parameters;
    is_linear = is_linear && std::any_of(parameters.begin(), parameters.end(),
                                         [&](const Var& parameter) { return parameter.get() == &var; });
  });
  return is_linear ? step : Expr();
}

void merge_loops(Schedule& schedule, const BlockRef& block, std::vector<LoopRef>& loops) {
  for (size_t l = loops.size(); l-- > 1;) {
    const LoopRef outer = loops[l - 1], inner = loops[l];
    const int64_t inner_extent = extent_of(schedule, inner);
    const BlockAnalysis analysis = analyse(schedule.node(block));
    const auto is_mergeable = [&](const Access& access) {
      const auto outer_stride = loop_stride(schedule, block, access, outer);
      const auto inner_stride = loop_stride(schedule, block, access, inner);
      return outer_stride && inner_stride && *outer_stride == *inner_stride * inner_extent;
    };
    if (is_open(schedule, inner) || !is_mergeable(analysis.write) ||
        !std::all_of(analysis.reads.begin(), analysis.reads.end(), is_mergeable)) {
      continue;
    }
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(l));
    loops[l - 1] = schedule.fuse({outer, inner});
  }
}

}  // namespace tw::analysis
