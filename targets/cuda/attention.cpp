// Attention in tiles (relay_ir/ops/attention_op.cpp, with `query_tile`), whose parts are joined while they are made:
//
//   for head, tile of queries block.x {
//     Q = tile                                            in shared memory, by all threads
//     for part of keys {
//       K = part, V = part                                the same
//       S[rows, keys] = Q · Kᵀ                            in registers
//       some[rows, lane] = largest of S; max[rows]        each thread of its own keys, then a row by one thread
//       P[rows, keys] = e^(scale · S + mask - max)        in registers; rounded, as far as no tensor cores take them
//                                                         from there, in shared memory
//       some[rows, lane] = Σ P; sum[rows]
//       M[rows, columns] = P · V                          in registers
//       R = R · e^(top before - top) + e^(max - top) · M  in registers, and the same of the sums: online softmax
//     }
//     out = R / total
//   }
//
// Products of 16-bit floats and of tf32 are made by tensor cores, a warp for 16 rows; others as in contraction.cpp, 4
// rows a thread. Both hold a tile of scores in the way in which they hold one of results.
#include <algorithm>

#include "targets/analysis/attention_tile.h"
#include "targets/analysis/block_relations.h"
#include "targets/cuda/default_schedule.h"
#include "targets/cuda/fragments.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::cuda {
namespace attention {
namespace {

using namespace analysis;

const BlockRef query{"attention_query"}, keys{"attention_keys"}, scores{"attention_scores"}, masked{"attention_masked"},
    largest{"attention_max"}, weights{"attention_weights"}, sum{"attention_sum"}, rounded{"attention_rounded"},
    values{"attention_values"}, mixed{"attention_mixed"}, top{"attention_top"}, share{"attention_share"},
    total{"attention_total"}, joined{"attention_joined"};

constexpr int64_t plain_lanes = 16, plain_rows = 4;  // threads along columns; rows of a thread

class TiledAttention {
 public:
  TiledAttention(Schedule& schedule, const Target& target) : schedule_(schedule), target_(target) {}

  bool run() {
    inline_moves();
    if (!measure()) return false;
    const Partial of_max = reduce_in_lanes(largest), of_sum = reduce_in_lanes(sum);
    gather(of_max, of_sum);
    for (const BlockRef& product : {scores, mixed}) multiply(product);
    for (const BlockRef& stage : {masked, weights, rounded, joined}) share_out_tile(stage);
    share_out_tile({joined.name + "_init"});
    share_out_output();
    for (const Partial& partial : {of_max, of_sum}) share_out_partial(partial);
    for (const BlockRef& stage : row_stages_) share_out_rows(stage);
    copy(query, tile_loop_);
    copy(keys, part_loop_);
    copy(values, part_loop_);
    for (const auto& [loop, axis] : bound_) schedule_.bind(loop, axis);
    return true;
  }

 private:
  Schedule& schedule_;
  const Target& target_;
  int64_t rows_ = 0, versions_ = 1;  // of a tile
  size_t row_axes_ = 0;              // batch …, head of k, query head of it, query
  const char* instruction_ = nullptr;
  bool keys_are_columns_ = false;  // in memory, elements of one place side by side
  LoopRef tile_loop_, part_loop_;
  BlockRef output_;
  std::vector<BlockRef> row_stages_;
  std::vector<std::pair<LoopRef, ThreadAxis>> bound_;  // when nothing moves any more

  bool on_tensor_cores() const { return instruction_ != nullptr; }
  int64_t warps() const { return rows_ / mma_m; }
  std::string buffer_of(const BlockRef& block) const { return written_by(schedule_, block)->name; }
  std::vector<Var> axes(const BlockRef& block) const { return analyse(schedule_.node(block)).spatial(); }
  LoopRef own_loop(const BlockRef& block, const Var& iteration) const {
    return loops_below(schedule_, block, tile_loop_, iteration).back();
  }
  void bind_later(const LoopRef& loop, ThreadAxis axis) { bound_.emplace_back(loop, axis); }

