#include "targets/cpu/contraction/packing.h"

#include <algorithm>
#include <numeric>

#include "runtime/memory.h"
#include "runtime/rounding.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cpu {

void pack_at(Schedule& schedule, const BlockRef& copy, const LoopRef& loop, int axis, int lanes) {
  constexpr int64_t most_vectors = 8;  // side by side: those of a panel
  schedule.compute_at(copy, loop);
  const BlockAnalysis analysis = analyse(schedule.node(copy));
  std::vector<LoopRef> inner = loops_below(schedule, copy, loop);
  const auto along = loops_below(schedule, copy, loop, analysis.spatial().at(static_cast<size_t>(axis)));
  if (along.empty() || extent_of(schedule, along.back()) < 2) return;
  LoopRef vector = along.back();
  std::erase(inner, vector);
  // What is read along another loop is transposed: some of its rows at a time, in registers.
  const auto is_row = [&](const LoopRef& l) {
    return extent_of(schedule, l) > 1 && loop_stride(schedule, copy, analysis.reads.at(0), l) == 1;
  };
  const auto row = std::find_if(inner.begin(), inner.end(), is_row);
  std::optional<LoopRef> columns;
  if (row != inner.end()) {
    if (extent_of(schedule, *row) > lanes) {
      const auto parts = schedule.split(*row, {std::nullopt, lanes});
      *row = parts[0], columns = parts[1];
    } else {
      columns = *row;
      inner.erase(row);
    }
  }
  std::optional<LoopRef> vectors;
  if (extent_of(schedule, vector) > lanes) {
    const auto parts = schedule.split(vector, {std::nullopt, lanes});
    vectors = parts[0], vector = parts[1];
  }
  const std::vector<LoopRef> order = in_order(inner, vectors, columns, vector);
  if (order.size() > 1) schedule.reorder(order);
  if (columns)
    schedule.unroll(*columns);
  else if (vectors && !is_open(schedule, *vectors) && extent_of(schedule, *vectors) <= most_vectors)
    schedule.unroll(*vectors);
  schedule.vectorize(vector);
}

bool is_weight(const Schedule& schedule, const Access& operand) {
  return operand.buffer->is_constant && readers_of(schedule, operand.buffer).size() == 1;
}

BlockRef pack_copy(Schedule& schedule, const BlockRef& block, const Access& operand, Scope scope, const IndexMap& map) {
  const BlockRef copy = schedule.cache_read(block, operand.buffer->name, scope);
  schedule.transform_layout(written_by(schedule, copy)->name, map);
  return copy;
}

namespace {

// Vectors along the panel, one for each of a word's elements: their stores interleave.
void interleave_words(Schedule& schedule, const BlockRef& copy, const Plan& c) {
  const Access& b = c.read_b();
  std::vector<LoopRef> outer, inner;
  const std::vector<Var> axes = analyse(schedule.node(copy)).spatial();
  for (size_t d = 0; d < axes.size(); ++d) {
    const LoopRef loop = loops_of(schedule, copy, axes[d]).at(0);
    if (static_cast<int>(d) == dimension_of(b, c.split[0].axis)) {
      const auto parts = schedule.split(loop, {std::nullopt, c.atom.steps.back()});
      outer.push_back(parts[0]);
      inner.insert(inner.begin(), parts[1]);
    } else if (static_cast<int>(d) == dimension_of(b, c.vector_axis)) {
      const auto parts = schedule.split(loop, {std::nullopt, c.atom.n});
      outer.push_back(parts[0]);
      inner.push_back(parts[1]);
    } else {
      outer.push_back(loop);
    }
  }
  schedule.reorder(in_order(outer, inner));
  const LoopRef shared = as_one(schedule, outer);
  schedule.unroll(inner[0]);
  schedule.vectorize(inner[1]);
  share_out(schedule, shared);
}

// The layout of a packed operand, dimension by dimension, after those of one element.
class PackedLayout {
 public:
  explicit PackedLayout(const Access& operand) : operand_(operand), map_(layout_of(operand.indices.size())) {
    for (size_t d = 0; d < operand.indices.size(); ++d)
      if (is_const_int(operand.buffer->shape[d], 1)) add(map_.from[d]);
  }
  // The operand's dimension that is this iteration; not defined where there is none of more than one element.
  Expr dimension(const Var& iteration) const {
    for (size_t d = 0; d < operand_.indices.size(); ++d)
      if (operand_.indices[d].get() == iteration.get() && !is_const_int(operand_.buffer->shape[d], 1))
        return map_.from[d];
    return Expr();
  }
  void add(const Expr& dimension) { map_.to.push_back(dimension); }
  void add(const std::vector<Var>& iterations) {  // those that the operand has
    for (const Var& v : iterations)
      if (const Expr d = dimension(v); d.is_defined()) add(d);
  }
  const IndexMap& map() const { return map_; }

