#include "targets/cpu/operand_packing.h"

#include <algorithm>

#include "targets/cpu/default_schedule.h"

namespace tw::cpu {

bool is_even_share(int64_t tasks, int threads) {
  const int64_t rounds = (tasks + threads - 1) / std::max(1, threads);
  return tasks > 0 && static_cast<double>(rounds * threads) <= 1.15 * static_cast<double>(tasks);
}

void pack_at(Schedule& schedule, const BlockRef& copy, const LoopRef& loop, int axis, int lanes) {
  schedule.compute_at(copy, loop);
  const BlockAnalysis analysis = analyse(schedule.node(copy));
  const std::vector<LoopRef> all = schedule.loops(copy);
  std::vector<LoopRef> inner(std::find(all.begin(), all.end(), loop) + 1, all.end());
  const auto along = loops_of(schedule, copy, analysis.spatial().at(static_cast<size_t>(axis)));
  const auto found = std::find_if(inner.rbegin(), inner.rend(), [&](const LoopRef& l) {
    return std::find(along.begin(), along.end(), l) != along.end();
  });
  if (found == inner.rend() || extent_of(schedule, *found) < 2) return;
  LoopRef vector = *found;
  std::erase(inner, vector);
  // What is read along another loop is transposed: some of its rows at a time, in registers.
  const auto is_row = [&](const LoopRef& l) {
    return extent_of(schedule, l) > 1 && loop_stride(schedule, copy, analysis.reads.at(0), l) == 1;
  };
  const auto row = std::find_if(inner.begin(), inner.end(), is_row);
  std::optional<LoopRef> columns;
  if (row != inner.end()) {
    if (extent_of(schedule, *row) > lanes) {
      const auto parts = schedule.split(*row, {std::nullopt, lanes});
      *row = parts[0], columns = parts[1];
    } else {
      columns = *row;
      inner.erase(row);
    }
  }
  std::vector<LoopRef> order = inner;
  std::optional<LoopRef> vectors;
  if (extent_of(schedule, vector) > lanes) {
    const auto parts = schedule.split(vector, {std::nullopt, lanes});
    vectors = parts[0], vector = parts[1];
    order.push_back(*vectors);
  }
  if (columns) order.push_back(*columns);
  order.push_back(vector);
  if (order.size() > 1) schedule.reorder(order);
  if (columns)
    schedule.unroll(*columns);
  else if (vectors)
    schedule.unroll(*vectors);
  schedule.vectorize(vector);
}

}  // namespace tw::cpu
