// The register tile of a contraction as a decision.
#include <algorithm>
#include <limits>
#include <numeric>

#include "runtime/rounding.h"
#include "targets/cpu/contraction/packing.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cpu {
namespace {

struct TileOption {
  RegisterTile tile;
  Choice value;
  double cost = 0;  // of all batches
};

// `cost` of m rows; of an open m, as by its usual sizes.
double cost_of_rows(const Product& p, int64_t m, const std::function<double(int64_t)>& cost) {
  if (p.usual_m.empty()) return cost(m);
  double a_row = 0;
  for (const int64_t usual : p.usual_m) a_row += cost(usual) / static_cast<double>(usual);
  return a_row * static_cast<double>(m) / static_cast<double>(p.usual_m.size());
}

// Of vector registers: rows, those around among them, and vectors.
std::vector<TileOption> options_of_vectors(const Product& p, const Target& target) {
  std::vector<TileOption> options;
  for (const RegisterTile& tile : tiles_that_fit(p.m * p.around, p.n_vectors, target)) {
    // A vector of two rows of A is made of one for each.
    if (p.atom.is_matrix() && registers_of(tile) + 1 > target.vector_registers) continue;
    if (p.around > 1 && tile.rows > p.m && tile.rows % p.m != 0) continue;
    const int64_t width = panel_width(p, tile.vectors);
    if (width == 0 || tile.vectors % p.parts != 0) continue;
    Sweep sweep = p.sweep;
    int64_t m = p.m;
    if (tile.rows > m) sweep.outer_rows /= p.around, m *= p.around;
    // Panels of a group are equal, and need not fill their last vector.
    const int64_t panels = p.group > 0 ? p.group / width : 1, n_vectors = p.group > 0 ? tile.vectors : p.n_vectors;
    const auto times = static_cast<double>(panels * (tile.rows <= p.m ? p.around : 1));
    const auto count = static_cast<double>(p.batches * std::max<int64_t>(1, p.sweep.outer_rows / p.around));
    double cost = cost_of_rows(p, m, [&](int64_t rows) {
      Sweep of_rows = sweep;  // of an open m, what these rows have of A
      if (!p.usual_m.empty()) of_rows.scattered_bytes = sweep.scattered_bytes / p.m * rows;
      return tile_cost(tile, rows, n_vectors, p.k, target, of_rows);
    });
    // The two halves of each vector of A are joined in each step.
    if (p.atom.is_matrix())
      cost += static_cast<double>(m * divide_up(n_vectors, tile.vectors) * p.k) / target.fma_ports;
    options.push_back({tile, {tile.rows, tile.vectors}, count * times * cost});
  }
  for (auto& [tile, value, cost] : options) {
    if (tile.rows > p.m) tile.around = static_cast<int>(tile.rows / p.m), tile.rows = static_cast<int>(p.m);
    if (p.share_of_work) cost *= p.share_of_work(tile);
  }
  return options;
}

// Cycles of m rows with these registers of the target's unit for tiles.  Products that add to one tile wait for each
// other, and B's words come from the second cache where all of k does not fit the first one, at two thirds of its rate,
// since nothing asks for them ahead; A's are used for several panels or window positions.
double predict(const RegisterTile& tile, const Product& p, int64_t m, const Target& target) {
  const TileUnit& unit = target.tiles;
  const int64_t rows = int64_t{tile.rows} * tile.around * p.atom.m;
  const auto products = static_cast<double>(rows * tile.vectors);
  const double loads = unit.load_cycles * (tile.vectors + static_cast<double>(rows) / unit.rows);
  const double words = static_cast<double>(tile.vectors) * unit.rows * unit.row_bytes;
  const double transfer =
      words * static_cast<double>(p.k) > 0.5 * target.l1.bytes ? words / (target.l2.rate * 2 / 3) : 0;
  const double step = std::max({products, loads, static_cast<double>(unit.product_latency + p.atom.m), transfer});
  const double around = 60 + 4.0 * products;  // zeros, stores, the epilogue
  const int64_t blocks =
      p.batches * divide_up(m, tile.rows) * divide_up(p.around, tile.around) * divide_up(p.n_vectors, tile.vectors);
  return static_cast<double>(blocks) * (static_cast<double>(p.k) * step + around);
}

// Of the unit's registers, half of which hold operands: along the rows, around them, and along the columns.
std::vector<TileOption> options_of_tiles(const Product& p, const Target& target) {
  std::vector<TileOption> options;
  RegisterTile tile;
  const int64_t most_rows = p.usual_m.empty() ? p.m : std::ranges::max(p.usual_m);
  for (tile.rows = 1; tile.rows <= std::min<int64_t>(most_rows, 4); ++tile.rows) {
    for (tile.around = 1; tile.around <= std::min<int64_t>(p.around, 4); ++tile.around) {
      for (tile.vectors = 1; tile.vectors <= std::min<int64_t>(p.n_vectors, 4); ++tile.vectors) {
        if (2 * tile.rows * tile.around * tile.vectors > target.tiles.registers) continue;
        if (panel_width(p, tile.vectors) == 0) continue;
        const double cost = cost_of_rows(p, p.m, [&](int64_t rows) { return predict(tile, p, rows, target); });
        options.push_back({tile, {tile.rows, tile.around, tile.vectors}, cost});
      }
    }
  }
  return options;
}

std::vector<TileOption> options_of(const Product& p, const Target& target) {
  return p.atom.is_on_tiles() ? options_of_tiles(p, target) : options_of_vectors(p, target);
}

}  // namespace

