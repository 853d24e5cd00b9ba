#include "targets/cpu/default_schedule.h"

#include <algorithm>

#include "runtime/ndarray.h"
#include "runtime/rounding.h"
#include "targets/analysis/lanes.h"
#include "targets/analysis/templates.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/prefetch.h"

namespace tw::cpu {
namespace {

int64_t bytes_of(const Buffer& buffer) {  // 0: symbolic
  const auto shape = const_shape(buffer);
  return shape ? element_count(*shape) * buffer->dtype.bytes() : 0;
}

// Of the last cache, for the target's threads: of larger shares others have theirs.
int64_t cache_share(const Target& target) {
  constexpr int64_t bytes_a_thread = 16 << 20;
  return std::min(std::max(target.l2.bytes, target.l3.bytes), int64_t{target.threads} * bytes_a_thread);
}

// Elements of a block of the intermediate along `axis`: the machine's lanes, but the channels of one group where a
// grouped convolution reads groups that neither fill whole vectors nor divide them.
int64_t block_along(const Schedule& schedule, const Buffer& buffer, size_t axis, int lanes) {
  for (const BlockRef& reader : readers_of(schedule, buffer)) {
    const BlockAnalysis analysis = analyse(schedule.node(reader));
    if (analysis.block_class != BlockClass::contraction) continue;
    for (const Access& read : analysis.reads) {
      if (read.buffer != buffer) continue;
      const auto uses = [&](const std::vector<Var>& vars) {
        return std::find_if(vars.begin(), vars.end(), [&](const Var& v) { return uses_var(read.indices[axis], v); });
      };
      const std::vector<Var> spatial = analysis.spatial(), reduce = analysis.reduce();
      const auto channel = uses(reduce);
      if (uses(spatial) == spatial.end() || channel == reduce.end()) continue;
      const int64_t group = analysis.extent(*channel);
      if (group > 1 && group % lanes != 0 && lanes % group != 0) return group;
    }
  }
  return lanes;
}

// The filters of such a window are so few that they fill less of their vectors than half of what a row of results does
// of its own: then vectors are of neighbours along the row, which are read as they lie.
bool has_few_filters(const BlockAnalysis& analysis, const Access& read, int lanes) {
  if (read.buffer->dtype != f32) return false;  // words of small elements are along channels
  int64_t filters = 1;
  Var row;
  for (const Var& v : analysis.spatial()) {
    if (!read.uses(v)) filters *= analysis.extent(v);
    if (uses_var(read.indices.back(), v)) row = v;
  }
  if (!row.is_defined() || unit_stride(read, row, analysis.iters, lanes) != 1) return false;
  const double of_row = analysis.is_open(row) ? 1 : share_of_lanes(analysis.extent(row), lanes);
  return 2 * share_of_lanes(filters, lanes) <= of_row;
}

// A product sums over this axis of the intermediate, whole blocks of it, and over a window of the others: what it reads
// of the axis for one window position is one line when it is blocked, and a line for each element when it is not.
bool is_summed_in_windows(const Schedule& schedule, const Buffer& buffer, size_t axis, int lanes) {
  const auto readers = readers_of(schedule, buffer);
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](const BlockRef& reader) {
    const BlockAnalysis analysis = analyse(schedule.node(reader));
    if (analysis.block_class != BlockClass::contraction || analysis.reduce().size() < 2) return false;
    for (const Access& read : analysis.reads) {
      if (read.buffer != buffer) continue;
      if (has_few_filters(analysis, read, lanes)) return false;
      for (const Var& k : analysis.reduce())
        if (read.indices[axis].get() == k.get()) return analysis.extent(k) % lanes == 0;
    }
    return false;
  });
}

}  // namespace

double share_of_caches(const Func& func, const Target& target) {
  int64_t touched = 0;
  for (const Buffer& buffer : func.buffers) touched += bytes_of(buffer);
  return static_cast<double>(touched) / static_cast<double>(cache_share(target));
}

