// Softmax, normalisations and their kind: several stages over the same rows, where only the last leaves the group.
//
//   for row parallel {                      all leading axes that every stage shares
//     m = max(x[row, :])                    lanes make partial results
//     e[:] = exp(x[row, :] - m)             one row, on the worker's stack
//     s = sum(e[:])
//     out[row, :] = e[:] / s
//   }
//
// What follows a reduction waits for it, and so does the next row: while the last stage that reads x computes, a later
// row of x is on its way to the caches.
#include <algorithm>

#include "runtime/rounding.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

constexpr int64_t ahead_in_first = 2 << 10;       // bytes on their way to the first cache: some hundred cycles
constexpr int64_t ahead_in_second = 64 << 10;     // …to the second: a small part of it
constexpr int64_t ahead_in_third = 80 << 10;      // …to the third, while results are written
constexpr int64_t largest_row_bytes = 256 << 10;  // of one stage; beyond, a row would leave the cache between stages

void vectorize_row(Schedule& schedule, const BlockRef& block, const LoopRef& row, int lanes) {
  const std::vector<LoopRef> loops = loops_below(schedule, block, row);
  const Access write = analyse(schedule.node(block)).write;
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
    if (extent_of(schedule, *loop) < 2 || loop_stride(schedule, block, write, *loop) != 1) continue;
    if (!(*loop == loops.back())) return;
    schedule.vectorize(schedule.split(*loop, {std::nullopt, lanes})[1]);
    return;
  }
}

bool moves_by_zero_or_one(const Schedule& schedule, const BlockRef& block, const LoopRef& loop) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  return std::all_of(analysis.reads.begin(), analysis.reads.end(), [&](const Access& read) {
    const auto stride = loop_stride(schedule, block, read, loop);
    return stride && (*stride == 0 || *stride == 1);
  });
}

// The axis of the block's results whose neighbours are neighbours in memory, where the reduced axis has none there:
// lanes are results along it.
std::optional<Var> find_columns(const Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (moves_by_zero_or_one(schedule, block, schedule.loops(block).back())) return std::nullopt;
  for (const Var& v : analysis.spatial()) {
    const LoopRef loop = loops_of(schedule, block, v).at(0);
    if (extent_of(schedule, loop) > 1 && loop_stride(schedule, block, analysis.write, loop) == 1 &&
        moves_by_zero_or_one(schedule, block, loop))
      return v;
  }
  return std::nullopt;
}

// A tile of some vectors of results, which hide each other's latency, is reduced in registers.
void reduce_columns(Schedule& schedule, const BlockRef& block, const Var& columns, const LoopRef& row, int lanes) {
  constexpr int64_t most_vectors = 8;
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const size_t axis = position_of(analysis, columns);
  const BlockRef out = schedule.cache_write(block, analysis.write.buffer->name, Scope::register_);
  schedule.compute_at(out, row);
  const auto loop_of = [&](const BlockRef& stage, const LoopRef& within) {
    return loops_below(schedule, stage, within, analyse(schedule.node(stage)).spatial().at(axis)).back();
  };
  const LoopRef all = loop_of(out, row);
  const int64_t count = divide_up(extent_of(schedule, all), lanes);
  const int64_t vectors = divide_up(count, divide_up(count, most_vectors));
  const LoopRef tile = schedule.split(all, {std::nullopt, vectors * lanes})[0];
  schedule.compute_at(block, tile);
  const auto parts = schedule.split(loop_of(block, tile), {std::nullopt, lanes});
  std::vector<LoopRef> order = loops_below(schedule, block, tile);
  const LoopRef reduced = order.back();
  std::rotate(order.begin(), order.end() - 1, order.end());
  schedule.reorder(order);
  const BlockRef init = schedule.decompose_reduction(block, reduced);
  for (const BlockRef& stage : {init, out}) vectorize_below(schedule, stage, tile, axis, lanes);
  schedule.unroll(parts[0]);
  schedule.vectorize(parts[1]);
}

// Lanes are partial results of one result, whose loops are outside.
void reduce_lanes(Schedule& schedule, const BlockRef& block, const LoopRef& row, int lanes) {
  LoopRef result = row;
  std::vector<LoopRef> loops = loops_below(schedule, block, row);
  loops.pop_back();  // the reduced one
  for (const LoopRef& loop : loops)
    if (extent_of(schedule, loop) > 1) result = loop;
  reduce_in_lanes(schedule, block, result, lanes);
}

// A short row's vectors stay in registers from stage to stage: a stage with few of them is unrolled.
void unroll_short_loops(Schedule& schedule, const LoopRef& row) {
  constexpr int64_t most_vectors = 8;
  for (const BlockRef& block : schedule.blocks()) {
    std::vector<LoopRef> loops = loops_below(schedule, block, row);
    std::erase_if(loops, [&](const LoopRef& l) { return schedule.node(l).loop_kind != LoopKind::serial; });
    int64_t steps = 1;
    for (const LoopRef& loop : loops) steps = std::min(steps * extent_of(schedule, loop), most_vectors + 1);
    if (steps > most_vectors) continue;
    for (const LoopRef& loop : loops)
      if (extent_of(schedule, loop) > 1) schedule.unroll(loop);
  }
}