  bool measure() {
    const BlockAnalysis of_scores = analyse(schedule_.node(scores)), of_mixed = analyse(schedule_.node(mixed));
    const std::vector<Var> spatial = of_scores.spatial();  // those of rows, part, key
    row_axes_ = spatial.size() - 2;
    const int64_t keys_of_part = of_scores.extent(spatial.back());
    const Var& queries = spatial[spatial.size() - 3];
    const int64_t heads = count_iterations(of_scores, {spatial.begin(), spatial.end() - 3});
    const auto has_tiles_of = [&](int64_t rows) {
      return is_known_equal(floor_mod(of_scores.iter(queries).extent, rows), Expr(0));
    };
    const bool is_open =
        std::any_of(spatial.begin(), spatial.end() - 2, [&](const Var& var) { return of_scores.is_open(var); });
    rows_ = is_open ? most_in_tile : queries_of_tile(heads, of_scores.extent(queries), target_);
    while (is_open && rows_ > attention_granule && !has_tiles_of(rows_)) rows_ /= 2;  // the graph has chosen
    const int64_t size = of_scores.extent(of_scores.reduce().at(0)),
                  columns = of_mixed.extent(of_mixed.spatial().back());
    for (const int64_t extent : {keys_of_part, size, columns})
      if (extent % attention_granule != 0) return false;
    const DType operand = of_scores.reads[0].buffer->dtype;
    const StagedTile staged{rows_, size, columns, operand.bytes(), of_scores.is_of_tf32()};
    if (!place_in_output(schedule_.blocks().back()) || !has_tiles_of(rows_) ||
        !staged.fits(keys_of_part, 1, 1, target_))
      return false;
    const int64_t parts = of_scores.extent(spatial[spatial.size() - 2]);
    if (parts > 1 && staged.fits(keys_of_part, 2, 2, target_)) versions_ = 2;
    if (target_.tensor_core_rate > 0 && operand == bf16) instruction_ = "mma_bf16";
    if (target_.tensor_core_rate > 0 && operand == f16) instruction_ = "mma_f16";
    if (target_.tensor_core_rate > 0 && of_scores.is_of_tf32()) instruction_ = "mma_tf32";
    const BlockAnalysis of_keys = analyse(schedule_.node(keys));
    const Var key = *(of_keys.spatial().end() - 2);
    keys_are_columns_ = unit_stride(of_keys.reads.at(0), key, of_keys.iters, 1) == 1;
    return true;
  }

  // Columns of a tile: the loop over threads of a row, and those over what each has, of which the last is of
  // neighbours. Keys that are rows of elements are dealt out one by one, for the threads of a row read neighbours of
  // them at once; of values each reads some.
  enum class Columns { keys, values };
  struct SplitColumns {
    LoopRef lane;
    std::vector<LoopRef> own;
  };
  SplitColumns split_columns(const LoopRef& loop, Columns columns) {
    if (on_tensor_cores()) {
      const std::vector<LoopRef> parts = schedule_.split(loop, {std::nullopt, lanes_x, mma_n / lanes_x});
      return {parts[1], {parts[0], parts[2]}};
    }
    const bool is_dealt_out = columns == Columns::keys && !keys_are_columns_;
    const std::vector<LoopRef> parts = is_dealt_out ? schedule_.split(loop, {std::nullopt, plain_lanes})
                                                    : schedule_.split(loop, {plain_lanes, std::nullopt});
    return {parts[is_dealt_out ? 1 : 0], {parts[is_dealt_out ? 0 : 1]}};
  }
  static Columns columns_of(const BlockRef& block) {
    const bool has_keys =
        block == masked || block == weights || block == rounded || block.name.starts_with(scores.name);
    return has_keys ? Columns::keys : Columns::values;
  }