bool leaves_caches(const Func& func, const Target& target) {
  return share_of_caches(func, target) > 1;
}

bool is_large(const Buffer& buffer, const Target& target) {
  return bytes_of(buffer) >= cache_share(target) / 4;
}

void adopt_blocked_layouts(Schedule& schedule, const Target& target) {
  for (const BlockRef& block : schedule.blocks()) {
    const BlockAnalysis analysis = analyse(schedule.node(block));
    const Buffer& buffer = analysis.write.buffer;
    if (analysis.block_class != BlockClass::injective || schedule.func().is_parameter(buffer)) continue;
    if (!has_identity_write(analysis) || find_epilogue(schedule, block)) continue;
    const int lanes = target.lanes(f32);  // as layouts of graphs are blocked, whatever the type
    const std::vector<Var> spatial = analysis.spatial();
    for (size_t axis = 0; axis + 1 < spatial.size(); ++axis) {
      // Neighbours along an axis that is not the last: also where a single block holds the whole axis.
      const auto is_blocked = [&](const Access& read) {
        return analysis.extent(spatial[axis]) > 1 && read.uses(spatial[axis]) && read.indices.size() > spatial.size() &&
               unit_stride(read, spatial[axis], analysis.iters, lanes) == 1;
      };
      if (!std::any_of(analysis.reads.begin(), analysis.reads.end(), is_blocked) &&
          !is_summed_in_windows(schedule, buffer, axis, lanes)) {
        continue;
      }
      IndexMap map = layout_of(spatial.size());
      int wide = lanes;  // blocks of more than a vector: rows of tiles
      for (int wider = lanes * 2; analysis.extent(spatial[axis]) % wider == 0 && wider <= lanes * 4; wider *= 2) {
        if (std::any_of(analysis.reads.begin(), analysis.reads.end(), [&](const Access& read) {
              return read.uses(spatial[axis]) && unit_stride(read, spatial[axis], analysis.iters, wider) == 1;
            }))
          wide = wider;
      }
      const int64_t block_size = block_along(schedule, buffer, axis, wide);
      for (size_t d = 0; d < spatial.size(); ++d)
        map.to.push_back(d == axis ? floor_div(map.from[d], block_size) : map.from[d]);
      map.to.push_back(floor_mod(map.from[axis], block_size));
      schedule.transform_layout(buffer->name, map);
      break;
    }
  }
}

LoopRef as_one(Schedule& schedule, const std::vector<LoopRef>& loops) {
  return loops.size() > 1 ? schedule.fuse(loops) : loops[0];
}

LoopRef own_loop(const Schedule& schedule, const BlockRef& block, const Var& iteration) {
  return loops_of(schedule, block, iteration).back();
}

std::optional<LoopRef> innermost_within(const Schedule& schedule, const BlockRef& block, const LoopRef& tile,
                                        const Var& iteration) {
  std::vector<LoopRef> loops = loops_below(schedule, block, tile, iteration);
  std::erase_if(loops, [&](const LoopRef& loop) { return extent_of(schedule, loop) <= 1; });
  return loops.empty() ? std::nullopt : std::optional(loops.back());
}

void set_scope_of(Schedule& schedule, const BlockRef& block, Scope scope) {
  schedule.set_scope(written_by(schedule, block)->name, scope);
}

IndexMap layout_of(size_t rank) {
  IndexMap map;
  for (size_t d = 0; d < rank; ++d) map.from.push_back(Var("d" + std::to_string(d)));
  return map;
}

IndexMap axis_last(size_t rank, size_t axis) {
  IndexMap map = layout_of(rank);
  for (size_t d = 0; d < map.from.size(); ++d)
    if (d != axis) map.to.push_back(map.from[d]);
  map.to.push_back(map.from[axis]);
  return map;
}