int64_t panel_width(const Product& p, int vectors) {
  if (p.group == 0) return vectors * p.atom.n;
  const int64_t piece = std::gcd(p.group, p.atom.n);
  for (int64_t width = vectors * p.atom.n; width > (vectors - 1) * p.atom.n; width -= piece)
    if (p.group % width == 0) return width;
  return 0;
}

double least_cost(const Product& p, const Target& target) {
  double least = std::numeric_limits<double>::infinity();
  for (const TileOption& option : options_of(p, target)) least = std::min(least, option.cost);
  return least;
}

RegisterTile decide_tile(Schedule& schedule, const Product& p, const Target& target) {
  constexpr double worst_cost = 2;  // of a candidate, by the least: beyond, the model is not that wrong
  const std::vector<TileOption> options = options_of(p, target);
  check(!options.empty(), "decide_tile: the registers hold a vector of each part");
  const TileOption best = *std::ranges::min_element(options, {}, &TileOption::cost);
  const auto option_of = [&](const Choice& value) { return std::ranges::find(options, value, &TileOption::value); };
  Choice analytic = best.value;
  if (p.is_memory_bound) analytic.back() = panels_for_all(best.tile, p.n_vectors, p.batches, target).vectors;
  if (option_of(analytic) == options.end()) analytic = best.value;
  std::vector<Candidate> candidates;
  for (const TileOption& option : options) {
    const bool is_analytic = option.value == analytic;
    if (option.cost > worst_cost * best.cost && !is_analytic) continue;
    // Whoever waits for memory has time for any of them.
    candidates.push_back({option.value, p.is_memory_bound ? best.cost * (is_analytic ? 1 : 1.02) : option.cost});
  }
  const std::string name = p.atom.is_on_tiles() ? "tiles" : p.atom.is_matrix() ? "matrices" : "tile";
  const Choice decided = schedule.decide(name, candidates, analytic);
  return option_of(decided)->tile;
}

Product product_of(const Plan& c, const Target& target) {
  const BlockAnalysis& analysis = c.analysis;
  Product product;
  product.atom = c.atom;
  product.m = divide_up(c.m(), c.atom.m), product.k = c.k_steps();
  product.n_vectors = c.n_parts() * divide_up(c.group, c.atom.n);
  product.batches = count_iterations(analysis, c.batch) * (analysis.extent(c.vector_axis) / c.group);
  product.is_memory_bound = c.is_memory_bound;
  product.group = c.is_grouped() ? c.group : 0;
  product.parts = c.n_parts();
  for (const int64_t rows : c.usual_rows()) product.usual_m.push_back(divide_up(rows, c.atom.m));
  if (const auto around = c.axis_around()) product.around = analysis.extent(*around);
  Sweep& sweep = product.sweep;
  sweep.row_stride = row_stride(c) * c.atom.m;
  // What windows of words take from the caches is not in the model: it was fitted to sums of multiply-adds.
  if (c.atom.is_on_tiles() || c.atom.is_matrix() || (c.atom.instruction && !c.is_scattered)) return product;
  const std::vector<Var> outer_rows(c.rows.begin(), c.rows.end() - (c.has_rows() ? 1 : 0));
  sweep.outer_rows = count_iterations(analysis, outer_rows);
  const int64_t a_bytes = sweep.outer_rows * c.m() * c.k_count() * c.read_a().buffer->dtype.bytes();
  // Lines of neighbouring rows lie side by side in blocks of a layout, and come from the second cache as one stream.
  const bool is_blocked = !c.split.empty() && c.split[0].sizes.size() > c.atom.steps.size();
  if (c.is_scattered && (!is_blocked || a_bytes > target.l2.bytes / 2)) sweep.scattered_bytes = a_bytes;
  sweep.packs_panels = !c.read_b().buffer->is_constant;
  return product;
}

}  // namespace tw::cpu
