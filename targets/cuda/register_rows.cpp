// Rows that fit into the registers of at most 1024 threads: softmax, normalisations, sums along memory.
//
//   for tile block.x {                                               rows of a tile: thread.y
//     for row thread.y { for lane thread.x {                         columns: vectors dealt out to lanes in turn
//       for step unrolled { some[row, lane] = Σ x[row, step, lane, 0..vector] } } }      in shared memory
//     for row thread.y { for lane thread.x {
//       sum = Σ some[row, …]                                         each thread for itself: nobody waits for one
//       for step unrolled { out[row, step, lane, 0..vector] = f(x[row, step, lane, 0..vector], sum) } } }
//   }
//
// All stages deal out columns in the same way, so that what one makes of a column stays in the thread for the next.
#include <algorithm>

#include "runtime/rounding.h"
#include "targets/analysis/block_relations.h"
#include "targets/cuda/default_schedule.h"

namespace tw::cuda {

using namespace analysis;

namespace {

constexpr int64_t most_at_once = 8;
constexpr int64_t row_threads = 128;                                      // of a block, where rows are short
constexpr int64_t most_elements = 32;                                     // of a thread, in registers
constexpr int64_t least_lanes = 8, most_lanes = 1024, joined_lanes = 16;  // that add up what more lanes leave

struct RowTile {
  size_t row_axes = 0;
  int64_t length = 0, vector = most_at_once, lanes = 1, rows = 1;
};

// Of a stage, along the row: its own iterations or those that it adds up.
std::vector<Var> columns_of(const BlockAnalysis& stage, size_t row_axes) {
  std::vector<Var> columns = stage.spatial();
  columns.erase(columns.begin(), columns.begin() + static_cast<long>(row_axes));
  for (const Var& var : stage.reduce()) columns.push_back(var);
  std::erase_if(columns, [&](const Var& var) { return stage.extent(var) == 1; });
  return columns;
}

// As few lanes as hold the row; where about as many divide it, these.
int64_t choose_lanes(int64_t vectors, int64_t vector) {
  const int64_t least = std::max(divide_up(vectors * vector, most_elements), std::min(vectors, least_lanes));
  const int64_t granule = least > warp ? warp : 1;
  const int64_t first = divide_up(least, granule) * granule, last = least > warp ? 2 * first : warp;
  for (int64_t lanes = granule * divide_up(3 * first, 4 * granule); lanes <= last; lanes += granule)
    if (vectors % lanes == 0) return lanes;
  return std::max(first, warp);
}

// As many rows of an axis as give a block its threads; where about as many divide the axis, these.
int64_t choose_rows(int64_t axis, int64_t most) {
  most = std::clamp<int64_t>(most, 1, axis);
  for (int64_t some = most; 4 * some >= 3 * most; --some)
    if (axis % some == 0) return some;
  return most;
}

// Elements that one access to rows in memory moves, where all run along the row: of the narrowest.  Nothing runs along
// it: none.
int64_t elements_of_access(const Schedule& schedule, const BlockAnalysis& stage, const Var& row, const Var& column) {
  std::vector<Access> accesses = stage.reads;
  if (stage.reduce().empty()) accesses.push_back(stage.write);
  std::erase_if(accesses, [&](const Access& access) { return !access.uses(column); });
  const auto runs_along = [&](const Access& access) { return unit_stride(access, column, stage.iters, 1) == 1; };
  if (std::ranges::none_of(accesses, runs_along)) return 0;
  if (!std::ranges::all_of(accesses, runs_along)) return 1;
  int64_t elements = 0;
  for (const Access& access : accesses)
    if (schedule.func().is_parameter(access.buffer) && access.uses(row))
      elements = std::max(elements, access_bytes / access.buffer->dtype.bytes());
  return elements == 0 ? most_at_once : std::min(elements, most_at_once);
}

// Threads of a row, and rows of a block, beside those that are about right by analysis.
void decide_threads(Schedule& schedule, RowTile& tile, int64_t axis) {
  const int64_t vectors = tile.length / tile.vector;
  const Choice analytic = {tile.lanes, tile.rows};
  std::vector<Candidate> candidates = {{analytic}};
  for (const int64_t lanes : {8, 16, 32, 64, 128, 256, 512, 1024, static_cast<int>(tile.lanes)}) {
    if (lanes > std::max(vectors, warp) || divide_up(vectors, lanes) * tile.vector > most_elements) continue;
    for (const int64_t rows : {tile.rows, int64_t{1}, int64_t{2}, int64_t{4}, int64_t{8}}) {
      const Choice value = {lanes, rows};
      const bool is_new = std::ranges::none_of(candidates, [&](const Candidate& c) { return c.value == value; });
      const bool fits = lanes * rows >= warp && lanes * rows <= most_lanes && (rows == 1 || rows < axis);
      if (is_new && fits) candidates.push_back({value});
    }
  }
  const Choice threads = schedule.decide("row_tile", candidates, analytic);
  tile.lanes = threads[0], tile.rows = threads[1];
}

std::optional<RowTile> choose_row_tile(const Schedule& schedule, const RowStages& stages, const Target& target) {
  const BlockAnalysis& last = stages.blocks.back();
  const std::vector<Var> axes = last.spatial();
  RowTile tile{.row_axes = stages.shared};
  while (tile.row_axes > 1 && last.extent(axes[tile.row_axes - 1]) == 1) --tile.row_axes;
  std::vector<Buffer> dealt;  // whose columns are in the threads
  for (const BlockAnalysis& stage : stages.blocks) {
    if (stage.spatial().size() < tile.row_axes) return std::nullopt;
    const std::vector<Var> columns = columns_of(stage, tile.row_axes);
    if (std::ranges::any_of(columns, [&](const Var& var) { return stage.is_open(var); })) return std::nullopt;
    const auto is_elsewhere = [&](const Access& access) {
      return std::ranges::find(dealt, access.buffer) != dealt.end() &&
             (columns.size() != 1 || access.indices.back().get() != columns[0].get());
    };
    if (columns.size() == 1 && stage.reduce().empty()) dealt.push_back(stage.write.buffer);
    if (std::ranges::any_of(stage.reads, is_elsewhere) || is_elsewhere(stage.write)) return std::nullopt;
    if (columns.empty() && stage.reduce().empty()) continue;  // one value a row
    const bool adds_up = !stage.reduce().empty();
    if (columns.size() != 1 || adds_up != (stage.iter(columns[0]).kind == IterKind::reduce)) return std::nullopt;
    const int64_t length = stage.extent(columns[0]);
    const int64_t elements = elements_of_access(schedule, stage, stage.spatial()[tile.row_axes - 1], columns[0]);
    if (length < warp || (tile.length != 0 && length != tile.length) || elements == 0) return std::nullopt;
    tile.length = length;
    tile.vector = std::min(tile.vector, elements);
  }
  if (tile.length == 0) return std::nullopt;
  while (tile.length % tile.vector != 0) tile.vector /= 2;
  const int64_t rows = count_most_iterations(last, {axes.begin(), axes.begin() + static_cast<long>(tile.row_axes)});
  const int64_t vectors = tile.length / tile.vector;
  tile.lanes = rows == 1 ? vectors : choose_lanes(vectors, tile.vector);
  if (tile.lanes > most_lanes) return std::nullopt;
  // Every multiprocessor is to have some rows.
  const int64_t most_rows = std::min(row_threads / tile.lanes, rows / target.threads);
  tile.rows = choose_rows(last.extent(axes[tile.row_axes - 1]), most_rows);
  return tile;
}

// The stages within a tile, from the last to the first.
class RegisterRows {
 public:
  RegisterRows(Schedule& schedule, const RowStages& stages, const RowTile& tile)
      : schedule_(schedule), stages_(stages.blocks), tile_(tile), lanes_of_(stages.blocks.size()) {}

