#include "targets/cpu/contraction/row_blocks.h"

#include <algorithm>

#include "runtime/rounding.h"

namespace tw::cpu {
namespace {

int64_t panel_bytes(const RowSweep& sweep) {
  return sweep.b_bytes / sweep.panels;
}

// Bytes that the slowest worker waits for from beyond its second cache.
double bytes_of_worker(const RowSweep& sweep, int64_t blocks, const Target& target) {
  // Beside a block are a panel and the next one, which is on its way.
  const int64_t threads = std::max(1, target.threads), near = target.l2.bytes * 3 / 4 - 2 * panel_bytes(sweep);
  const int64_t of_worker = divide_up(blocks, threads);
  const double block_bytes = static_cast<double>(sweep.a_bytes) / static_cast<double>(blocks);
  // Panels are asked for ahead.
  const double b_bytes = 0.5 * static_cast<double>(sweep.b_bytes);
  const auto reads_of_a = [&](int64_t panels) {
    const double again = sweep.is_a_streamed ? 0.3 : 1;
    return block_bytes <= static_cast<double>(near) ? 1 : 1 + again * static_cast<double>(panels - 1);
  };
  if (blocks == 1) {
    const int64_t panels = divide_up(sweep.panels, threads);
    return block_bytes * reads_of_a(panels) + b_bytes * static_cast<double>(panels) / static_cast<double>(sweep.panels);
  }
  const double reads_of_b = sweep.b_bytes <= target.l2.bytes / 2 ? 1 : static_cast<double>(of_worker);
  return static_cast<double>(of_worker) * block_bytes * reads_of_a(sweep.panels) + b_bytes * reads_of_b;
}

}  // namespace

int64_t decide_tiles_of_block(Schedule& schedule, const Contraction& c, const RowSweep& sweep, int64_t tile_rows,
                              const Target& target) {
  constexpr int64_t fewest_tiles = 4, rows_beside_panels = 96, most_rows = 512;
  if (c.reduce.size() != 1 || !c.batch.empty() || c.is_grouped() || sweep.panels == 1) return 1;
  const int64_t tile_bytes = tile_rows * c.k_count() * c.read_a().buffer->dtype.bytes(),
                near_tiles = target.l2.bytes / 4 / tile_bytes;
  const int64_t rows = c.analysis.typical_extent(c.rows.back());
  std::vector<Candidate> candidates = {{{1}, bytes_of_worker(sweep, 1, target)}};
  for (int64_t tiles = 2; tiles <= std::min(near_tiles, most_rows / tile_rows); ++tiles)
    candidates.push_back({{tiles}, bytes_of_worker(sweep, divide_up(rows, tiles * tile_rows), target)});
  Choice analytic = choose_row_blocks(candidates);
  if (sweep.b_bytes <= target.l2.bytes * 5 / 8) {
    const int64_t tiles = std::min(near_tiles, divide_up(rows_beside_panels, tile_rows));
    analytic = {tiles >= fewest_tiles ? tiles : 1};
  }
  return schedule.decide("block_tiles", candidates, analytic)[0];
}

int64_t decide_rows_of_block(Schedule& schedule, const RowSweep& sweep, int64_t rows, const Target& target) {
  constexpr int64_t usual_rows = 32, most_rows = 64;
  if (rows <= 1) rows = usual_rows;
  std::vector<Candidate> candidates;
  for (int64_t together = 1; together <= most_rows && together < 2 * rows; together *= 2)
    candidates.push_back({{together}, bytes_of_worker(sweep, divide_up(rows, together), target)});
  return schedule.decide("block_rows", candidates, choose_row_blocks(candidates))[0];
}

std::vector<Candidate> row_block_candidates(const RowSweep& sweep, const Target& target) {
  std::vector<Candidate> candidates = {{{0, 1}, bytes_of_worker(sweep, 1, target)}};
  if (panel_bytes(sweep) > target.l2.bytes / 4) return candidates;  // it leaves no room for a block
  int64_t before = 1;
  for (size_t loop = 0; loop < sweep.extents.size(); ++loop) {
    const int64_t extent = sweep.extents[loop];
    for (int64_t parts = before > 1 ? 1 : 2; parts <= extent; ++parts) {
      if (extent % parts != 0) continue;
      candidates.push_back({{static_cast<int64_t>(loop), parts}, bytes_of_worker(sweep, before * parts, target)});
    }
    before *= extent;
  }
  return candidates;
}

Choice choose_row_blocks(const std::vector<Candidate>& candidates) {
  constexpr double worth = 0.8;
  const auto best = std::ranges::min_element(candidates, {}, &Candidate::cost);
  return best->cost < worth * candidates[0].cost ? best->value : candidates[0].value;
}

std::vector<LoopRef> decide_row_blocks(Schedule& schedule, const Contraction& c, RowSweep sweep,
                                       std::vector<LoopRef>& rows, const Target& target) {
  if (!c.batch.empty() || c.is_grouped() || rows.empty() || is_open(schedule, rows.back())) return {};
  const auto closed =
      std::stable_partition(rows.begin(), rows.end(), [&](const LoopRef& l) { return is_open(schedule, l); });
  std::vector<LoopRef> outside(rows.begin(), closed);
  rows.erase(rows.begin(), closed);
  if (c.analysis.is_open(c.rows.back())) return outside;
  for (const LoopRef& loop : rows) sweep.extents.push_back(extent_of(schedule, loop));
  const auto candidates = row_block_candidates(sweep, target);
  const Choice blocks = schedule.decide("row_blocks", candidates, choose_row_blocks(candidates));
  const auto at = rows.begin() + blocks[0];
  outside.insert(outside.end(), rows.begin(), at);
  if (blocks[1] == extent_of(schedule, *at) && blocks[1] > 1) {
    outside.push_back(*at);
    rows.erase(rows.begin(), at + 1);
    return outside;
  }
  if (blocks[1] > 1) {
    const auto parts = schedule.split(*at, {blocks[1], std::nullopt});
    outside.push_back(parts[0]);
    *at = parts[1];
  }
  rows.erase(rows.begin(), at);
  return outside;
}

}  // namespace tw::cpu
