// The padded copy of a convolution's or pool's input, made where it is used: a strip of rows of one block of channels
// stays in the core's caches, and no pass over the whole input goes before.
//
//   for c, h parallel { P[c, h] = pad(X) }                 for c, strips of h parallel {
//   for c, h parallel { Y[c, h] = Σ P[c, h + …] }    ⇒       for h { P'[h] = pad(X) }
//                                                            for h { Y[c, h] = Σ P'[h + …] } }
#include <algorithm>

#include "runtime/rounding.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/passes/skip_iterations.h"

namespace tw::cpu {
namespace {

constexpr int64_t strip_bytes = 128 << 10;  // of the copy: well within a core's second cache

}  // namespace

int64_t decide_strip(Schedule& schedule, const BlockRef& padding, const BlockAnalysis& sum, const Var& axis,
                     int64_t blocks, const Target& target) {
  constexpr int64_t fewest_rows = 4, most_open_rows = 32;
  const BlockAnalysis copy = analyse(schedule.node(padding));
  const std::vector<Var> axes = copy.spatial();
  const int64_t rows = sum.typical_extent(axis);
  int64_t bytes = copy.write.buffer->dtype.bytes();  // of what a vector of channels needs
  for (size_t d = 2; d < axes.size(); ++d) bytes *= copy.typical_extent(axes[d]);
  if (const auto lanes = as_int(copy.write.buffer->shape.back()); copy.write.buffer->shape.size() > axes.size())
    bytes *= std::min<int64_t>(lanes.value_or(1), target.lanes(sum.write.buffer->dtype));
  int64_t best = 0;
  // A pass of its own goes through memory; a strip copies its borders once more.
  std::vector<Candidate> candidates{{{0}, 1.4}};
  const auto consider = [&](int64_t strip) {
    const int64_t strips = divide_up(rows, strip);
    const bool has_tasks = blocks * strips >= 2 * target.threads;
    const bool is_near = bytes * strip / rows <= strip_bytes;
    if (has_tasks && is_near) best = strip;
    const double borders = strips > 1 ? 1.0 / static_cast<double>(strip) : 0;
    candidates.push_back({{strip}, 1 + borders + (has_tasks ? 0 : 0.5) + (is_near ? 0 : 0.25)});
  };
  if (sum.is_open(axis)) {
    for (int64_t strip = fewest_rows; strip <= most_open_rows; strip *= 2) consider(strip);
  } else {
    for (int64_t strip = 1; strip <= rows; ++strip)
      if (rows % strip == 0 && (strip >= fewest_rows || strip == rows)) consider(strip);
  }
  return schedule.decide("strip", candidates, {best})[0];
}

void skip_beyond(Schedule& schedule, const std::vector<LoopRef>& loops) {
  for (const LoopRef& loop : loops)
    if (!is_open(schedule, loop)) schedule.annotate(loop, skip_iterations_attribute, int64_t{1});
}

void compute_padding_at(Schedule& schedule, const BlockRef& padding, const LoopRef& loop, int64_t vector_lanes) {
  schedule.compute_at(padding, loop);
  const BlockAnalysis copy = analyse(schedule.node(padding));
  const int lanes = static_cast<int>(as_int(copy.write.buffer->shape.back()).value_or(0));
  std::vector<LoopRef> order = loops_below(schedule, padding, loop);
  for (const Var& v : copy.spatial())
    if (copy.is_open(v)) skip_beyond(schedule, loops_below(schedule, padding, loop, v));
  for (const Var& v : copy.spatial()) {
    if (lanes < 2 || unit_stride(copy.write, v, copy.iters, lanes) != 1) continue;
    for (const LoopRef& vector : loops_below(schedule, padding, loop, v)) {
      if (extent_of(schedule, vector) < 2 || extent_of(schedule, vector) > lanes) continue;
      std::erase(order, vector);
      order.push_back(vector);
      if (order.size() > 1) schedule.reorder(order);
      const bool is_long = extent_of(schedule, order.back()) > vector_lanes;
      schedule.vectorize(is_long ? schedule.split(order.back(), {std::nullopt, vector_lanes})[1] : order.back());
      return;
    }
  }
}

}  // namespace tw::cpu