  // A reduction along keys: of each thread's own, in a register, then in shared memory; and of those.
  struct Partial {
    BlockRef sums, copy;
  };
  Partial reduce_in_lanes(const BlockRef& block) {
    const LoopRef lane = split_columns(schedule_.loops(block).back(), Columns::keys).lane;
    const BlockRef partial = schedule_.rfactor(lane, written_by(schedule_, block).rank());
    return {partial, schedule_.cache_write(partial, buffer_of(partial), Scope::local)};
  }

  // All stages to where the scores of a part are made, or around the parts.
  void gather(const Partial& of_max, const Partial& of_sum) {
    output_ = schedule_.blocks().back();
    const BlockRef max_of_row = schedule_.cache_write(largest, buffer_of(largest), Scope::local);
    const BlockRef sum_of_row = schedule_.cache_write(sum, buffer_of(sum), Scope::local);
    const std::vector<LoopRef> loops = schedule_.loops(masked);
    const auto query_loop = loops.end() - 3;  // query, part, key
    std::vector<LoopRef> outer(loops.begin(), query_loop);
    const std::vector<LoopRef> queries = schedule_.split(query_loop[0], {std::nullopt, rows_});
    outer.push_back(queries[0]);
    std::vector<LoopRef> order = outer;
    order.insert(order.end(), {query_loop[1], queries[1], query_loop[2]});
    schedule_.reorder(order);
    tile_loop_ = schedule_.fuse(outer);
    part_loop_ = query_loop[1];
    for (const BlockRef& stage : {of_max.sums, of_max.copy, largest, max_of_row, weights, of_sum.sums, of_sum.copy, sum,
                                  sum_of_row, rounded, mixed})
      schedule_.reverse_compute_at(stage, part_loop_);
    for (const BlockRef& stage : {scores, keys, values}) schedule_.compute_at(stage, part_loop_);
    schedule_.compute_at(query, tile_loop_);
    for (const BlockRef& stage : {top, share, total, joined, output_}) schedule_.reverse_compute_at(stage, tile_loop_);
    schedule_.online(top, part_loop_);
    schedule_.bind(tile_loop_, ThreadAxis::block_x);
    if (versions_ > 1) schedule_.pipeline(part_loop_, versions_);

    row_stages_ = {max_of_row, sum_of_row, top, share, total};
    for (const char* made : {"_init", "_before", "_rescale"}) row_stages_.push_back({top.name + made});
    row_stages_.push_back({total.name + "_init"});
    for (const BlockRef& stage : row_stages_) set_scope(stage, Scope::shared);
    for (const BlockRef& stage : {of_max.copy, of_sum.copy, query, keys, values}) set_scope(stage, Scope::shared);
    set_scope(rounded, on_tensor_cores() ? Scope::fragment : Scope::shared);
    for (const BlockRef& stage : {masked, weights, joined}) set_scope(stage, Scope::local);
    for (const BlockRef& stage : {scores, mixed}) set_scope(stage, on_tensor_cores() ? Scope::fragment : Scope::local);
    if (keys_are_columns_ || !on_tensor_cores()) put_keys_side_by_side();
  }

  void set_scope(const BlockRef& block, Scope scope) {
    if (written_by(schedule_, block)->scope != scope) schedule_.set_scope(buffer_of(block), scope);
  }

  // Transposes and slices of the operands become indices of the stages, and those of the result indices of the last
  // one.
  void inline_moves() {
    for (const BlockRef& block : schedule_.blocks()) {
      const bool is_stage = block.name.starts_with("attention") && block.name != "attention";
      if (!is_stage && !(block == schedule_.blocks().back())) schedule_.compute_inline(block);
    }
  }

  // As they are in memory; else what the threads of a row read at once, some elements of a key each, is in as many
  // banks.
  void put_keys_side_by_side() {
    const int64_t at_once = access_bytes / written_by(schedule_, keys)->dtype.bytes();
    IndexMap map;
    for (int d = 0; d < written_by(schedule_, keys).rank(); ++d) map.from.emplace_back("d" + std::to_string(d));
    const Var element = map.from.back(), key = map.from[map.from.size() - 2];
    map.to.assign(map.from.begin(), map.from.end() - 2);
    if (keys_are_columns_)
      map.to.insert(map.to.end(), {element, key});
    else
      map.to.insert(map.to.end(), {floor_div(element, at_once), key, floor_mod(element, at_once)});
    schedule_.transform_layout(buffer_of(keys), map);
    const std::vector<LoopRef> loops = schedule_.loops(keys);
    if (keys_are_columns_) schedule_.reorder({loops.back(), loops[loops.size() - 2]});
  }

