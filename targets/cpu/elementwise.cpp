// out[i] = f(in[g(i)], …): loops in the order of the output's memory, neighbours merged where every access allows it,
// the inner one vectorised, the others shared out.
//
// What is read in another order than it is written goes in tiles: the results of `columns` steps along the loop in
// which the read is contiguous are made side by side, so that code generation reads rows and transposes them in
// registers.
//
//   for j { for i { C[j, i] = A[i, j] } }                       A: 37×512, C: 512×37, vectors of 16
//   ⇒
//   for i1 in 0..3 parallel { for j1 in 0..32 { for j0 in 0..16 unrolled { for i0 in 0..16 vectorized { … } } } }
#include <algorithm>
#include <numeric>

#include "runtime/memory.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

constexpr int64_t elements_a_task = 4096;  // enough to outweigh handing out a task
constexpr int64_t fewest_rows = 4;         // fewer interleave as they are

// Elements of a vector: what is only moved is not computed with.
int vector_lanes(const Schedule& schedule, const BlockRef& block, const Target& target) {
  const auto* store = schedule.node(block).body.as<Store>();
  const bool only_moves = store && store->value.as<Load>();
  return only_moves ? target.lanes(store->buffer->dtype) : compute_lanes(store->buffer->dtype, target);
}

// How what comes from memory is walked through: the decision "streams".  Reading from several places at a time, each of
// which has its own prefetching, is faster on some machines and slower on others.  By default it is one, which is asked
// for beyond the end of its page, where the hardware stops.  Between long computations a core does not see the next
// reads early enough: these are asked for, too.
//
//   for v in 0..256 { S(v) }  ⇒  for v in 0..64 { for stream in 0..4 unrolled { S(stream * 64 + v) } }
void walk_in_streams(Schedule& schedule, const BlockRef& block, const LoopRef& run, const Target& target) {
  constexpr int64_t several = 4, fewest_vectors = 16;
  constexpr int64_t beyond_page = (16 << 10) + 64, next_reads = 2048;  // bytes
  const int64_t extent = extent_of(schedule, run);
  std::vector<Candidate> candidates{{{1}, 1}};
  if (extent % several == 0 && extent / several >= fewest_vectors) candidates.push_back({{several}, 1.1});
  const int64_t streams = schedule.decide("streams", std::move(candidates), {1})[0];
  LoopRef loop = run;
  if (streams > 1) {
    const auto parts = schedule.split(run, {streams, std::nullopt});
    schedule.reorder({parts[1], parts[0]});
    schedule.unroll(parts[0]);
    loop = parts[1];
  }
  const BlockAnalysis analysis = analyse(schedule.node(block));
  for (const Access& read : analysis.reads) {
    if (!is_large(read.buffer, target) || loop_stride(schedule, block, read, loop).value_or(0) <= 0) continue;
    if (analysis.is_expensive) prefetch_ahead(schedule, loop, read.buffer, next_reads);
    if (streams == 1) prefetch_ahead(schedule, loop, read.buffer, beyond_page);
    break;  // the first of them: asking for a second one costs more than it brings
  }
}

// The result moves linearly along the axis, by what is known only when the kernel runs.
bool has_open_stride(const Schedule& schedule, const BlockRef& block, const Var& axis) {
  const auto loops = loops_of(schedule, block, axis);
  const Expr step =
      loops.size() == 1 ? loop_step(schedule, block, analyse(schedule.node(block)).write, loops[0]) : Expr();
  return step.is_defined() && !as_int(step);
}

