// The register tile of a contraction as a decision.
#include <algorithm>

#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

constexpr double worst_cost = 2;  // of a candidate, by the analytic choice's: beyond, the model is not that wrong

}  // namespace

RegisterTile decide_tile(Schedule& schedule, const Product& p, const Target& target) {
  const auto cost_of = [&](const RegisterTile& tile) {
    if (tile.rows <= p.m)
      return static_cast<double>(p.around) * tile_cost(tile, p.m, p.n_vectors, p.k, target, p.sweep);
    Sweep sweep = p.sweep;
    sweep.outer_rows /= p.around;
    return tile_cost(tile, p.m * p.around, p.n_vectors, p.k, target, sweep);
  };
  std::vector<RegisterTile> tiles = tiles_that_fit(p.m * p.around, p.n_vectors, target);
  if (p.around > 1)
    std::erase_if(tiles, [&](const RegisterTile& tile) { return tile.rows > p.m && tile.rows % p.m != 0; });
  if (p.is_group) std::erase_if(tiles, [&](const RegisterTile& tile) { return p.n_vectors % tile.vectors != 0; });
  std::erase_if(tiles, [&](const RegisterTile& tile) { return tile.vectors % p.parts != 0; });
  check(!tiles.empty(), "decide_tile: the registers hold a vector of each part");
  RegisterTile analytic = std::ranges::min(tiles, {}, cost_of);
  const double least = cost_of(analytic);
  if (p.is_memory_bound) analytic = panels_for_all(analytic, p.n_vectors, p.batches, target);
  const auto choice = [](const RegisterTile& tile) { return Choice{tile.rows, tile.vectors}; };
  const auto count = static_cast<double>(p.batches * std::max<int64_t>(1, p.sweep.outer_rows / p.around));
  std::vector<Candidate> candidates;
  for (const RegisterTile& tile : tiles) {
    const double cost = cost_of(tile);
    const bool is_analytic = choice(tile) == choice(analytic);
    if (cost > worst_cost * least && !is_analytic) continue;
    // Whoever waits for memory has time for any of them.
    const double cycles = p.is_memory_bound ? least * (is_analytic ? 1 : 1.02) : cost;
    candidates.push_back({choice(tile), cycles * count});
  }
  const Choice decided = schedule.decide("tile", candidates, choice(analytic));
  return {static_cast<int>(decided[0]), static_cast<int>(decided[1])};
}

}  // namespace tw::cpu
