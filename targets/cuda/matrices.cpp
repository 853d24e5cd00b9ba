#include "targets/cuda/matrices.h"

#include <algorithm>
#include <limits>

#include "targets/analysis/block_relations.h"
#include "targets/cuda/default_schedule.h"

namespace tw::cuda {
namespace {

using namespace analysis;
using Groups = std::vector<std::vector<int64_t>>;

// The innermost first: by how far an operand moves with each, in pieces of one access.
void sort_along_memory(std::vector<int64_t>& axes, const BlockAnalysis& analysis, const Access& operand) {
  const int64_t piece = access_bytes / operand.buffer->dtype.bytes();
  const auto distance = [&](int64_t axis) {
    const auto stride = unit_stride(operand, analysis.iters[static_cast<size_t>(axis)].var, analysis.iters,
                                    static_cast<int>(piece));
    return stride ? std::abs(*stride) : std::numeric_limits<int64_t>::max();
  };
  std::stable_sort(axes.begin(), axes.end(), [&](int64_t x, int64_t y) { return distance(x) > distance(y); });
}

// Others first, what is summed over last; rows and columns such that the latter run along the result's memory.
Groups group_iterations(const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                        const Access& along) {
  const Access &a = analysis.reads[0], &b = analysis.reads[1];
  Groups groups;
  std::vector<int64_t> rows, columns, reduce;
  for (size_t axis = 0; axis < analysis.iters.size(); ++axis) {
    const IterVar& iter = analysis.iters[axis];
    const bool in_a = a.uses(iter.var), in_b = b.uses(iter.var);
    if (iter.kind == IterKind::reduce)
      reduce.push_back(static_cast<int64_t>(axis));
    else if (in_a == in_b)
      groups.push_back({static_cast<int64_t>(axis)});
    else
      (in_a ? rows : columns).push_back(static_cast<int64_t>(axis));
  }
  sort_along_memory(reduce, analysis, along);
  const auto runs_along = [&](int64_t axis) {
    return result_stride(schedule, block, analysis.iters[static_cast<size_t>(axis)].var, 2) == 1;
  };
  if (std::any_of(rows.begin(), rows.end(), runs_along)) std::swap(rows, columns);
  for (auto& group : {rows, columns, reduce})
    if (!group.empty()) groups.push_back(group);
  return groups;
}

// The dimensions of a constant in the order of its matrix.
void order_constant(Schedule& schedule, const BlockAnalysis& analysis, const Access& access, const Groups& groups) {
  if (!access.buffer->is_constant || readers_of(schedule, access.buffer).size() != 1) return;
  IndexMap map;
  for (size_t d = 0; d < access.indices.size(); ++d) map.from.push_back(Var("d" + std::to_string(d)));
  for (const auto& group : groups)
    for (const int64_t axis : group)
      for (size_t d = 0; d < access.indices.size(); ++d)
        if (access.indices[d].get() == analysis.iters[static_cast<size_t>(axis)].var.get()) map.to.push_back(map.from[d]);
  const auto is_single = [&](size_t d) { return is_const_int(access.buffer->shape[d], 1) && as_int(access.indices[d]); };
  for (size_t d = 0; d < access.indices.size(); ++d)
    if (is_single(d)) map.to.push_back(map.from[d]);
  if (map.to.size() == map.from.size()) schedule.transform_layout(access.buffer->name, map);
}

std::optional<BlockRef> copy_of(const Schedule& schedule, const Access& before, const Access& after) {
  if (before.buffer == after.buffer) return std::nullopt;
  return writer_of(schedule, after.buffer);
}

}  // namespace

Matrices make_matrices(Schedule& schedule, const BlockRef& block) {
  Matrices matrices;
  const auto is_plain = [](const BlockAnalysis& analysis, const Groups& groups) {
    const auto is_single = [](const auto& group) { return group.size() == 1; };
    const auto is_variable = [](const Expr& index) { return index.kind() == NodeKind::Var; };
    return std::all_of(groups.begin(), groups.end(), is_single) &&
           std::all_of(analysis.reads.begin(), analysis.reads.end(), [&](const Access& read) {
             return std::all_of(read.indices.begin(), read.indices.end(), is_variable);
           });
  };
  if (const auto padding = find_padding(schedule, block)) schedule.compute_inline(*padding);
  BlockAnalysis before = analyse(schedule.node(block));
  const Access& data = before.reads[before.reads[0].buffer->is_constant ? 1 : 0];
  const Groups groups = group_iterations(schedule, block, before, data);
  if (is_plain(before, groups)) return matrices;
  for (const Access& read : before.reads) order_constant(schedule, before, read, groups);
  before = analyse(schedule.node(block));
  const auto epilogue = find_epilogue(schedule, block);
  schedule.fuse_iterations(block, groups);
  const BlockAnalysis after = analyse(schedule.node(block));
  for (size_t i = 0; i < matrices.copies.size(); ++i)
    matrices.copies[i] = copy_of(schedule, before.reads[i], after.reads[i]);
  matrices.out = copy_of(schedule, after.write, before.write);
  if (matrices.out && epilogue) schedule.reverse_compute_inline(*epilogue);
  return matrices;
}

void pad_to_multiples(Schedule& schedule, const BlockRef& block, Matrices& matrices,
                      const std::vector<std::pair<Var, int64_t>>& multiples) {
  std::vector<int64_t> all;
  for (const IterVar& iter : schedule.node(block).iters) {
    const auto own = std::find_if(multiples.begin(), multiples.end(), [&](const auto& m) { return m.first == iter.var; });
    all.push_back(own == multiples.end() ? 1 : own->second);
  }
  const auto reader = matrices.out ? matrices.out : find_epilogue(schedule, block);
  const BlockAnalysis before = analyse(schedule.node(block));
  schedule.pad_operands(block, all);
  const BlockAnalysis after = analyse(schedule.node(block));
  for (size_t i = 0; i < matrices.copies.size(); ++i) {
    const auto copy = copy_of(schedule, before.reads[i], after.reads[i]);
    if (!copy) continue;
    if (matrices.copies[i]) schedule.compute_inline(*matrices.copies[i]);
    matrices.copies[i] = copy;
  }
  const auto inside = copy_of(schedule, after.write, before.write);
  if (!inside) return;
  if (reader) schedule.compute_inline(*inside);
  matrices.out = reader ? reader : inside;
}

}  // namespace tw::cuda
