#include "relay_ir/compile/unique_funcs.h"

#include <algorithm>

#include "relay_ir/compile/merge_axes.h"
#include "relay_ir/compile/plan_maker.h"
#include "targets/backend.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"

namespace tw::relay {
namespace {

// Kernels assume it of every value, so that equal layers are equal work wherever they stand.
Func with_caller_alignment(Func func, const Graph& graph, const Group& group, int alignment) {
  const std::vector<ValueId> values = buffer_values(graph, group);
  for (size_t i = 0; i < values.size(); ++i) {
    if (graph.is_constant(values[i])) continue;
    BufferNode node = *func.buffers[i].get();
    node.alignment = alignment;
    const Buffer relaxed{std::move(node)};
    func.body = replace_buffer(func.body, func.buffers[i], relaxed);
    func.buffers[i] = relaxed;
  }
  return func;
}

}  // namespace

std::vector<size_t> UniqueFuncs::add(const Graph& graph, const std::vector<Group>& groups, const Target& target) {
  std::vector<size_t> of_group;
  for (const Group& group : groups) {
    Func func = with_caller_alignment(lower_group(graph, group), graph, group, caller_alignment(target));
    if (target.backend->merges_axes) func = merge_axes(func);
    std::vector<size_t>& equal = by_hash_[structural_hash(func)];
    const auto found = std::find_if(equal.begin(), equal.end(), [&](size_t i) {
      return funcs_[i].attributes == func.attributes && structural_equal(funcs_[i], func);
    });
    if (found != equal.end()) {
      of_group.push_back(*found);
      continue;
    }
    equal.push_back(funcs_.size());
    of_group.push_back(funcs_.size());
    funcs_.push_back(std::move(func));
  }
  return of_group;
}

}  // namespace tw::relay