  void run() {
    std::vector<std::vector<BlockRef>> partial(stages_.size());
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (!stages_[s].reduce().empty()) partial[s] = add_up_in_lanes(stages_[s]);
      if (has_columns(s) && !is_last(s)) number_by_step(stages_[s].write.buffer);
    }
    start_tile();
    for (size_t s = stages_.size(); s-- > 0;) {
      if (has_columns(s)) {
        deal_columns(s);
      } else {
        place_value(s);
        for (const BlockRef& sums : partial[s]) lanes_of_[s] = share_partial(sums);
      }
    }
    if (tile_.rows > 1)
      for (const LoopRef& row : rows_) schedule_.bind(row, ThreadAxis::thread_y);
    for (const LoopRef& lane : lanes_) schedule_.bind(lane, ThreadAxis::thread_x);
  }

 private:
  Schedule& schedule_;
  const std::vector<BlockAnalysis>& stages_;
  RowTile tile_;
  LoopRef tile_loop_;
  std::vector<LoopRef> rows_, lanes_;  // loops for threads: bound when nothing moves any more
  std::vector<LoopRef> lanes_of_;      // of each stage: the loop over lanes in which it reads

  bool is_last(size_t s) const { return s + 1 == stages_.size(); }
  bool has_columns(size_t s) const {
    return stages_[s].reduce().empty() && !columns_of(stages_[s], tile_.row_axes).empty();
  }