// An axis that is written with strides, and read in blocks that are contiguous, is walked as two loops: a block is what
// tiles are transposed from.
void split_read_blocks(Schedule& schedule, const BlockRef& block, const Var& axis) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const int64_t extent = analysis.extent(axis);
  const auto loops = loops_of(schedule, block, axis);
  if (loops.size() != 1 || loop_stride(schedule, block, analysis.write, loops[0]) == 1) return;
  for (const int64_t granule : {32, 16, 8, 4}) {
    for (const Access& read : analysis.reads) {
      if (extent <= granule || unit_stride(read, axis, analysis.iters, static_cast<int>(extent))) continue;
      if (unit_stride(read, axis, analysis.iters, static_cast<int>(granule)) != 1) continue;
      schedule.split(loops[0], {std::nullopt, granule});
      return;
    }
  }
}

// The loop along which something is contiguous that moves with strides along `inner`.
std::optional<LoopRef> find_transposed(const Schedule& schedule, const BlockRef& block,
                                       const std::vector<LoopRef>& loops, const LoopRef& inner) {
  if (extent_of(schedule, inner) < fewest_rows) return std::nullopt;
  for (const Access& read : analyse(schedule.node(block)).reads) {
    const Expr step = loop_step(schedule, block, read, inner);
    if (!step.is_defined() || as_int(step).value_or(fewest_rows) < fewest_rows) continue;  // of an open axis: large
    for (const LoopRef& loop : loops) {
      if (!(loop == inner) && extent_of(schedule, loop) > 1 && loop_stride(schedule, block, read, loop) == 1)
        return loop;
    }
  }
  return std::nullopt;
}

// `inner` becomes vectors and a line of the cache, `transposed` whole rows of what is read, as far as registers hold
// the tile.  Along a row the tiles follow each other, so that all memory that is read comes in streams.
void schedule_transposed(Schedule& schedule, const BlockRef& block, std::vector<LoopRef> outer,
                         const LoopRef& transposed, const LoopRef& inner, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  int64_t bytes = 1;  // of the widest element that is read
  for (const Access& read : analysis.reads) bytes = std::max<int64_t>(bytes, read.buffer->dtype.bytes());
  const int64_t lanes = vector_lanes(schedule, block, target);
  const int64_t inner_extent = extent_of(schedule, inner), row_extent = extent_of(schedule, transposed);
  // What goes past the caches is written in whole lines at a time.
  const int64_t line = std::max(lanes, line_bytes / analysis.write.buffer->dtype.bytes());
  const int64_t rows = std::min(leaves_caches(schedule.func(), target) ? line : lanes, inner_extent);
  const int64_t registers = target.vector_registers / 2 * (target.vector_bits / 8);
  int64_t columns = std::max<int64_t>(4, std::min(line_bytes / bytes, registers / (std::max(rows, lanes / 2) * bytes)));
  for (int64_t fewer = columns; fewer >= 4; fewer /= 2) {
    if (row_extent % fewer != 0) continue;
    columns = fewer;
    break;
  }
  columns = std::min(columns, row_extent);

  LoopRef vector = inner;
  std::optional<LoopRef> line_loop, rest;  // vectors of a line, lines
  if (inner_extent > rows) {
    if (line > rows && line % rows == 0 && inner_extent > line) {
      const auto parts = schedule.split(inner, {std::nullopt, line / rows, rows});
      rest = parts[0], line_loop = parts[1], vector = parts[2];
    } else {
      const auto parts = schedule.split(inner, {std::nullopt, rows});
      rest = parts[0], vector = parts[1];
    }
  }
  LoopRef row = transposed;
  std::optional<LoopRef> tiles;
  if (row_extent > columns) {
    const auto parts = schedule.split(transposed, {std::nullopt, columns});
    tiles = parts[0], row = parts[1];
  }
  int64_t tasks = 1;
  for (const LoopRef& loop : outer) tasks *= std::max<int64_t>(1, extent_of(schedule, loop));
  std::vector<LoopRef> shared = outer;
  if (rest && tasks < 4 * target.threads) {
    shared.push_back(*rest);
    tasks *= extent_of(schedule, *rest);
    rest.reset();
  }
  if (tiles && tasks < 4 * target.threads) {
    // Runs of a row, as long as may be.
    int64_t runs = 4 * target.threads;
    const int64_t count = extent_of(schedule, *tiles);
    while (runs > 1 && count % runs != 0) --runs;
    if (runs > 1) {
      const auto parts = schedule.split(*tiles, {runs, std::nullopt});
      shared.push_back(parts[0]);
      tiles = parts[1];
    }
  }
  schedule.reorder(in_order(shared, rest, tiles, line_loop, row, vector));
  schedule.unroll(row);
  schedule.vectorize(vector);
  if (shared.empty()) return;
  const LoopRef parallel = as_one(schedule, shared);
  if (is_open(schedule, parallel) || count_iterations(analysis, analysis.spatial()) >= elements_a_task)
    share_out(schedule, parallel);
}

