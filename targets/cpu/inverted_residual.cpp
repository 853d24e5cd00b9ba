// A convolution that makes many channels of few, and the depthwise one that reads them, as one kernel: a strip of rows
// of a panel of channels is made where it is used and stays in the worker's second cache.
//
//   E[c, h, w] = epilogue(Σ X · W)                   for strip, panel parallel {
//   P[c, h, w] = pad(E)                                for row of the strip and its border {
//   Y[c, h, w] = epilogue(Σ P · F)             ⇒         E'[row, w, panel] = epilogue(Σ X · W) }   register tiles
//                                                      for row of the strip {
//                                                        Y[row, w, panel] = epilogue(Σ E' · F) }   where E' is inside
//                                                    }
//
// Rows that two strips read are made for both.
#include <algorithm>
#include <numeric>

#include "targets/cpu/contraction/output.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::cpu {
namespace {

struct Stages {
  BlockRef product, made;  // the channels: sums, and what is read of them (its epilogue, if it has one)
  std::optional<BlockRef> padded;
  BlockRef window;
};

// What the block reads that other blocks write, if it is one buffer.
std::optional<Buffer> input_of(const Schedule& schedule, const BlockRef& block) {
  std::optional<Buffer> result;
  for (const Access& read : analyse(schedule.node(block)).reads) {
    if (schedule.func().is_parameter(read.buffer)) continue;
    if (result && *result != read.buffer) return std::nullopt;
    result = read.buffer;
  }
  return result;
}

// The last sum, which reads data through a window, back to the product that makes them.
std::optional<Stages> find_stages(const Schedule& schedule) {
  std::vector<BlockRef> sums;
  for (const BlockRef& block : schedule.blocks())
    if (is_sum(analyse(schedule.node(block)))) sums.push_back(block);
  if (sums.size() != 2) return std::nullopt;
  Stages stages{sums[0], sums[0], std::nullopt, sums[1]};
  const auto data = input_of(schedule, stages.window);
  auto before = data ? writer_of(schedule, *data) : std::nullopt;
  if (!before) return std::nullopt;
  // A copy with zeros around it is of another shape than what it reads.
  const auto copied = *before == stages.product ? std::nullopt : input_of(schedule, *before);
  const auto is_same_shape = [&](const Buffer& a, const Buffer& b) {
    for (int d = 0; d < a.rank(); ++d)
      if (a.rank() != b.rank() || !is_known_equal(a->shape[d], b->shape[d])) return false;
    return true;
  };
  if (copied && !is_same_shape(*copied, *data)) {
    stages.padded = before;
    before = writer_of(schedule, *copied);
    if (!before) return std::nullopt;
  }
  stages.made = *before;
  return stages;
}

// Images in blocks of channels, [n, c, h, w], of a product over one axis and a sum over a window; all sizes are known.
bool is_as_expected(const Schedule& schedule, const Stages& stages, int lanes) {
  const BlockAnalysis p = analyse(schedule.node(stages.product)), w = analyse(schedule.node(stages.window));
  for (const BlockAnalysis* block : {&p, &w}) {
    if (block->reads.size() != 2 || block->spatial().size() != 4) return false;
    for (const IterVar& iter : block->iters)
      if (!as_int(iter.extent)) return false;
    if (block->extent(block->spatial()[1]) % lanes != 0) return false;
    if (std::none_of(block->reads.begin(), block->reads.end(),
                     [&](const Access& read) { return read.buffer->is_constant && read.buffer.rank() == 4; }))
      return false;
  }
  return has_identity_write(p) && p.reduce().size() == 1 && w.reduce().size() == 3 && w.extent(w.reduce()[0]) == 1 &&
         result_stride(schedule, stages.window, w.spatial()[1], lanes) == 1;
}

// The block's loops below `loop`: these last, in this order.
void order_below(Schedule& schedule, const BlockRef& block, const LoopRef& loop, const std::vector<LoopRef>& last) {
  std::vector<LoopRef> order = loops_below(schedule, block, loop);
  std::erase_if(order, [&](const LoopRef& l) { return std::find(last.begin(), last.end(), l) != last.end(); });
  order = in_order(order, last);
  if (order.size() > 1) schedule.reorder(order);
}

// A convolution's weight [o, i, h, w] with `panel` neighbours along o side by side.
void pack_weight(Schedule& schedule, const BlockRef& block, int64_t panel) {
  for (const Access& read : analyse(schedule.node(block)).reads) {
    if (!read.buffer->is_constant) continue;
    const Var o("o"), i("i"), h("h"), w("w");
    schedule.transform_layout(read.buffer->name, {{o, i, h, w}, {floor_div(o, panel), i, h, w, floor_mod(o, panel)}});
  }
}

// The decision "strip": rows of the result that a task makes, of which `row_bytes` of channels are kept for each.
int64_t decide_rows_of_task(Schedule& schedule, int64_t rows, int64_t panels, int64_t row_bytes, double border,
                            const Target& target) {
  std::vector<Candidate> candidates;
  for (int64_t strip = 1; strip <= rows; ++strip) {
    if (rows % strip != 0) continue;
    const int64_t tasks = panels * (rows / strip);
    const bool has_tasks = tasks >= 2 * target.threads && is_even_share(tasks, target.threads);
    const bool is_near = strip * row_bytes <= target.l2.bytes / 4;
    const double again = strip < rows ? border / static_cast<double>(strip) : 0;
    candidates.push_back({{strip}, 1 + again + (has_tasks ? 0 : 0.5) + (is_near ? 0 : 0.25)});
  }
  const Choice analytic = std::ranges::min_element(candidates, {}, &Candidate::cost)->value;
  return schedule.decide("strip", candidates, analytic)[0];
}

// The strip's channels, within `task`: register tiles along rows of the image.
void schedule_product(Schedule& schedule, const Stages& stages, const LoopRef& task, int64_t tile_rows, int lanes,
                      const Target& target) {
  const BlockRef& out = stages.made;
  schedule.compute_at(out, task);
  const BlockAnalysis made = analyse(schedule.node(out));
  schedule.set_scope(made.write.buffer->name, Scope::stack);
  const auto w = schedule.split(own_loop(schedule, out, made.spatial()[3]), {std::nullopt, tile_rows});
  order_below(schedule, out, task,
              {own_loop(schedule, out, made.spatial()[2]), w[0], w[1], own_loop(schedule, out, made.spatial()[1])});
  const LoopRef tile = w[0];
  tile_in_registers(schedule, stages.product, tile, lanes, target, 1);
  vectorize_below(schedule, out, tile, 1, lanes);
}

}  // namespace