  // What adds up the row in each lane, and what adds up many lanes in a few; the stage adds up the last, so that comes
  // first.
  std::vector<BlockRef> add_up_in_lanes(const BlockAnalysis& stage) {
    const BlockRef block{stage.name};
    const LoopRef column = loop_of(schedule_, block, columns_of(stage, tile_.row_axes).at(0));
    const int axis = stage.write.buffer.rank();
    const LoopRef lane = schedule_.split(column, {std::nullopt, tile_.lanes, tile_.vector})[1];
    std::vector<BlockRef> partial = {schedule_.rfactor(lane, axis)};
    if (tile_.lanes > warp) {
      const LoopRef few =
          schedule_.split(loops_of_kind(schedule_, block, IterKind::reduce).back(), {std::nullopt, joined_lanes})[1];
      partial.insert(partial.begin(), schedule_.rfactor(few, axis));
    }
    return partial;
  }

  // A dimension for the step and one for the rest, so that a thread's part of the buffer is small.
  void number_by_step(const Buffer& buffer) {
    const int64_t step = tile_.lanes * tile_.vector;
    if (step >= tile_.length) return;
    IndexMap map;
    for (int d = 0; d < buffer.rank(); ++d) map.from.emplace_back("d" + std::to_string(d));
    map.to.assign(map.from.begin(), map.from.end() - 1);
    map.to.push_back(floor_div(map.from.back(), step));
    map.to.push_back(floor_mod(map.from.back(), step));
    schedule_.transform_layout(buffer->name, map);
  }

  void start_tile() {
    std::vector<LoopRef> rows = schedule_.loops({stages_.back().name});
    rows.resize(tile_.row_axes);
    rows.back() = schedule_.split(rows.back(), {std::nullopt, tile_.rows})[0];
    tile_loop_ = rows.size() > 1 ? schedule_.fuse(rows) : rows[0];
    schedule_.bind(tile_loop_, ThreadAxis::block_x);
  }

  std::vector<Var> iterations(const BlockRef& block) const { return analyse(schedule_.node(block)).spatial(); }
  LoopRef loop_in_tile(const BlockRef& block, const Var& iteration) const {
    return loops_below(schedule_, block, tile_loop_, iteration).back();
  }
  LoopRef row_loop(const BlockRef& block) const {
    return loop_in_tile(block, iterations(block).at(tile_.row_axes - 1));
  }

  // Threads outermost: between the steps of a loop inside of them nobody waits.
  void bind_threads(const BlockRef& block, const LoopRef& row, const LoopRef& lane,
                    const std::vector<LoopRef>& innermost = {}) {
    std::vector<LoopRef> order = {row, lane};
    for (const LoopRef& loop : loops_below(schedule_, block, tile_loop_))
      if (loop != row && loop != lane && std::ranges::find(innermost, loop) == innermost.end()) order.push_back(loop);
    order.insert(order.end(), innermost.begin(), innermost.end());
    schedule_.reorder(order);
    rows_.push_back(row);
    lanes_.push_back(lane);
  }

  void deal_columns(size_t s) {
    const BlockRef block{stages_[s].name};
    if (!is_last(s)) {
      schedule_.compute_at(block, tile_loop_);
      schedule_.set_scope(stages_[s].write.buffer->name, Scope::local);
    }
    const Var column = columns_of(stages_[s], tile_.row_axes).at(0);
    const std::vector<LoopRef> parts =
        schedule_.split(loop_in_tile(block, column), {std::nullopt, tile_.lanes, tile_.vector});
    bind_threads(block, row_loop(block), parts[1], {parts[0], parts[2]});
    schedule_.unroll(parts[0]);
    if (tile_.vector > 1) schedule_.vectorize(parts[2]);
    lanes_of_[s] = parts[1];
  }

