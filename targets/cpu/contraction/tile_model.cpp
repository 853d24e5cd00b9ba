#include "targets/cpu/contraction/tile_model.h"

#include <algorithm>
#include <map>

#include "runtime/memory.h"
#include "runtime/rounding.h"

namespace tw::cpu {
namespace {

// Cycles of one step along k of a tile with this many live rows.
double step_cycles(int rows, int vectors, const Target& target) {
  const double multiply_adds = static_cast<double>(rows) * vectors / target.fma_ports;
  // Loads that are broadcast within a multiply-add keep the ports at four fifths of what they could do.
  const double loads = static_cast<double>(rows + vectors) / (0.8 * target.load_ports);
  // An accumulator's next step waits for the one before.
  return std::max({multiply_adds, loads, static_cast<double>(target.fma_latency)});
}

// Bytes that a core gets a cycle from the cache that holds so many; nothing is lost in the first one.
double bytes_a_cycle(int64_t bytes, const Target& target) {
  if (bytes <= target.l1.bytes * 3 / 4) return 0;
  return bytes <= target.l2.bytes / 2 ? target.l2.rate : target.l3.rate;
}

}  // namespace

int registers_of(const RegisterTile& tile) {
  // Vectors that several rows use wait in registers.  One more is for the broadcast, one for the code generator.
  const int waiting = tile.rows > 1 ? tile.vectors : 0;
  return tile.rows * tile.vectors + waiting + 2;
}

bool fits_registers(const RegisterTile& tile, const Target& target) {
  return registers_of(tile) <= target.vector_registers;
}

double predict_cycles(const RegisterTile& tile, int64_t m, int64_t n_vectors, int64_t k, const Target& target) {
  const int64_t full = m / tile.rows, rest = m % tile.rows, panels = divide_up(n_vectors, tile.vectors);
  const auto tile_cycles = [&](int rows) {
    const double around = 20 + 2.0 * rows * tile.vectors;  // zeroing, epilogue, store
    return static_cast<double>(k) * step_cycles(rows, tile.vectors, target) + around;
  };
  return panels * (full * tile_cycles(tile.rows) + (rest ? tile_cycles(static_cast<int>(rest)) : 0.0));
}

double conflict_cycles(const RegisterTile& tile, int64_t row_stride, const Target& target) {
  constexpr int64_t element_bytes = 4;
  // Of a line that comes from the second cache instead, as measured on Zen 4 (products of 128 … 2048 rows, k = 1024,
  // 2048, 3072; tiles of 8 × 2 … 14 × 2).
  constexpr double cycles_a_line = 1.7;
  if (row_stride < line_bytes) return 0;  // rows share lines
  const int64_t sets = std::max<int64_t>(1, target.l1.bytes / (line_bytes * target.l1.ways));
  std::map<int64_t, int> lines;  // of A, by set
  for (int row = 0; row < tile.rows; ++row) ++lines[row * row_stride / line_bytes % sets];
  // Of B pass, while a line of A serves its steps, so many through each set.
  const double passing = static_cast<double>(line_bytes / element_bytes * tile.vectors * (target.vector_bits / 8)) /
                         line_bytes / static_cast<double>(sets);
  double beyond = 0;
  for (const auto& [set, count] : lines) beyond += std::clamp<double>(count + passing - target.l1.ways, 0, count);
  return cycles_a_line * beyond;
}

double predict_traffic(const RegisterTile& tile, int64_t m, int64_t n_vectors, int64_t k, const Sweep& sweep,
                       const Target& target) {
  constexpr double fewest_cycles_a_line = 3;
  const double vector_bytes = target.vector_bits / 8.0;
  const double step = step_cycles(static_cast<int>(std::min<int64_t>(tile.rows, m)), tile.vectors, target);
  const int64_t panels = divide_up(n_vectors, tile.vectors), tiles = divide_up(m, tile.rows);
  double cycles = conflict_cycles(tile, sweep.row_stride, target);  // of a tile and step
  // The panel is one stream, which prefetching hides the better the less of the cache's rate it takes.
  const double panel_bytes = tile.vectors * vector_bytes;
  const int64_t swept = sweep.swept_bytes > 0 ? sweep.swept_bytes : static_cast<int64_t>(panel_bytes) * k;
  if (const double rate = bytes_a_cycle(swept, target); rate > 0 && tiles * sweep.outer_rows > 1) {
    const double share = std::min(0.9, panel_bytes / step / rate);
    cycles += 0.12 * panel_bytes / rate / (1 - share);
  }
  // Each row is a stream of its own, too short to be foreseen: a line serves as many steps as it has elements.
  if (const double rate = bytes_a_cycle(sweep.scattered_bytes, target); rate > 0 && panels > 1)
    cycles += tile.rows * 4.0 / line_bytes * std::max(fewest_cycles_a_line, line_bytes / rate);
  // A panel's part of each row of B lies apart from the next.
  const double packing = sweep.packs_panels ? (6 + 2.0 * tile.vectors) / static_cast<double>(sweep.outer_rows) : 0;
  return (cycles * static_cast<double>(tiles) + packing) * static_cast<double>(panels * k);
}

std::vector<RegisterTile> tiles_that_fit(int64_t m, int64_t n_vectors, const Target& target) {
  std::vector<RegisterTile> tiles;
  for (int vectors = 1; vectors <= std::min<int64_t>(n_vectors, 8); ++vectors) {
    for (int rows = 1; rows <= std::min<int64_t>(m, 24) && fits_registers({rows, vectors}, target); ++rows)
      tiles.push_back({rows, vectors});
  }
  return tiles;
}

double tile_cost(const RegisterTile& tile, int64_t m, int64_t n_vectors, int64_t k, const Target& target,
                 const Sweep& sweep) {
  // Of equals the one that does more work a load.
  const double loads = static_cast<double>(tile.rows + tile.vectors) / (tile.rows * tile.vectors);
  // A panel that takes more of the second cache leaves no room for the next one and for rows.
  const bool is_crowded = tile.vectors * (target.vector_bits / 8) * k > target.l2.bytes / 4;
  // A partial tile is code of its own.
  const double uneven = m % tile.rows ? 0.02 / std::max(1.0, static_cast<double>(m / tile.rows) / 8) : 0.0;
  return predict_cycles(tile, m, n_vectors, k, target) * (1 + 0.02 * loads + uneven + (is_crowded ? 0.12 : 0.0)) +
         predict_traffic(tile, m, n_vectors, k, sweep, target);
}

RegisterTile choose_tile(int64_t m, int64_t n_vectors, int64_t k, const Target& target, const Sweep& sweep) {
  const auto tiles = tiles_that_fit(std::max<int64_t>(1, m), std::max<int64_t>(1, n_vectors), target);
  return std::ranges::min(tiles, {},
                          [&](const RegisterTile& tile) { return tile_cost(tile, m, n_vectors, k, target, sweep); });
}

RegisterTile panels_for_all(RegisterTile tile, int64_t n_vectors, int64_t batches, const Target& target) {
  constexpr int least_vectors = 4;
  const int64_t wanted = int64_t{16} * target.threads;
  const auto panels = [&] { return batches * divide_up(n_vectors, tile.vectors); };
  while (tile.vectors >= 2 * least_vectors && panels() < wanted) tile.vectors /= 2;
  return tile;
}

}  // namespace tw::cpu