void keep_results_between(Schedule& schedule, const std::vector<BlockRef>& epilogue, Scope scope) {
  const auto is_of_epilogue = [&](const BlockRef& b) {
    return std::find(epilogue.begin(), epilogue.end(), b) != epilogue.end();
  };
  for (const BlockRef& block : epilogue) {
    const Buffer buffer = written_by(schedule, block);
    const std::vector<BlockRef> readers = readers_of(schedule, buffer);
    const bool is_between = !readers.empty() && std::all_of(readers.begin(), readers.end(), is_of_epilogue);
    if (is_between && !schedule.func().is_parameter(buffer)) schedule.set_scope(buffer->name, scope);
  }
}

std::vector<BlockRef> keep_in_registers(Schedule& schedule, const BlockRef& block, const LoopRef& tile, size_t axis) {
  std::vector<BlockRef> out = find_epilogues(schedule, block).blocks;
  const bool has_epilogue = !out.empty();
  const std::string result = written_by(schedule, block)->name;
  if (!has_epilogue) out = {schedule.cache_write(block, result, Scope::register_)};
  for (const BlockRef& last : out) schedule.reverse_compute_at(last, tile);
  const Buffer buffer = written_by(schedule, block);
  if (has_epilogue) schedule.set_scope(buffer->name, Scope::register_);
  keep_results_between(schedule, out, Scope::register_);
  // The vector axis last: neighbouring lanes are neighbours in the tile.  A blocked result has it there already.
  if (has_identity_write(analyse(schedule.node(block))) && axis + 1 < static_cast<size_t>(buffer.rank())) {
    schedule.transform_layout(buffer->name, axis_last(buffer->shape.size(), axis));
  }
  return out;
}

bool is_even_share(int64_t tasks, int threads) {
  const int64_t rounds = divide_up(tasks, std::max(1, threads));
  return tasks > 0 && static_cast<double>(rounds * threads) <= 1.15 * static_cast<double>(tasks);
}

TileLoops fuse_outside(Schedule& schedule, std::vector<LoopRef> outer, bool has_partial_tile, const Target& target) {
  put_open_first(schedule, outer);
  const LoopRef last = outer.back();
  if (outer.size() > 1 && extent_of(schedule, last) != 1) {
    const std::vector<LoopRef> others(outer.begin(), outer.end() - 1);
    if (const int64_t tasks = count_iterations(schedule, others); tasks >= target.threads) {
      const Choice row{1}, tile{0}, analytic = has_partial_tile && is_even_share(tasks, target.threads) ? row : tile;
      const auto cost = [&](const Choice& choice) { return choice == analytic ? 1 : 1.05; };
      if (schedule.decide("row_a_task", {{row, cost(row)}, {tile, cost(tile)}}, analytic) == row) outer.pop_back();
    }
  }
  const bool is_shared = outer.back() == last;
  if (is_shared && outer.size() > 1 && is_open(schedule, last)) {
    std::rotate(outer.begin(), outer.end() - 1, outer.end());
    schedule.reorder(outer);
  }
  const LoopRef parallel = as_one(schedule, outer);
  return {parallel, is_shared ? parallel : last};
}

void put_open_first(Schedule& schedule, std::vector<LoopRef>& loops, bool is_last_free) {
  if (loops.size() < 2) return;
  const std::vector<LoopRef> before = loops;
  std::stable_partition(loops.begin(), loops.end() - (is_last_free ? 0 : 1),
                        [&](const LoopRef& loop) { return is_open(schedule, loop); });
  if (!(loops == before)) schedule.reorder(loops);
}

TileLoops fuse_shared(Schedule& schedule, std::vector<LoopRef> loops) {
  put_open_first(schedule, loops, true);
  const auto closed = std::find_if(loops.begin(), loops.end(), [&](const LoopRef& l) { return !is_open(schedule, l); });
  const std::ptrdiff_t open = closed - loops.begin();
  if (open < 2) {
    const LoopRef all = as_one(schedule, loops);
    return {all, all};
  }
  // The first open loop with the constant ones; the other open loops run inside.
  const LoopRef last = loops[open - 1];
  std::rotate(loops.begin() + 1, loops.begin() + open, loops.end());
  schedule.reorder(loops);
  loops.resize(loops.size() - static_cast<size_t>(open - 1));
  return {as_one(schedule, loops), last};
}