  // One value a row: made by each thread that needs it, where that is at one place; else by the first lane, for all.
  void place_value(size_t s) {
    const BlockRef block{stages_[s].name};
    const std::string buffer = stages_[s].write.buffer->name;
    std::vector<LoopRef> places;
    for (size_t reader = s + 1; reader < stages_.size(); ++reader) {
      const auto is_read = [&](const Access& read) { return read.buffer->name == buffer; };
      if (std::ranges::any_of(stages_[reader].reads, is_read) &&
          std::ranges::find(places, lanes_of_[reader]) == places.end())
        places.push_back(lanes_of_[reader]);
    }
    if (places.size() == 1) {
      lanes_of_[s] = places[0];
      schedule_.compute_at(block, places[0]);
      schedule_.set_scope(buffer, Scope::local);
    } else {
      const bool is_sum = !stages_[s].reduce().empty();
      const BlockRef out = is_sum ? schedule_.cache_write(block, buffer, Scope::local) : block;
      if (!is_last(s)) {
        schedule_.compute_at(out, tile_loop_);
        schedule_.set_scope(buffer, Scope::shared);
      }
      const std::vector<LoopRef> rows = schedule_.split(row_loop(out), {std::nullopt, 1});
      bind_threads(out, rows[0], rows[1]);
      lanes_of_[s] = rows[1];
      if (is_sum) schedule_.compute_at(block, rows[1]);
    }
    unroll_sum(block);
  }

  // What each lane adds up, in a register, then in shared memory.  Returns the loop over lanes.
  LoopRef share_partial(const BlockRef& sums) {
    const BlockRef copy = share_results(schedule_, sums, tile_loop_);
    const LoopRef lane = loop_in_tile(copy, iterations(copy).back());
    bind_threads(copy, row_loop(copy), lane);
    schedule_.compute_at(sums, lane);
    unroll_sum(sums);
    const std::vector<LoopRef> loops = loops_of_kind(schedule_, sums, IterKind::reduce);
    if (tile_.vector > 1 && loops.size() == 2) read_wide(sums, loops[0], analyse(schedule_.node(sums)).reduce().back());
    return lane;
  }

  void unroll_sum(const BlockRef& block) {
    for (const LoopRef& loop : loops_of_kind(schedule_, block, IterKind::reduce)) schedule_.unroll(loop);
  }

  // A step's vectors of the inputs, whole, whatever is then computed of them.
  void read_wide(const BlockRef& block, const LoopRef& step, const Var& column) {
    std::vector<std::string> inputs;
    for (const Access& read : analyse(schedule_.node(block)).reads)
      if (schedule_.func().is_parameter(read.buffer) && read.uses(column) &&
          std::ranges::find(inputs, read.buffer->name) == inputs.end())
        inputs.push_back(read.buffer->name);
    for (const std::string& input : inputs) {
      const BlockRef vector = schedule_.cache_read(block, input, Scope::local);
      schedule_.compute_at(vector, step);
      schedule_.vectorize(schedule_.loops(vector).back());
    }
  }
};

}  // namespace

bool schedule_rows_in_registers(Schedule& schedule, const Target& target) {
  const std::vector<BlockRef> blocks = schedule.blocks();
  if (blocks.empty()) return false;
  // A sum that leaves the kernel is finished in a register, too.
  const BlockAnalysis last = analyse(schedule.node(blocks.back()));
  if (last.block_class == BlockClass::reduction)
    schedule.cache_write(blocks.back(), last.write.buffer->name, Scope::local);
  const auto stages = find_row_stages(schedule, Squares::are_sums);
  if (!stages) return false;
  auto tile = choose_row_tile(schedule, *stages, target);
  if (!tile) return false;
  const BlockAnalysis& rows = stages->blocks.back();
  decide_threads(schedule, *tile, rows.extent(rows.spatial()[tile->row_axes - 1]));
  RegisterRows(schedule, *stages, *tile).run();
  return true;
}

}  // namespace tw::cuda
