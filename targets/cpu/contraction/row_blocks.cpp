#include "targets/cpu/contraction/row_blocks.h"

#include <algorithm>

#include "runtime/rounding.h"
#include "targets/cpu/default_schedule.h"

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

namespace {

// Of an open axis.  One is what a batch has as a rule, which says nothing of others.
int64_t usual_extent(const Plan& c, const Var& rows) {
  constexpr int64_t usual = 32;
  const int64_t typical = c.analysis.typical_extent(rows);
  return typical > 1 ? typical : usual;
}

RowSweep sweep_of(const Plan& c) {
  RowSweep sweep;
  sweep.a_bytes = least_bytes(c.read_a().buffer);
  if (c.analysis.is_open(c.rows.back())) sweep.a_bytes *= usual_extent(c, c.rows.back());
  sweep.b_bytes = c.k_count() * c.panels() * c.panel() * c.read_b().buffer->dtype.bytes();
  sweep.panels = c.panels();
  sweep.is_a_streamed = c.is_scattered;
  return sweep;
}

// Products of tiles are too fast to hide that each worker reads all weights, where these are the larger part.
bool may_be_blocks(const Plan& c, const RowSweep& sweep) {
  if (!c.batch.empty() || c.is_grouped() || c.is_packed_at_use()) return false;
  return !c.atom.is_on_tiles() || sweep.b_bytes <= sweep.a_bytes;
}

// The open axis, by its number, that is cut: of products the one that makes tiles, of windows the last one around it.
std::optional<size_t> open_axis(const Plan& c) {
  const auto is_open = [&](const Var& rows) { return c.analysis.is_open(rows); };
  if (c.reduce.size() == 1) return is_open(c.rows.back()) ? std::optional(c.rows.size() - 1) : std::nullopt;
  const auto found = std::find_if(c.rows.rbegin() + 1, c.rows.rend(), is_open);
  return found == c.rows.rend() ? std::nullopt : std::optional(static_cast<size_t>(c.rows.rend() - found) - 1);
}

// Iterations of the open axis (of its tiles, where it makes these) that are a block.
int64_t decide_open_block(Schedule& schedule, const Plan& c, RowSweep sweep, size_t axis, const Target& target) {
  constexpr int64_t most_rows = 512, most_around = 64, fewest_tiles = 4, rows_beside_panels = 96;
  const bool is_over_tiles = axis + 1 == c.rows.size();
  int64_t extent = usual_extent(c, c.rows[axis]), most = std::min(most_around, extent);
  if (is_over_tiles) {
    const int64_t tile_bytes = c.tile_rows() * c.k_count() * c.read_a().buffer->dtype.bytes();
    extent = divide_up(extent, c.tile_rows());
    most = std::min(target.l2.bytes / 4 / tile_bytes, most_rows / c.tile_rows());
  } else {
    sweep.a_bytes *= extent;
  }
  std::vector<Candidate> candidates = {{{1}, bytes_of_worker(sweep, is_over_tiles ? 1 : extent, target)}};
  for (int64_t together = 2; together <= most; ++together) {
    const int64_t blocks = divide_up(extent, together);
    if (!is_over_tiles && blocks == divide_up(extent, together - 1)) continue;  // those are more even
    candidates.push_back({{together}, bytes_of_worker(sweep, blocks, target)});
  }
  Choice analytic = choose_row_blocks(candidates);
  if (is_over_tiles && sweep.b_bytes <= target.l2.bytes * 5 / 8) {
    const int64_t tiles = std::min(most, divide_up(rows_beside_panels, c.tile_rows()));
    analytic = {tiles >= fewest_tiles ? tiles : 1};
  }
  return schedule.decide("open_blocks", candidates, analytic)[0];
}

}  // namespace

std::vector<LoopRef> decide_row_blocks(Schedule& schedule, const Plan& c, std::vector<LoopRef>& rows,
                                       const Target& target) {
  if (rows.empty()) return {};
  RowSweep sweep = sweep_of(c);
  if (!may_be_blocks(c, sweep)) return {};
  if (const auto axis = open_axis(c); axis && sweep.panels > 1) {
    const auto at = rows.begin() + static_cast<std::ptrdiff_t>(*axis);
    if (const int64_t together = decide_open_block(schedule, c, sweep, *axis, target); together > 1) {
      const auto parts = schedule.split(*at, {std::nullopt, together});
      if (at + 1 == rows.end()) skip_beyond(schedule, {parts[1]});
      *at = parts[0];
      rows.insert(at + 1, parts[1]);
    }
  }
  if (is_open(schedule, rows.back())) return {};
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