// Vectors of the inner loop that a task takes, of so many: a count that divides, so that no task has a guard.
int64_t decide_vectors_a_task(Schedule& schedule, int64_t extent, int lanes, int64_t total, const Target& target) {
  const auto divisor_for = [&](int64_t elements) {
    int64_t vectors = std::max<int64_t>(1, elements / lanes);
    while (extent % vectors != 0) --vectors;
    return vectors;
  };
  const int64_t analytic = divisor_for(elements_a_task);
  if (total < elements_a_task) return analytic;  // one task
  std::vector<Candidate> candidates;
  for (int64_t elements = elements_a_task / 4; elements <= 16 * elements_a_task; elements *= 2) {
    const Choice vectors{divisor_for(elements)};
    if (std::any_of(candidates.begin(), candidates.end(), [&](const auto& c) { return c.value == vectors; })) continue;
    // Handing out a task costs as much as some hundred elements; too few tasks leave workers idle.
    const auto tasks = static_cast<double>(total) / static_cast<double>(vectors[0] * lanes);
    candidates.push_back({vectors, 1 + 200.0 * tasks / static_cast<double>(total) + target.threads / (4 * tasks)});
  }
  return schedule.decide("vectors_a_task", candidates, {analytic})[0];
}

}  // namespace

void schedule_elementwise(Schedule& schedule, const BlockRef& block, const Target& target, const Var& first) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (schedule.loops(block).empty()) return;
  const int lanes = vector_lanes(schedule, block, target);

  // An axis that the output stores in blocks is walked as two loops; as three where what is read has other blocks.
  const auto is_linear = [&](const Access& access, const Var& v, int64_t granule) {
    return unit_stride(access, v, analysis.iters, static_cast<int>(granule)).has_value();
  };
  const auto block_size = as_int(analysis.write.buffer->shape.back()).value_or(0);
  for (const Var& v : analysis.spatial()) {
    const int64_t extent = analysis.extent(v);
    if (extent <= 1) continue;
    if (is_linear(analysis.write, v, extent) || has_open_stride(schedule, block, v)) {
      split_read_blocks(schedule, block, v);
      continue;
    }
    for (const int64_t granule : {block_size, int64_t{lanes}, int64_t{16}, int64_t{8}, int64_t{4}, int64_t{32}}) {
      if (granule < 2 || !is_linear(analysis.write, v, granule)) continue;
      const auto loops = loops_of(schedule, block, v);
      if (loops.size() != 1) break;
      const int64_t piece = std::gcd<int64_t>(granule, lanes);
      const bool is_split =
          piece > 1 && piece < granule && granule % piece == 0 && granule % lanes != 0 &&
          std::any_of(
              analysis.reads.begin(), analysis.reads.end(),
              [&](const Access& read) { return !is_linear(read, v, granule) && is_linear(read, v, piece); });
      if (is_split) {
        schedule.split(loops[0], {std::nullopt, granule / piece, piece});
      } else {
        schedule.split(loops[0], {std::nullopt, granule});
      }
      break;
    }
  }

  // In the order of the output's strides, largest first.
  std::vector<LoopRef> loops = schedule.loops(block);
  const Access write = analyse(schedule.node(block)).write;
  std::vector<std::pair<int64_t, LoopRef>> by_stride;
  bool has_order = true;
  for (const LoopRef& loop : loops) {
    const Expr stride = loop_step(schedule, block, write, loop);
    has_order &= stride.is_defined();
    // Symbolic strides are products of what lies inside: the largest.
    by_stride.emplace_back(stride.is_defined() ? as_int(stride).value_or(INT64_MAX) : 0, loop);
  }
  if (has_order && loops.size() > 1) {
    std::stable_sort(by_stride.begin(), by_stride.end(),
                     [](const auto& x, const auto& y) { return x.first > y.first; });
    for (size_t i = 0; i < loops.size(); ++i) loops[i] = by_stride[i].second;
    if (first.is_defined()) {
      const auto along = loops_of(schedule, block, first);
      std::stable_partition(loops.begin(), loops.end() - 1, [&](const LoopRef& loop) { return loop == along.at(0); });
    }
    schedule.reorder(loops);
  }
  merge_loops(schedule, block, loops);

  const LoopRef inner = loops.back();
  if (has_order && loop_stride(schedule, block, write, inner) == 1) {
    if (const auto transposed = find_transposed(schedule, block, loops, inner)) {
      loops.pop_back();
      std::erase(loops, *transposed);
      schedule_transposed(schedule, block, loops, *transposed, inner, target);
      return;
    }
  }
  const int64_t inner_extent = extent_of(schedule, inner);
  loops.pop_back();
  int64_t outer_count = 1;
  bool has_open = is_open(schedule, inner);
  for (const LoopRef& loop : loops) {
    outer_count *= is_open(schedule, loop) ? 1 : std::max<int64_t>(1, extent_of(schedule, loop));
    has_open = has_open || is_open(schedule, loop);
  }
  const bool is_vector = has_order && loop_stride(schedule, block, write, inner) == 1 && inner_extent >= 2;

  LoopRef rest = inner;  // what is left of the inner loop outside its vectors
  int64_t vector = 1;    // elements that it makes at once
  if (is_vector && inner_extent > lanes) {
    const auto halves = schedule.split(inner, {std::nullopt, lanes});
    schedule.vectorize(halves[1]);
    rest = halves[0], vector = lanes;
  } else if (is_vector) {
    schedule.vectorize(inner);
    vector = inner_extent;
  }
  if (loops.empty() && vector == inner_extent) return;  // one vector
  const int64_t total = outer_count * std::max<int64_t>(1, inner_extent);
  const bool is_run = vector < inner_extent;  // of neighbours in memory
  const bool is_around = !is_run && is_vector && !is_open(schedule, loops.back());
  if (is_around) {
    rest = loops.back();
    loops.pop_back();
    outer_count /= std::max<int64_t>(1, extent_of(schedule, rest));
  }
  const bool has_rest = is_run || is_around || !is_vector;
  const int64_t rest_extent = has_rest ? extent_of(schedule, rest) : 1;
  std::optional<LoopRef> run;  // the vectors that one task makes in turn
  if (is_run && is_vector) run = rest;
  if (outer_count < 4 * target.threads && has_rest && rest_extent > 1) {
    const int64_t vectors_a_task =
        decide_vectors_a_task(schedule, rest_extent, static_cast<int>(vector), total, target);
    if (rest_extent > 2 * vectors_a_task && vectors_a_task > 1) {
      const auto halves = schedule.split(rest, {std::nullopt, vectors_a_task});
      rest = halves[0], run = halves[1];
    } else {
      run.reset();
    }
    loops.push_back(rest);
  }
  if (run && is_run && leaves_caches(schedule.func(), target)) walk_in_streams(schedule, block, *run, target);
  if (loops.empty()) return;
  const LoopRef shared = fuse_shared(schedule, loops).parallel;
  if (has_open || total >= elements_a_task) share_out(schedule, shared);
}

}  // namespace tw::cpu
