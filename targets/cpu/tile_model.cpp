#include "targets/cpu/tile_model.h"

#include <algorithm>

namespace tw::cpu {
namespace {

// Cycles of one step along k of a tile with this many live rows.
double step_cycles(int rows, int vectors, const Target& target) {
  const double multiply_adds = static_cast<double>(rows) * vectors / target.fma_ports;
  const double loads = static_cast<double>(rows + vectors) / target.load_ports;
  // An accumulator's next step waits for the one before.
  return std::max({multiply_adds, loads, static_cast<double>(target.fma_latency)});
}

bool fits(const RegisterTile& tile, const Target& target) {
  // One register stays free for the broadcast, one for the code generator.
  return tile.rows * tile.vectors + tile.vectors + 1 <= target.vector_registers - 1;
}

}  // namespace

double predict_cycles(const RegisterTile& tile, int64_t m, int64_t n_vectors, int64_t k, const Target& target) {
  const int64_t full = m / tile.rows, rest = m % tile.rows, panels = (n_vectors + tile.vectors - 1) / tile.vectors;
  const auto tile_cycles = [&](int rows) {
    const double around = 20 + 2.0 * rows * tile.vectors;  // zeroing, epilogue, store
    return static_cast<double>(k) * step_cycles(rows, tile.vectors, target) + around;
  };
  return panels * (full * tile_cycles(tile.rows) + (rest ? tile_cycles(static_cast<int>(rest)) : 0.0));
}

std::vector<RegisterTile> tiles_that_fit(int64_t m, int64_t n_vectors, const Target& target) {
  std::vector<RegisterTile> tiles;
  for (int vectors = 1; vectors <= std::min<int64_t>(n_vectors, 8); ++vectors) {
    for (int rows = 1; rows <= (m > 0 ? std::min<int64_t>(m, 24) : 24) && fits({rows, vectors}, target); ++rows)
      tiles.push_back({rows, vectors});
  }
  return tiles;
}

RegisterTile choose_tile(int64_t m, int64_t n_vectors, int64_t k, const Target& target) {
  if (m <= 0) m = 1 << 10;
  if (k <= 0) k = 1 << 8;
  RegisterTile best;
  double best_cycles = -1;
  for (const RegisterTile& tile : tiles_that_fit(m, n_vectors, target)) {
    // Of equals the one that reads least from the caches: more work a load.
    const double loads = static_cast<double>(tile.rows + tile.vectors) / (tile.rows * tile.vectors);
    // A partial tile is code of its own.
    const double uneven = m % tile.rows ? 0.02 : 0.0;
    const double cycles = predict_cycles(tile, m, n_vectors, k, target) * (1 + 0.02 * loads + uneven);
    if (best_cycles < 0 || cycles < best_cycles) best = tile, best_cycles = cycles;
  }
  return best;
}

}  // namespace tw::cpu