bool schedule_inverted_residual(Schedule& original, const Target& target) {
  const int lanes = target.lanes(f32);
  auto stages = find_stages(original);
  if (!stages || lanes < 4) return false;
  Schedule schedule = original;
  std::vector<BlockRef> kept{stages->made};
  if (stages->padded) kept.push_back(*stages->padded);
  inline_injective_blocks(schedule, kept);
  if (stages->padded) schedule.compute_inline(*stages->padded);
  const auto epilogue = find_epilogue(schedule, stages->window);
  const size_t count = 2 + (stages->made == stages->product ? 0 : 1) + (epilogue ? 1 : 0);
  if (schedule.blocks().size() != count || !is_as_expected(schedule, *stages, lanes)) return false;
  if (stages->made == stages->product) {
    const std::string sums = written_by(schedule, stages->product)->name;
    stages->made = schedule.cache_write(stages->product, sums, Scope::register_);
  }
  if (find_epilogue(schedule, stages->product) != stages->made) return false;

  const BlockAnalysis product = analyse(schedule.node(stages->product)), sum = analyse(schedule.node(stages->window));
  const std::vector<Var> axes = sum.spatial();
  const int64_t width = product.extent(product.spatial()[3]), height = product.extent(product.spatial()[2]);
  const int64_t vectors = product.extent(product.spatial()[1]) / lanes, rows = sum.extent(axes[2]);
  Product tiles;
  tiles.m = width, tiles.n_vectors = vectors, tiles.k = product.extent(product.reduce()[0]);
  tiles.batches = sum.extent(axes[0]) * height;
  tiles.group = vectors * lanes;
  tiles.atom.n = lanes;
  const RegisterTile tile = decide_tile(schedule, tiles, target);
  if (tile.rows == 1 && width > 1) return false;  // no tile
  const int64_t panel = int64_t{tile.vectors} * lanes;
  // Rows of the image for each of the result, and those beside that a strip's border has.
  const double step = std::max(1.0, static_cast<double>(height) / static_cast<double>(rows));
  const double border = std::max(0.0, (static_cast<double>(sum.extent(sum.reduce()[1])) - step) / step);
  const int64_t strip =
      decide_rows_of_task(schedule, rows, sum.extent(axes[0]) * vectors / tile.vectors,
                          static_cast<int64_t>(step * 4 * static_cast<double>(width * panel)), border, target);
  const int positions = decide_rows(schedule, sum.extent(axes[3]), sum.extent(sum.reduce().back()), target);

  const std::string made = written_by(schedule, stages->made)->name;
  const Var n("n"), c("c"), h("h"), w("w");
  schedule.transform_layout(made, {{n, c, h, w}, {n, floor_div(c, lanes), h, w, floor_mod(c, lanes)}});
  pack_weight(schedule, stages->product, panel);
  pack_weight(schedule, stages->window, lanes);

  const auto channels =
      schedule.split(own_loop(schedule, stages->window, axes[1]), {std::nullopt, tile.vectors, lanes});
  const auto strips = schedule.split(own_loop(schedule, stages->window, axes[2]), {std::nullopt, strip});
  const auto row = schedule.split(own_loop(schedule, stages->window, axes[3]), {std::nullopt, positions});
  std::vector<LoopRef> reduce;
  for (const Var& v : sum.reduce()) reduce.push_back(own_loop(schedule, stages->window, v));
  const std::vector<LoopRef> outer{own_loop(schedule, stages->window, axes[0]), strips[0], channels[0]};
  schedule.reorder(in_order(outer, channels[1], strips[1], row[0], reduce, row[1], channels[2]));
  // Unrolled, columns of the window tell by themselves which positions are inside.
  const size_t unrolled = decide_window_unroll(schedule, reduce, positions);
  const LoopRef task = schedule.fuse(outer);
  const std::vector<BlockRef> out = keep_in_registers(schedule, stages->window, row[0], 1);
  const BlockRef init = schedule.decompose_reduction(stages->window, reduce[0]);
  vectorize_below(schedule, init, row[0], 1, lanes);
  for (const BlockRef& last : out) vectorize_below(schedule, last, row[0], 1, lanes);
  for (size_t l = reduce.size() - unrolled; l < reduce.size(); ++l) schedule.unroll(reduce[l]);
  schedule.unroll(row[1]);
  schedule.vectorize(channels[2]);
  schedule_product(schedule, *stages, task, tile.rows, lanes, target);
  share_out(schedule, task);
  original = std::move(schedule);
  return true;
}

}  // namespace tw::cpu
