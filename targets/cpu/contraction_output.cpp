#include "targets/cpu/contraction_output.h"

#include "targets/cpu/default_schedule.h"

namespace tw::cpu {

StackTile keep_on_stack(Schedule& schedule, const BlockRef& block, const LoopRef& tile) {
  const std::string result = written_by(schedule, block)->name;
  StackTile on_stack;
  on_stack.out = find_epilogues(schedule, block).blocks;
  const bool has_epilogue = !on_stack.out.empty();
  if (!has_epilogue) on_stack.out = {schedule.cache_write(block, result, Scope::stack)};
  on_stack.in_memory = written_by(schedule, block)->name;
  on_stack.copy = schedule.cache_write(block, on_stack.in_memory, Scope::register_);
  on_stack.in_registers = written_by(schedule, block);
  schedule.reverse_compute_at(on_stack.copy, tile);
  for (const BlockRef& out : on_stack.out) schedule.reverse_compute_at(out, tile);
  if (has_epilogue) schedule.set_scope(on_stack.in_memory, Scope::stack);
  keep_results_between(schedule, on_stack.out, Scope::stack);
  return on_stack;
}

void vectorize_columns(Schedule& schedule, const BlockRef& out, const Contraction& c, const LoopRef& tile, int lanes) {
  std::vector<LoopRef> order = loops_below(schedule, out, tile);
  // Takes the innermost loop along the axis out of the order, in parts of `lanes` where it is longer.
  const auto take = [&](const Var& axis) -> std::optional<LoopRef> {
    const Var own = analyse(schedule.node(out)).spatial().at(position_of(c.analysis, axis));
    const auto loop = innermost_within(schedule, out, tile, own);
    if (!loop) return std::nullopt;
    std::erase(order, *loop);
    if (extent_of(schedule, *loop) <= lanes) return loop;
    const auto parts = schedule.split(*loop, {std::nullopt, lanes});
    order.push_back(parts[0]);
    return parts[1];
  };
  const auto row = take(c.rows.back()), column = take(c.vector_axis);
  order = in_order(order, column, row);
  if (order.size() > 1) schedule.reorder(order);
  if (column) schedule.unroll(*column);
  if (row) schedule.vectorize(*row);
}

std::vector<BlockRef> write_tile(Schedule& schedule, const BlockRef& block, const Contraction& c, const LoopRef& tile,
                                 const LoopRef& first_k, int lanes) {
  const size_t axis = position_of(c.analysis, c.vector_axis);
  if (!c.is_across) {
    const Epilogue epilogue = find_epilogues(schedule, block);
    const size_t axis_of_result = epilogue.blocks.empty() ? axis : epilogue.axis(axis).value();
    const std::vector<BlockRef> out = keep_in_registers(schedule, block, tile, axis);
    const BlockRef init = schedule.decompose_reduction(block, first_k);
    vectorize_below(schedule, init, tile, axis, lanes);
    for (const BlockRef& last : out) vectorize_below(schedule, last, tile, axis_of_result, lanes);
    return out;
  }
  const StackTile on_stack = keep_on_stack(schedule, block, tile);
  for (const std::string& buffer : {on_stack.in_registers->name, on_stack.in_memory})
    schedule.transform_layout(buffer, axis_last(on_stack.in_registers->shape.size(), axis));
  const BlockRef init = schedule.decompose_reduction(block, first_k);
  vectorize_below(schedule, init, tile, axis, lanes);
  vectorize_below(schedule, on_stack.copy, tile, axis, lanes);
  for (const BlockRef& last : on_stack.out) vectorize_columns(schedule, last, c, tile, lanes);
  return on_stack.out;
}

}  // namespace tw::cpu