void share_out(Schedule& schedule, const LoopRef& loop) {
  try {
    schedule.parallel(loop);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::schedule) throw;
    schedule.annotate(loop, "independence_unproven", int64_t{1});
  }
}

bool is_memory_bound(const Buffer& operand, int64_t uses, const Target& target) {
  constexpr int64_t most_uses = 8;
  return uses <= most_uses && bytes_of(operand) > target.l2.bytes && !operand->is_cached;
}

void prefetch_from_memory(Schedule& schedule, const Access& operand, int64_t uses, const LoopRef& loop,
                          const Target& target) {
  constexpr int64_t ahead = 1024;  // about what a core waits for: 100 ns at 10 GB/s
  if (is_memory_bound(operand.buffer, uses, target)) prefetch_ahead(schedule, loop, operand.buffer, ahead);
}

Cache cache_for(int64_t bytes_ahead) {
  constexpr int64_t near_bytes = 16 << 10;
  return bytes_ahead <= near_bytes ? Cache::first : Cache::second;
}

void prefetch_ahead(Schedule& schedule, const LoopRef& loop, const Buffer& buffer, int64_t bytes,
                    std::optional<Cache> cache) {
  const std::string key = prefetch_attribute(cache.value_or(cache_for(bytes)));
  const Attributes& known = schedule.node(loop).attributes;
  BufferBytes asked = known.count(key) ? std::get<BufferBytes>(known.at(key)) : BufferBytes();
  asked[buffer->name] = bytes;
  schedule.annotate(loop, key, asked);
}

namespace {

// The loops of the block below `tile` but for the innermost one along the axis, which becomes vectors.
std::vector<LoopRef> vectorize_axis(Schedule& schedule, const BlockRef& block, const LoopRef& tile, size_t axis,
                                    int lanes) {
  std::vector<LoopRef> others = loops_below(schedule, block, tile);
  const auto along = innermost_within(schedule, block, tile, analyse(schedule.node(block)).spatial().at(axis));
  if (!along) return others;
  LoopRef vector = *along;
  std::erase(others, vector);
  if (!others.empty()) schedule.reorder(in_order(others, vector));
  if (extent_of(schedule, vector) > lanes) {
    const auto halves = schedule.split(vector, {std::nullopt, lanes});
    others.push_back(halves[0]);
    vector = halves[1];
  }
  schedule.vectorize(vector);
  return others;
}

}  // namespace

void vectorize_below(Schedule& schedule, const BlockRef& block, const LoopRef& tile, size_t axis, int lanes) {
  for (const LoopRef& loop : vectorize_axis(schedule, block, tile, axis, lanes)) {
    if (!is_open(schedule, loop)) schedule.unroll(loop);
  }
}

void vectorize_in_memory(Schedule& schedule, const BlockRef& block, const LoopRef& tile, size_t axis, int lanes) {
  vectorize_axis(schedule, block, tile, axis, lanes);
}