 private:
  const Access& operand_;
  IndexMap map_;
};

}  // namespace

IndexMap packing_map(const Plan& c, const Access& operand, const Var& axis, int64_t panel) {
  PackedLayout layout(operand);
  layout.add(c.batch);
  std::vector<Var> rows = c.rows;
  std::erase(rows, axis);
  layout.add(rows);
  const Expr j = layout.dimension(axis);
  layout.add(floor_div(j, panel));
  // The axes of k by their loops, those of the atom last.
  std::vector<Expr> within, steps;
  for (const Var& v : c.reduce) {
    const Expr k = layout.dimension(v);
    if (!k.is_defined()) continue;
    const SplitAxis* split = c.find_split(v);
    layout.add(split ? floor_div(k, split->sizes[0]) : k);
    if (!split) continue;
    std::vector<Expr> digits;
    for (size_t i = 0; i + 1 < split->sizes.size(); ++i)
      digits.push_back(floor_div(floor_mod(k, split->sizes[i]), split->sizes[i + 1]));
    digits.push_back(floor_mod(k, split->sizes.back()));
    const auto of_atom = digits.end() - static_cast<std::ptrdiff_t>(c.atom.steps.size());
    within.insert(within.end(), digits.begin(), of_atom);
    steps.insert(steps.end(), of_atom, digits.end());
  }
  for (const Expr& digit : within) layout.add(digit);
  if (c.parts.is_defined()) layout.add(std::vector<Var>{c.parts});
  if (steps.size() > 1) {  // all words that an atom takes lie together
    layout.add(floor_mod(floor_div(j, c.atom.n), panel / c.atom.n));
    for (size_t i = 0; i + 1 < steps.size(); ++i) layout.add(steps[i]);
    layout.add(floor_mod(j, c.atom.n));
  } else {
    layout.add(floor_mod(j, panel));
  }
  if (!steps.empty()) layout.add(steps.back());
  return layout.map();
}

PackedOperands pack_operands(Schedule& schedule, const BlockRef& block, const Plan& c, const Target& target) {
  PackedOperands packed;
  if (c.packing != Packing::none) {
    const IndexMap map = packing_map(c, c.read_b(), c.vector_axis, c.panel_of_part());
    if (c.packing == Packing::constant)
      schedule.transform_layout(c.read_b().buffer->name, map);
    else
      packed.b =
          pack_copy(schedule, block, c.read_b(), c.packing == Packing::panel ? Scope::stack : Scope::global, map);
    if (c.packing == Packing::ahead) {
      if (c.atom.steps.empty())
        schedule_elementwise(schedule, *packed.b, target);
      else
        interleave_words(schedule, *packed.b, c);
    }
  }
  if (c.packs_a())
    packed.a =
        pack_copy(schedule, block, c.read_a(), Scope::stack, packing_map(c, c.read_a(), c.rows.back(), c.tile.rows));
  packed.panels = analyse(schedule.node(block)).reads[c.b];
  return packed;
}

std::optional<Packing> choose_packing(const Schedule& schedule, const Plan& c, const Target& target) {
  const Access& b = c.read_b();
  const bool is_plain = has_plain_indices(b);
  if (is_plain && is_weight(schedule, b)) return Packing::constant;
  if (!c.atom.steps.empty()) return is_plain ? std::optional(Packing::ahead) : std::nullopt;
  const int64_t rows = count_iterations(c.analysis, c.rows);
  const bool is_contiguous = unit_stride(b, c.vector_axis, c.analysis.iters, static_cast<int>(c.atom.n)) == 1;
  const bool is_reused = rows >= 4 * c.tile.rows;
  if (is_contiguous && !is_reused) return Packing::none;
  if (!is_plain || rows < 4) return is_contiguous ? std::optional(Packing::none) : std::nullopt;
  if (c.packs_a() || c.k_count() * c.panel() * b.buffer->dtype.bytes() > target.l2.bytes) return Packing::ahead;
  // All rows of a panel are one task then.
  const int64_t tasks = count_iterations(c.analysis, c.batch) * c.panels();
  return is_even_share(tasks, target.threads) ? Packing::panel : Packing::ahead;
}