  // A tile's rows and columns as the threads that hold them.
  void share_out(const LoopRef& i, const LoopRef& j, Columns columns) {
    const auto [lane, own] = split_columns(j, columns);
    if (on_tensor_cores()) {
      const std::vector<LoopRef> rows = schedule_.split(i, {warps(), mma_m / lanes_y, lanes_y});
      schedule_.reorder({rows[0], rows[2], lane, rows[1], own[0], own[1]});
      bind_later(rows[0], ThreadAxis::thread_z);
      bind_later(rows[2], ThreadAxis::thread_y);
      schedule_.unroll(rows[1]);
      schedule_.vectorize(own[1]);
    } else {
      const std::vector<LoopRef> rows = schedule_.split(i, {rows_ / plain_rows, plain_rows});
      schedule_.reorder({rows[0], lane, rows[1], own[0]});
      bind_later(rows[0], ThreadAxis::thread_y);
      schedule_.unroll(rows[1]);
    }
    bind_later(lane, ThreadAxis::thread_x);
    schedule_.unroll(own[0]);
  }

  // Whatever a stage has besides, its first axes are those of the rows, and queries the last of these.
  Var query_axis(const BlockRef& block) const { return axes(block).at(row_axes_ - 1); }

  void share_out_tile(const BlockRef& block) {
    share_out(own_loop(block, query_axis(block)), own_loop(block, axes(block).back()), columns_of(block));
  }

  // The query and the column of an element of the result; nothing where they are no iterations.
  std::optional<std::pair<Var, Var>> place_in_output(const BlockRef& output) const {
    const Buffer source = written_by(schedule_, joined);
    for (const Access& read : analyse(schedule_.node(output)).reads) {
      if (!(read.buffer == source)) continue;
      const Expr &row = *(read.indices.end() - 2), &column = read.indices.back();
      if (row.kind() == NodeKind::Var && column.kind() == NodeKind::Var) return {{Var::of(row), Var::of(column)}};
    }
    return std::nullopt;
  }

  void share_out_output() {
    const auto [row, column] = *place_in_output(output_);
    share_out(own_loop(output_, row), own_loop(output_, column), Columns::values);
  }

  // S = Q · Kᵀ or M = P · V.
  void multiply(const BlockRef& block) {
    const LoopRef i = own_loop(block, query_axis(block)), j = own_loop(block, axes(block).back());
    const LoopRef k = loops_of_kind(schedule_, block, IterKind::reduce).at(0);
    std::vector<LoopRef> others = loops_below(schedule_, block, part_loop_);
    for (const LoopRef& own : {i, j, k}) std::erase(others, own);
    if (on_tensor_cores()) {
      const std::vector<LoopRef> rows = schedule_.split(i, {warps(), mma_m});
      std::vector<LoopRef> order = others;
      order.insert(order.end(), {rows[0], rows[1], j, k});
      schedule_.reorder(order);
      const BlockRef init = schedule_.decompose_reduction(block, rows[0]);
      const std::vector<LoopRef> begin = loops_of_tile(init);
      share_out(schedule_.fuse({begin[0], begin[1]}), begin[2], columns_of(block));
      schedule_.tensorize(rows[1], instruction_);
      bind_later(rows[0], ThreadAxis::thread_z);
      return;
    }
    constexpr int64_t steps = 4;
    const std::vector<LoopRef> rows = schedule_.split(i, {std::nullopt, plain_rows});
    const auto [lane, own] = split_columns(j, columns_of(block));
    const std::vector<LoopRef> terms = schedule_.split(k, {std::nullopt, steps});
    std::vector<LoopRef> order = others;
    order.insert(order.end(), {rows[0], lane, terms[0], terms[1], rows[1], own[0]});
    schedule_.reorder(order);
    const BlockRef init = schedule_.decompose_reduction(block, rows[0]);
    const std::vector<LoopRef> begin = schedule_.loops(init);
    for (const LoopRef& row : {rows[0], *(begin.end() - 4)}) bind_later(row, ThreadAxis::thread_y);
    for (const LoopRef& column : {lane, *(begin.end() - 3)}) bind_later(column, ThreadAxis::thread_x);
    for (const LoopRef& loop : {terms[1], rows[1], own[0], *(begin.end() - 2), begin.back()}) schedule_.unroll(loop);
  }