// Whether and how a later row is asked for: the decision "row_prefetch".
enum RowPrefetch : int64_t {
  none,
  // For the first cache, in which it then stays: beside x and e where that stage computes for long, and beside streams
  // otherwise.  Pays where x comes from the caches behind it, and those are not nearly full.
  next_row,
  // For the outer caches, well ahead, and the next row from there.  Pays where x comes from memory: that reads and
  // writes at a time, and rows are read in one stage and written in another.
  far_row,
};

void prefetch_later_row(Schedule& schedule, const std::vector<BlockAnalysis>& blocks, const LoopRef& row,
                        int64_t row_bytes, const Target& target) {
  struct Reader {
    LoopRef loop;
    Buffer buffer;
    int64_t bytes;  // from one row to the next
    bool is_expensive, is_writing;
  };
  std::vector<Reader> readers;  // the last of each buffer
  for (const BlockAnalysis& analysis : blocks) {
    const BlockRef block{analysis.name};
    const std::vector<LoopRef> loops = loops_below(schedule, block, row);
    const auto serial = std::find_if(loops.rbegin(), loops.rend(), [&](const LoopRef& loop) {
      return schedule.node(loop).loop_kind == LoopKind::serial && extent_of(schedule, loop) > 1;
    });
    const LoopRef inner = serial == loops.rend() ? row : *serial;  // a few vectors: the row's own
    for (const Access& read : analyse(schedule.node(block)).reads) {
      if (!schedule.func().is_parameter(read.buffer) || read.buffer->is_constant) continue;
      const int64_t bytes = loop_stride(schedule, block, read, row).value_or(0) * read.buffer->dtype.bytes();
      if (bytes <= 0) continue;
      std::erase_if(readers, [&](const Reader& r) { return r.buffer == read.buffer; });
      readers.push_back({inner, read.buffer, bytes, analysis.is_expensive, analysis.name == blocks.back().name});
    }
  }
  if (readers.empty()) return;
  const bool is_expensive = std::any_of(readers.begin(), readers.end(), [](const Reader& r) { return r.is_expensive; });
  const bool stays = (is_expensive ? 3 : 8) * row_bytes <= target.l1.bytes;
  const double share = share_of_caches(schedule.func(), target);
  const RowPrefetch best = share > 1 ? far_row : stays && share < 0.5 ? next_row : none;
  std::vector<Candidate> candidates;
  for (const RowPrefetch how : {none, next_row, far_row}) candidates.push_back({{how}, how == best ? 1 : 1.2});
  const int64_t how = schedule.decide("row_prefetch", std::move(candidates), {best})[0];
  if (how == none) return;
  for (const Reader& reader : readers) {
    const auto ask = [&](int64_t least_bytes, std::optional<Cache> cache = {}) {
      const int64_t rows = divide_up(least_bytes, reader.bytes);
      prefetch_ahead(schedule, reader.loop, reader.buffer, rows * reader.bytes, cache);
    };
    if (how == next_row) ask(1);
    if (how == far_row && cache_for(reader.bytes) == Cache::first) ask(ahead_in_first);
    if (how == far_row) ask(ahead_in_second);
    if (how == far_row && reader.is_writing) ask(ahead_in_third, Cache::third);
  }
}

}  // namespace

bool schedule_rows(Schedule& schedule, const Target& target) {
  const auto stages = find_row_stages(schedule);
  if (!stages) return false;
  const auto& [blocks, shared] = *stages;
  int64_t rows = 1, columns = 1;
  const std::vector<Var> spatial = blocks.back().spatial();
  for (size_t d = 0; d < spatial.size(); ++d) (d < shared ? rows : columns) *= blocks.back().extent(spatial[d]);
  const int lanes = compute_lanes(blocks.back().write.buffer->dtype, target);
  if (columns < lanes || columns * blocks.back().write.buffer->dtype.bytes() > largest_row_bytes) return false;
  if (rows < target.threads) return false;
  for (const BlockAnalysis& block : blocks) {
    if (block.block_class == BlockClass::reduction && block.reduce().size() != 1) return false;
  }

  const BlockRef last{blocks.back().name};
  std::vector<LoopRef> row_loops = schedule.loops(last);
  if (row_loops.size() != spatial.size()) return false;
  row_loops.resize(shared);
  const auto [parallel, row] = fuse_shared(schedule, row_loops);
  std::vector<std::string> done;
  for (size_t b = blocks.size() - 1; b-- > 0;) {
    const BlockRef stage{blocks[b].name};
    const bool is_reduction = blocks[b].block_class == BlockClass::reduction;
    if (const auto columns = is_reduction ? find_columns(schedule, stage) : std::nullopt) {
      reduce_columns(schedule, stage, *columns, row, lanes);
      done.push_back(stage.name);
    } else {
      schedule.compute_at(stage, row);
    }
    schedule.set_scope(blocks[b].write.buffer->name, Scope::stack);
  }
  for (const BlockAnalysis& block : blocks) {
    if (block.block_class == BlockClass::injective) {
      vectorize_row(schedule, {block.name}, row, lanes);
    } else if (std::find(done.begin(), done.end(), block.name) == done.end()) {
      reduce_lanes(schedule, {block.name}, row, lanes);
    }
  }
  unroll_short_loops(schedule, row);
  prefetch_later_row(schedule, blocks, row, columns * blocks.back().write.buffer->dtype.bytes(), target);
  share_out(schedule, parallel);
  return true;
}

}  // namespace tw::cpu
