// C[…, i, j] += A[…, i, k] * B[…, k, j]: matrix products and convolutions of every kind that multiplies one operand
// without the vector axis by one with it.
//
//   for panel, rows … parallel {            panels of B outermost: a worker streams its weights once
//     for k … {
//       for i in 0..R unrolled { for v in 0..V unrolled { for lane vectorized {   the register tile
//         Cr[i, v·L + lane] += A[…] * B_packed[panel, k, v·L + lane]
//     }}}}
//     C[…] = epilogue(Cr)                   still in registers
//   }
//
// Weights are stored in panels.  Another B is packed by the worker that uses a panel, or by a pass before; A, where it
// is contiguous along the rows instead of k, by blocks of rows, which are outermost then (operand_packing.h).
#include <algorithm>

#include "targets/cpu/contraction_match.h"
#include "targets/cpu/default_schedule.h"
#include "targets/cpu/operand_packing.h"
#include "targets/cpu/tile_model.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::cpu {
namespace {

// Each index of the access is one iteration variable, each at most once, or that of a dimension of one element.
bool has_plain_dimensions(const Access& access) {
  for (size_t i = 0; i < access.indices.size(); ++i) {
    if (is_const_int(access.buffer->shape[i], 1)) continue;
    if (access.indices[i].kind() != NodeKind::Var) return false;
    for (size_t j = 0; j < i; ++j)
      if (access.indices[i].is_same(access.indices[j])) return false;
  }
  return true;
}

// B as [batch …, panel, k …, element of the panel], k in the order of the loops; a blocked k as its two loops are.
// Likewise A, whose panels are rows of tiles: `axis` is what panels are cut from.
IndexMap packing_map(const Access& b, const Contraction& c, const Var& axis, int64_t panel,
                     const std::vector<Var>& blocked, int granule) {
  IndexMap map;
  for (size_t d = 0; d < b.indices.size(); ++d) map.from.push_back(Var("d" + std::to_string(d)));
  const auto dimension_of = [&](const Var& v) -> Expr {
    for (size_t d = 0; d < b.indices.size(); ++d)
      if (b.indices[d].get() == v.get() && !is_const_int(b.buffer->shape[d], 1)) return map.from[d];
    return Expr();
  };
  const auto is_blocked = [&](const Var& v) { return std::find(blocked.begin(), blocked.end(), v) != blocked.end(); };
  for (size_t d = 0; d < b.indices.size(); ++d)
    if (is_const_int(b.buffer->shape[d], 1)) map.to.push_back(map.from[d]);
  for (const Var& v : c.batch)
    if (Expr d = dimension_of(v); d.is_defined()) map.to.push_back(d);
  map.to.push_back(floor_div(dimension_of(axis), panel));
  for (const Var& v : c.reduce) {
    if (Expr d = dimension_of(v); d.is_defined()) map.to.push_back(is_blocked(v) ? floor_div(d, granule) : d);
  }
  for (const Var& v : c.reduce) {
    if (Expr d = dimension_of(v); d.is_defined() && is_blocked(v)) map.to.push_back(floor_mod(d, granule));
  }
  map.to.push_back(floor_mod(dimension_of(axis), panel));
  return map;
}

enum class Packing {
  none,      // B stays as it is
  constant,  // weights are stored in panels
  ahead,     // a pass over B goes before
  panel,     // the worker that uses a panel packs it, and it stays in that worker's caches
};

// How B gets into panels, which pays when they are used often; nothing: it does not, and cannot be read as vectors.
std::optional<Packing> choose_packing(const Schedule& schedule, const Contraction& c, const RegisterTile& tile,
                                      int64_t n_vectors, int lanes, bool packs_a, const Target& target) {
  const Access& b = c.analysis.reads[c.b];
  const bool is_plain = has_plain_dimensions(b);
  if (is_plain && is_constant(schedule.func(), b.buffer) && count_readers(schedule, b.buffer) == 1)
    return Packing::constant;
  const int64_t rows = count_iterations(c.analysis, c.rows);
  const bool is_contiguous = unit_stride(b, c.vector_axis, c.analysis.iters, lanes) == 1;
  const bool is_reused = rows >= 4 * tile.rows;
  if (is_contiguous && !is_reused) return Packing::none;
  if (!is_plain || rows < 4) return is_contiguous ? std::optional(Packing::none) : std::nullopt;
  if (packs_a ||
      count_iterations(c.analysis, c.reduce) * tile.vectors * lanes * b.buffer->dtype.bytes() > target.l2_bytes)
    return Packing::ahead;
  // All rows of a panel are one task then.
  const int64_t tasks = count_iterations(c.analysis, c.batch) * ((n_vectors + tile.vectors - 1) / tile.vectors);
  return is_even_share(tasks, target.threads) ? Packing::panel : Packing::ahead;
}

// Tiles of a block of rows whose A is packed, where A is contiguous along the rows: there each step along k reads
// another line and another page, and a line serves many tiles.  0: A stays as it is.
int64_t rows_packed_together(const Contraction& c, const RegisterTile& tile, int64_t n_vectors, const Target& target) {
  const Access& a = c.analysis.reads[c.a];
  if (c.rows.size() != 1 || c.reduce.size() != 1 || !has_plain_dimensions(a)) return 0;
  const int64_t m = c.analysis.extent(c.rows[0]), k = c.analysis.extent(c.reduce[0]);
  if (m < 2 * tile.rows || tile.rows < 2 || n_vectors < 4 * tile.vectors) return 0;
  if (unit_stride(a, c.rows[0], c.analysis.iters, static_cast<int>(m)) != 1) return 0;
  if (a.buffer->dtype.bytes() * m * k <= target.l1_bytes) return 0;
  const int64_t tiles = (m + tile.rows - 1) / tile.rows, batch = count_iterations(c.analysis, c.batch);
  const int64_t fits = std::clamp<int64_t>(target.l2_bytes / 4 / (a.buffer->dtype.bytes() * k * tile.rows), 1, tiles);
  // Blocks of equal size that the workers share evenly, if there are any; else as few as possible.
  for (int64_t together = fits; 2 * together > fits; --together)
    if (tiles % together == 0 && is_even_share(batch * (tiles / together), target.threads)) return together;
  const int64_t threads = std::max(1, target.threads), blocks = (tiles + fits - 1) / fits;
  const int64_t even = (blocks * batch + threads - 1) / threads * threads / batch;
  return (tiles + std::max(blocks, even) - 1) / std::max(blocks, even);
}

}  // namespace