namespace {

// Whether lines that lie so many bytes apart, one for each step, find room in the second cache: strides of many powers
// of two fall into few of its sets.  Of a stride that is not known the worst is expected.
bool are_lines_near(std::optional<int64_t> stride, int64_t steps, const Target& target) {
  const int64_t sets = std::max<int64_t>(1, target.l2.bytes / (line_bytes * target.l2.ways));
  int64_t used = stride ? sets : 1;
  if (stride && *stride % line_bytes == 0) used = sets / std::gcd(sets, *stride / line_bytes);
  return steps <= used * target.l2.ways / 2;
}

// What is packed together, if anything can be.
RowPacking rows_packed_together(const Contraction& c, const RegisterTile& tile, const Target& target) {
  const Access& a = c.read_a();
  if (!c.has_rows() || c.reduce.size() != 1 || !has_plain_indices(a)) return {};
  if (std::any_of(c.rows.begin(), c.rows.end() - 1, [&](const Var& v) { return c.analysis.is_open(v); })) return {};
  const int64_t m = c.m(), k = c.analysis.extent(c.reduce[0]);
  const int64_t tiles = divide_up(m, tile.rows), tile_bytes = a.buffer->dtype.bytes() * k * tile.rows;
  const int64_t most_bytes = target.l2.bytes / 4;
  const auto around = tiles * tile_bytes <= most_bytes ? axis_around_rows(c) : std::nullopt;
  const int64_t units = around ? c.analysis.extent(*around) : tiles, tiles_a_unit = around ? tiles : 1;
  if (units * tiles_a_unit < 2 || m < tile.rows || tile.rows < 2) return {};
  if (unit_stride(a, c.rows.back(), c.analysis.iters, static_cast<int>(m)) != 1) return {};
  const int64_t unit_bytes = tile_bytes * tiles_a_unit;
  if (units * unit_bytes <= target.l1.bytes) return {};
  const int64_t other_rows = std::max<int64_t>(1, count_iterations(c.analysis, c.rows) / m / (around ? units : 1));
  const int64_t batch = count_iterations(c.analysis, c.batch) * other_rows;
  const int64_t fits = std::clamp<int64_t>(most_bytes / unit_bytes, 1, units);
  // Blocks of equal size that the workers share evenly, if there are any; else as few as possible.
  const int64_t threads = std::max(1, target.threads);
  if (around) {
    const auto most_of_a_worker = [&](int64_t together) {  // of the axis' elements
      return divide_up(batch * (units / together), threads) * together;
    };
    int64_t best = 1;
    for (int64_t together = 2; together <= fits; ++together)
      if (units % together == 0 && most_of_a_worker(together) <= most_of_a_worker(best)) best = together;
    return {best, true};
  }
  for (int64_t together = fits; 2 * together > fits; --together)
    if (units % together == 0 && is_even_share(batch * (units / together), target.threads)) return {together};
  const int64_t blocks = divide_up(units, fits);
  const int64_t even = round_up(blocks * batch, threads) / batch;
  return {divide_up(units, std::max(blocks, even))};
}

}  // namespace

RowPacking decide_row_packing(Schedule& schedule, const BlockRef& block, const Plan& c, const Target& target) {
  const RegisterTile& tile = c.tile;
  const RowPacking packing = tile.around > 1 ? RowPacking{} : rows_packed_together(c, tile, target);
  if (packing.together == 0) return {};
  // Of what a tile reads in a step: a piece of a line, which packing waits for once, and its use by a panel where it
  // is in the second cache or beyond.
  constexpr double cycles_to_pack = 16, cycles_near = 0.9, cycles_far = 12;
  auto stride = loop_stride(schedule, block, c.read_a(), loops_of(schedule, block, c.reduce[0]).at(0));
  if (stride) *stride *= c.read_a().buffer->dtype.bytes();
  const int64_t panels = c.panels();
  const bool is_near = are_lines_near(stride, c.analysis.extent(c.reduce[0]), target);
  const double as_is = static_cast<double>(panels) * (is_near ? cycles_near : cycles_far);
  const double products = static_cast<double>(panels * tile.rows * tile.vectors) / target.fma_ports;
  const std::vector<Candidate> candidates{{{0}, 1 + as_is / products}, {{1}, 1 + cycles_to_pack / products}};
  const Choice analytic{as_is > cycles_to_pack ? 1 : 0};
  return schedule.decide("row_packing", candidates, analytic)[0] == 1 ? packing : RowPacking{};
}

}  // namespace tw::cpu