namespace {

// Results that cannot stay in a cache until they are read again go past it (the attribute "streaming"): their lines are
// not read before they are written, and what is read stays.
void use_non_temporal_stores(Schedule& schedule, const Target& target) {
  if (!leaves_caches(schedule.func(), target)) return;
  for (const BlockRef& block : schedule.blocks()) {
    const BlockAnalysis analysis = analyse(schedule.node(block));
    const Buffer result = analysis.write.buffer;
    if (analysis.block_class != BlockClass::injective || !schedule.func().is_output(result)) continue;
    if (is_large(result, target) && readers_of(schedule, result).empty())
      schedule.annotate(block, "streaming", int64_t{1});
  }
}

// The first axis of the padded copy along which the block's window moves: image rows.
Var find_window_axis(const Schedule& schedule, const BlockRef& block, const BlockRef& padding) {
  const BlockAnalysis reader = analyse(schedule.node(block)), copy = analyse(schedule.node(padding));
  for (const Access& read : reader.reads) {
    if (read.buffer != copy.write.buffer) continue;
    for (size_t d = 0; d < read.indices.size(); ++d) {
      const auto uses = [&](const Var& v) { return uses_var(read.indices[d], v); };
      const std::vector<Var> spatial = reader.spatial(), reduce = reader.reduce(), axes = copy.spatial();
      if (std::none_of(spatial.begin(), spatial.end(), uses) || std::none_of(reduce.begin(), reduce.end(), uses))
        continue;
      const auto axis =
          std::find_if(axes.begin(), axes.end(), [&](const Var& v) { return copy.write.indices[d].get() == v.get(); });
      if (axis != axes.end()) return *axis;
    }
  }
  return Var();
}

// Runs the templates, which ask the schedule for decisions.
void schedule_blocks(Schedule& schedule, const Target& target) {
  if (schedule_attention(schedule, target)) return;
  if (schedule_bilinear(schedule, target)) return;
  if (schedule_inverted_residual(schedule, target)) return;
  inline_injective_blocks(schedule);
  adopt_blocked_layouts(schedule, target);
  if (schedule_copies(schedule, target)) return;
  if (schedule_rows(schedule, target)) return;
  std::vector<std::string> done;
  const auto is_done = [&](const std::string& name) { return std::find(done.begin(), done.end(), name) != done.end(); };
  const auto share_a_loop = [&](const BlockRef& a, const BlockRef& b) {
    return !schedule.loops(a).empty() && !schedule.loops(b).empty() &&
           schedule.loops(a).front() == schedule.loops(b).front();
  };
  const auto applies = [&](auto&& schedule_block, const BlockRef& block) {
    return apply_template(schedule, [&](Schedule& attempt) { return schedule_block(attempt, block, target); });
  };
  // A padded copy comes after its reader, which may make it a part of itself.
  for (const BlockRef& block : schedule.blocks()) {
    if (!is_sum(analyse(schedule.node(block)))) continue;
    if (const auto padding = find_padding(schedule, block)) done.push_back(padding->name);
  }
  for (const BlockRef& block : schedule.blocks()) {
    if (is_done(block.name)) continue;
    const BlockAnalysis analysis = analyse(schedule.node(block));
    switch (analysis.block_class) {
      case BlockClass::contraction:
      case BlockClass::reduction: {
        const auto padding = find_padding(schedule, block);
        const Var window_axis = padding ? find_window_axis(schedule, block, *padding) : Var();
        const bool is_tiled = (analysis.block_class == BlockClass::contraction &&
                               schedule_contraction(schedule, block, analysis, target)) ||
                              applies(schedule_reduction, block);
        // A template that kept the tile in registers has placed the epilogue, too.
        for (const BlockRef& later : schedule.blocks())
          if (is_tiled && !(later == block) && share_a_loop(later, block)) done.push_back(later.name);
        if (padding && !share_a_loop(*padding, block)) schedule_elementwise(schedule, *padding, target, window_axis);
        break;
      }
      case BlockClass::injective:
        schedule_elementwise(schedule, block, target);
        break;
      case BlockClass::unknown:
        break;  // runs as written
    }
  }
}

}  // namespace

Schedule decided_schedule(const Func& func, const Target& target, const Decisions& decisions) {
  Schedule schedule(func, decisions);
  schedule_blocks(schedule, target);
  begin_outside(schedule);
  use_non_temporal_stores(schedule, target);
  schedule.require_all_asked();
  return schedule;
}

Schedule default_schedule(const Func& func, const Target& target) {
  return decided_schedule(func, target, {});
}

}  // namespace tw::cpu