bool schedule_contraction(Schedule& schedule, const BlockRef& block, const Target& target) {
  const DType accumulator =
      analyse(schedule.node(block)).write.buffer.is_defined() ? analyse(schedule.node(block)).write.buffer->dtype : f32;
  const int lanes = target.lanes(accumulator);
  const auto matched = match_contraction(schedule, block, lanes);
  if (!matched) return false;
  const Contraction& c = *matched;
  const BlockAnalysis& analysis = c.analysis;

  // The axis that makes the tile's rows: the innermost of A's.
  const bool has_rows = !c.rows.empty();
  const Var row_axis = has_rows ? c.rows.back() : Var();
  const int64_t m = has_rows ? analysis.extent(row_axis) : 1;
  const int64_t n_vectors = (analysis.extent(c.vector_axis) + lanes - 1) / lanes;
  const int64_t k_count = count_iterations(analysis, c.reduce), row_count = count_iterations(analysis, c.rows);
  const bool is_scattered = c.reduce.size() == 1 && unit_stride(analysis.reads[c.a], c.reduce[0], analysis.iters,
                                                                static_cast<int>(std::max<int64_t>(1, k_count))) == 1;
  const int64_t element_bytes = analysis.reads[c.a].buffer->dtype.bytes();
  const Sweep sweep{row_count / std::max<int64_t>(1, m), is_scattered ? row_count * k_count * element_bytes : 0};
  const bool streams = is_stream(analysis.reads[c.b].buffer, count_most_iterations(analysis, c.rows), target);
  const int64_t batches = count_iterations(analysis, c.batch);
  const RegisterTile tile =
      decide_tile(schedule, {has_rows ? m : 1, n_vectors, k_count, sweep, batches, streams}, target);

  // Axes of k that A stores in blocks are walked as two loops, so that addresses advance by constants.
  std::vector<Var> blocked;
  for (const Var& k : c.reduce) {
    const int64_t extent = analysis.extent(k);
    const Access& a = analysis.reads[c.a];
    if (extent <= lanes || extent % lanes != 0) continue;
    if (!unit_stride(a, k, analysis.iters, static_cast<int>(extent)) && unit_stride(a, k, analysis.iters, lanes)) {
      blocked.push_back(k);
    }
  }
  const int64_t tiles_together = rows_packed_together(c, tile, n_vectors, target);
  const bool packs_a = tiles_together > 0;
  const auto packing = choose_packing(schedule, c, tile, n_vectors, lanes, packs_a, target);
  if (!packing) return false;
  const Access& b = analysis.reads[c.b];
  const int64_t panel = int64_t{tile.vectors} * lanes;
  if (*packing == Packing::constant)
    schedule.transform_layout(b.buffer->name, packing_map(b, c, c.vector_axis, panel, blocked, lanes));
  std::optional<BlockRef> packed_b;
  if (*packing == Packing::ahead || *packing == Packing::panel) {
    packed_b = schedule.cache_read(block, b.buffer->name, *packing == Packing::panel ? Scope::stack : Scope::global);
    schedule.transform_layout(analyse(schedule.node(*packed_b)).write.buffer->name,
                              packing_map(b, c, c.vector_axis, panel, blocked, lanes));
    if (*packing == Packing::ahead) schedule_elementwise(schedule, *packed_b, target);
  }

  std::optional<BlockRef> packed_a;
  if (packs_a) {
    const Access& a = analysis.reads[c.a];
    packed_a = schedule.cache_read(block, a.buffer->name, Scope::stack);
    schedule.transform_layout(analyse(schedule.node(*packed_a)).write.buffer->name,
                              packing_map(a, c, row_axis, tile.rows, {}, lanes));
  }

  const auto loop_of = [&](const Var& v) { return loops_of(schedule, block, v).at(0); };
  std::vector<LoopRef> batch, outer_rows, k_outer, k_inner;
  for (const Var& v : c.batch) batch.push_back(loop_of(v));
  for (const Var& v : c.rows)
    if (!(v == row_axis)) outer_rows.push_back(loop_of(v));
  for (const Var& v : c.reduce) {
    if (std::find(blocked.begin(), blocked.end(), v) != blocked.end()) {
      const auto halves = schedule.split(loop_of(v), {std::nullopt, lanes});
      k_outer.push_back(halves[0]), k_inner.push_back(halves[1]);
    } else {
      k_outer.push_back(loop_of(v));
    }
  }
  const auto j = schedule.split(loop_of(c.vector_axis), {std::nullopt, tile.vectors, lanes});
  std::vector<LoopRef> order = batch, i;
  if (packs_a) {
    i = schedule.split(loop_of(row_axis), {std::nullopt, tiles_together, tile.rows});
    order.push_back(i[0]);
    i.erase(i.begin());
  }
  order.push_back(j[0]);
  order.insert(order.end(), outer_rows.begin(), outer_rows.end());
  if (has_rows) {
    if (!packs_a) i = schedule.split(loop_of(row_axis), {std::nullopt, tile.rows});
    order.push_back(i[0]);
  }
  const size_t outer_count = order.size();
  order.insert(order.end(), k_outer.begin(), k_outer.end());
  order.insert(order.end(), k_inner.begin(), k_inner.end());
  if (has_rows) order.push_back(i[1]);
  order.push_back(j[1]), order.push_back(j[2]);
  schedule.reorder(order);

  std::vector<LoopRef> tasks{order.begin(), order.begin() + static_cast<std::ptrdiff_t>(outer_count)};
  TileLoops outside{order[0], order[outer_count - 1]};
  if (*packing == Packing::panel || packs_a) {
    tasks.resize(batch.size() + 1);
    outside.parallel = tasks.size() > 1 ? schedule.fuse(tasks) : tasks[0];
  } else {
    outside = fuse_outside(schedule, tasks, has_rows && m % tile.rows != 0, target);
  }
  const auto [parallel, tile_loop] = outside;

  const size_t axis = position_of(analysis, c.vector_axis);
  const BlockRef out = keep_in_registers(schedule, block, tile_loop, axis);
  const LoopRef first_k = k_outer.empty() ? k_inner.at(0) : k_outer[0];
  const BlockRef init = schedule.decompose_reduction(block, first_k);
  vectorize_below(schedule, init, tile_loop, axis, lanes);
  vectorize_below(schedule, out, tile_loop, axis, lanes);
  prefetch_stream(schedule, analyse(schedule.node(block)).reads[c.b], count_most_iterations(analysis, c.rows),
                  k_inner.empty() ? k_outer.back() : k_inner.back(), target);
  if (has_rows) schedule.unroll(i[1]);
  schedule.unroll(j[1]);
  schedule.vectorize(j[2]);
  if (*packing == Packing::panel) pack_at(schedule, *packed_b, parallel, dimension_of(b, c.vector_axis), lanes);
  if (packs_a) {
    const int axis_of_a = dimension_of(analysis.reads[c.a], row_axis);
    pack_at(schedule, *packed_a, parallel, axis_of_a, tile.rows);
  }
  share_out(schedule, parallel);
  return true;
}

}  // namespace tw::cpu