  // Of the init of a product on tensor cores: those of its rows and columns.
  std::vector<LoopRef> loops_of_tile(const BlockRef& init) const {
    const std::vector<LoopRef> loops = loops_below(schedule_, init, part_loop_);
    return {loops.end() - 3, loops.end()};
  }

  void share_out_partial(const Partial& partial) {
    const LoopRef lane = own_loop(partial.copy, axes(partial.copy).back());
    const LoopRef row = own_loop(partial.copy, query_axis(partial.copy));
    LoopRef own;
    if (on_tensor_cores()) {
      const std::vector<LoopRef> rows = schedule_.split(row, {warps(), mma_m / lanes_y, lanes_y});
      schedule_.reorder({rows[0], rows[2], lane, rows[1]});
      bind_later(rows[0], ThreadAxis::thread_z);
      bind_later(rows[2], ThreadAxis::thread_y);
      own = rows[1];
    } else {
      const std::vector<LoopRef> rows = schedule_.split(row, {std::nullopt, plain_rows});
      schedule_.reorder({rows[0], lane, rows[1]});
      bind_later(rows[0], ThreadAxis::thread_y);
      own = rows[1];
    }
    bind_later(lane, ThreadAxis::thread_x);
    reduce_at(partial.sums, own);
    schedule_.unroll(own);
  }

  void reduce_at(const BlockRef& sums, const LoopRef& loop) {
    schedule_.compute_at(sums, loop);
    for (const LoopRef& reduced : loops_of_kind(schedule_, sums, IterKind::reduce)) schedule_.unroll(reduced);
  }

  // A value a row: a thread each.
  void share_out_rows(const BlockRef& block) {
    const LoopRef row = own_loop(block, query_axis(block));
    if (on_tensor_cores()) {
      const std::vector<LoopRef> rows = schedule_.split(row, {warps(), mma_m / lanes_y, lanes_y});
      bind_later(rows[0], ThreadAxis::thread_z);
      bind_later(rows[1], ThreadAxis::thread_x);
      bind_later(rows[2], ThreadAxis::thread_y);
    } else {
      const std::vector<LoopRef> rows = schedule_.split(row, {std::nullopt, plain_rows});
      bind_later(rows[0], ThreadAxis::thread_y);
      bind_later(rows[1], ThreadAxis::thread_x);
    }
    const std::vector<LoopRef> loops = schedule_.loops(block);
    for (const BlockRef& reduction : {largest, sum})  // of what lanes leave: in a register, too
      if (block.name == written_by(schedule_, reduction)->name) reduce_at(reduction, loops.back());
  }

  void copy(const BlockRef& block, const LoopRef& outer) {
    if (on_tensor_cores())
      deal_out_pieces(schedule_, block, outer, {warps(), lanes_y, lanes_x});
    else
      deal_out_pieces(schedule_, block, outer, {1, rows_ / plain_rows, plain_lanes});
  }
};

}  // namespace
}  // namespace attention

bool schedule_attention(Schedule& schedule, const Target& target) {
  if (!analysis::has_block(schedule, attention::joined) || !analysis::has_block(schedule, attention::rounded))
    return false;
  return attention::TiledAttention(schedule, target).run();
}

}  // namespace tw::cuda
