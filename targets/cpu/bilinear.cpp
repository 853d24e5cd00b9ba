// The stages of a bilinear algorithm, which multiplies sums of data and sums of weights and adds up the products:
// Winograd's minimal filtering and Strassen's product.  They are blocked so that the transformed tiles stay in the
// cache.
//
//   for block of T tiles … parallel {            outputs outermost instead, where the weights do not fit a cache
//     data[xi, nu, T, c]   = Bᵀ d B              a vector of input channels at a time, in registers
//     for panel of outputs {
//       product[xi, nu, T, panel] += data · w    small matrix products from register tiles, one for each point xi, nu
//       for tile { out[m × m, panel] = epilogue(Aᵀ product A) }   in registers
//     }
//   }
//
// Strassen's blocks of rows are interleaved, so that a tile is some neighbours; its blocks of columns are outermost, so
// that a tile has a panel in each of them.  A tile's rows are looked through for their scales before they are summed.
#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "runtime/rounding.h"
#include "targets/cpu/contraction/output.h"
#include "targets/cpu/default_schedule.h"
#include "tensor_ir/match.h"

namespace tw::cpu {
namespace {

const BlockRef padded{"bilinear_pad"}, exponents{"bilinear_exponent"}, scales{"bilinear_scale"}, rows{"bilinear_rows"},
    data{"bilinear_data"}, product{"bilinear_product"}, columns{"bilinear_columns"}, finished{"bilinear_result"};

struct Sizes {
  int64_t points;                  // products a tile, each of inputs by outputs
  int64_t tiles, inputs, outputs;  // of open maps as many tiles as usual
  int64_t reduced;                 // inputs that a product is a sum over: those of a group, of all slices
  int64_t together;                // neighbouring outputs that read the same inputs by weights of the same block
  int64_t slices;                  // of the window, whose data are tiles some way on
  bool is_by_image;                // the tiles are of one image
  std::vector<int64_t> tile;       // its extents along the axes of the result's rows, or along all of these as one
  int64_t dilation;                // of rows of a tile: those between are of other tiles
  bool has_joined_rows;            // a tile is of all axes of rows as one: Strassen's
  int64_t column_blocks;           // of the result, each of as many channels as outputs
  double sums;                     // a point: additions of a transform

  // Panels lie within one block or group.
  bool is_divided() const { return column_blocks > 1 || together < outputs; }
};

// What the last stage states of its tiles.
int64_t stated(const Schedule& schedule, const std::string& fact) {
  const Attributes& facts = schedule.node(finished).attributes;
  const auto found = facts.find(fact);
  return found == facts.end() ? 1 : std::get<int64_t>(found->second);
}

// The stages' axes are xi, nu, an image where the batch is open, a tile (of it), a channel; or tile and channel first.
// `channels`: of the result.
std::optional<Sizes> sizes_of(const Schedule& schedule, int64_t channels) {
  const BlockAnalysis of_data = analyse(schedule.node(data)), of_product = analyse(schedule.node(product));
  const std::vector<Var> axes = of_product.spatial(), summed = of_product.reduce();
  const int64_t tiles = of_product.typical_extent(axes.at(axes.size() - 2)),
                inputs = of_data.extent(of_data.spatial().back()), outputs = of_product.extent(axes.back()),
                reduced = of_product.extent(summed.back()),
                slices = summed.size() > 1 ? of_product.extent(summed.front()) : 1;
  if (tiles < 1 || inputs < 1 || outputs < 1) return std::nullopt;
  const int64_t of_joined_rows = stated(schedule, "tile");
  const bool has_joined_rows = of_joined_rows > 1;
  std::vector<int64_t> tile;
  if (has_joined_rows) tile = {of_joined_rows};
  const size_t rank = analyse(schedule.node(finished)).spatial().size();
  for (size_t d = 2; d < rank && !has_joined_rows; ++d) tile.push_back(stated(schedule, "tile_" + std::to_string(d)));
  const auto filtered = std::ranges::count_if(tile, [](int64_t side) { return side > 1; });
  return Sizes{.points = of_product.extent(axes.at(0)) * of_product.extent(axes.at(1)),
               .tiles = tiles,
               .inputs = inputs,
               .outputs = outputs,
               .reduced = slices * reduced,
               .together = outputs * reduced / inputs,
               .slices = slices,
               .is_by_image = axes.size() > 4,
               .tile = tile,
               .dilation = stated(schedule, "dilation"),
               .has_joined_rows = has_joined_rows,
               .column_blocks = divide_up(channels, outputs),
               .sums = has_joined_rows ? 1.5 : 3.0 * static_cast<double>(filtered)};
}

// The result's axis that finds its channel among those of the columns.
size_t channel_axis(const Schedule& schedule) {
  const BlockAnalysis analysis = analyse(schedule.node(finished));
  const std::vector<Expr>& indices = analysis.reads.at(0).indices;
  const std::vector<Var> axes = analysis.spatial();
  const auto axis =
      std::ranges::find_if(axes, [&](const Var& v) { return uses_var(indices.at(indices.size() - 3), v); });
  return static_cast<size_t>(axis - axes.begin());
}

struct Blocking {
  RegisterTile tile;
  int64_t tiles = 1;           // of a block: a multiple of tile.rows
  bool is_data_local = false;  // each block transforms its own data, so that they never leave the core's cache
  double cycles = 0;           // predicted, of the slowest core
};

// Bytes that a core gets a cycle of what the cores' common cache holds, which they all read at once, or memory.
double far_rate(int64_t bytes, const Target& target) {
  return bytes <= target.l3.bytes / 2 ? target.l3.rate * 5 / 6 : target.core_stream_rate;
}

// Products, transforms, and the way of weights and data from their caches, for the slowest core.  Shares of the levels'
// rates were fitted to 670 measured blocks of 17 layers (Granite Rapids): the best by prediction are within 2 % of the
// best measured.
double predict_cycles(const Sizes& s, const Blocking& b, const Target& target) {
  constexpr double loop_cycles = 1;  // of a step along k beside its multiply-adds
  const int lanes = target.lanes(f32);
  const int64_t points = s.points, vectors = divide_up(s.outputs, lanes), threads = std::max(1, target.threads);
  const int64_t blocks = divide_up(s.tiles, b.tiles), panels = divide_up(vectors, b.tile.vectors);
  const int64_t rows = divide_up(b.tiles, b.tile.rows);
  const int64_t weight_bytes = 4 * points * s.reduced * s.outputs;
  const int64_t panel_bytes = 4 * points * s.reduced * b.tile.vectors * lanes;
  const int64_t data_bytes = 4 * points * b.tiles * s.inputs;
  const int64_t product_bytes = 4 * points * b.tiles * b.tile.vectors * lanes;
  const double transform =
      static_cast<double>(points) * (3.5 + s.sums / target.fma_ports);  // a tile, vector of channels
  const double input_transform = transform * static_cast<double>(divide_up(s.inputs, lanes));
  // A panel's matrix is read again for each row of register tiles: for nothing out of the first cache.
  const bool is_matrix_near = panel_bytes / points <= target.l1.bytes / 3;
  const double again = is_matrix_near ? 0 : static_cast<double>((rows - 1) * panel_bytes) / target.l2.rate;
  const double computing =
      static_cast<double>(points) *
          (predict_cycles(b.tile, b.tiles, b.tile.vectors, s.reduced, target) +
           (loop_cycles + conflict_cycles(b.tile, 4 * s.inputs, target)) * static_cast<double>(rows * s.reduced)) +
      static_cast<double>(b.tiles * b.tile.vectors) * transform + again;
  // One point's weights come while the one before computes: from memory at first, since other layers' came in between.
  const auto task = [&](double rate) { return std::max(computing, static_cast<double>(panel_bytes) / rate); };
  const auto rate_again = [&](int64_t bytes) {
    return bytes <= target.l2.bytes * 2 / 5 ? target.l2.rate : far_rate(bytes, target);
  };
  const double first_task = task(target.core_stream_rate);
  const auto shares = static_cast<double>(divide_up(blocks, threads));
  if (b.is_data_local) {
    // Data that the second cache does not keep come again, half of them, for each panel.
    const bool stay = data_bytes + product_bytes <= target.l2.bytes / 4;
    const double reads = stay ? 0 : 0.5 * static_cast<double>(data_bytes) / far_rate(data_bytes, target);
    const double next_task = task(rate_again(weight_bytes + data_bytes + product_bytes));
    return static_cast<double>(panels) * (first_task + (shares - 1) * next_task + shares * reads) +
           shares * static_cast<double>(b.tiles) * input_transform;
  }
  // A meeting of all workers stands between data and products.
  constexpr double meeting = 4000;
  const auto tasks = static_cast<double>(divide_up(blocks * panels, threads)),
             own_panels = static_cast<double>(divide_up(panels, threads));
  return own_panels * first_task + std::max(0.0, tasks - own_panels) * task(rate_again(panel_bytes)) +
         tasks * static_cast<double>(data_bytes) / target.core_to_core_rate +
         input_transform * static_cast<double>(s.tiles) / static_cast<double>(threads) + meeting;
}

// The decision "bilinear_block": rows and vectors of the register tile, tiles of a block, whether data are local.
Blocking decide_blocking(Schedule& schedule, const Sizes& s, const Target& target) {
  constexpr double worst_cost = 1.5;  // by the best one's
  const int lanes = target.lanes(f32);
  const int64_t points = s.points, vectors = divide_up(s.outputs, lanes);
  std::vector<Blocking> blockings;
  size_t best = 0;
  for (const RegisterTile& tile : tiles_that_fit(s.tiles, vectors, target)) {
    if (s.is_divided() && s.together % (int64_t{tile.vectors} * lanes) != 0) continue;
    for (int64_t tiles = tile.rows; tiles < s.tiles + tile.rows; tiles += tile.rows) {
      const int64_t product_bytes = 4 * points * tiles * tile.vectors * lanes,
                    data_bytes = 4 * points * tiles * s.inputs;
      if (product_bytes > target.l2.bytes / 2 && tiles > tile.rows) break;
      for (const bool is_local : {true, false}) {
        if (is_local && (s.slices > 1 || product_bytes + data_bytes > target.l2.bytes * 3 / 4)) continue;
        Blocking blocking{tile, tiles, is_local, 0};
        blocking.cycles = predict_cycles(s, blocking, target);
        blockings.push_back(blocking);
        if (blocking.cycles < blockings[best].cycles) best = blockings.size() - 1;
      }
    }
  }
  // Of each register tile and place of the data the best blocks.
  constexpr int blocks_of_each = 2;
  std::vector<size_t> order(blockings.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return blockings[i].cycles; });
  std::map<std::tuple<int, int, bool>, int> count;
  std::vector<Candidate> candidates;
  const auto choice = [](const Blocking& b) { return Choice{b.tile.rows, b.tile.vectors, b.tiles, b.is_data_local}; };
  for (const size_t i : order) {
    const Blocking& b = blockings[i];
    const double cost = b.cycles / blockings[best].cycles;
    if (cost <= worst_cost && count[{b.tile.rows, b.tile.vectors, b.is_data_local}]++ < blocks_of_each)
      candidates.push_back({choice(b), cost});
  }
  const Choice decided = schedule.decide("bilinear_block", candidates, choice(blockings[best]));
  return {{static_cast<int>(decided[0]), static_cast<int>(decided[1])}, decided[2], decided[3] != 0, 0};
}

// The loops over tiles, of an image where there is one, of a block with these axes.
std::vector<LoopRef> tiles_of(const Schedule& schedule, const BlockRef& block, const std::vector<Var>& axes) {
  std::vector<LoopRef> loops;
  for (size_t axis = 2; axis + 1 < axes.size(); ++axis) loops.push_back(own_loop(schedule, block, axes[axis]));
  return loops;
}

void pack_weights(Schedule& schedule, int64_t panel) {
  const BlockAnalysis analysis = analyse(schedule.node(product));
  for (const Access& read : analysis.reads) {
    if (!schedule.func().is_parameter(read.buffer) || !read.buffer->is_constant) continue;
    const Var e("e"), c("c"), o("o");
    schedule.transform_layout(read.buffer->name, {{e, c, o}, {floor_div(o, panel), e, c, floor_mod(o, panel)}});
  }
}

// Channels of a vector side by side, as the transform takes them: in another layout each load would gather.
void block_channels(Schedule& schedule, int64_t lanes) {
  const Buffer buffer = written_by(schedule, padded);
  IndexMap map = layout_of(buffer->shape.size());
  for (size_t d = 0; d < map.from.size(); ++d) map.to.push_back(d == 1 ? floor_div(map.from[d], lanes) : map.from[d]);
  map.to.push_back(floor_mod(map.from[1], lanes));
  schedule.transform_layout(buffer->name, map);
}

// The exponents of a tile's rows, and their scales.  Returns the loop over tiles.
LoopRef schedule_scales(Schedule& schedule, const LoopRef* block_loop, int lanes) {
  if (block_loop) schedule.compute_at(scales, *block_loop);
  std::vector<LoopRef> tiles;
  for (const Var& v : analyse(schedule.node(scales)).spatial()) tiles.push_back(own_loop(schedule, scales, v));
  tiles.pop_back();  // a tile's rows
  schedule.compute_at(exponents, tiles.back());
  set_scope_of(schedule, exponents, Scope::stack);
  const Var row = analyse(schedule.node(exponents)).spatial().back();
  reduce_in_lanes(schedule, exponents, own_loop(schedule, exponents, row), lanes);
  return schedule.fuse(tiles);
}

// Tile by tile, right behind its scales where there are some.
void schedule_data(Schedule& schedule, const LoopRef* block_loop, int lanes) {
  if (block_loop) schedule.compute_at(data, *block_loop);
  std::vector<LoopRef> tasks;
  if (has_block(schedule, scales)) {
    if (block_loop) schedule.compute_at(rows, *block_loop);
    tasks.push_back(schedule_scales(schedule, block_loop, lanes));
    for (const BlockRef& stage : {rows, data}) schedule.reverse_compute_at(stage, tasks.back());
  }
  const std::vector<Var> axes = analyse(schedule.node(data)).spatial();
  const LoopRef xi = own_loop(schedule, data, axes[0]), nu = own_loop(schedule, data, axes[1]);
  const auto channel = schedule.split(own_loop(schedule, data, axes.back()), {std::nullopt, lanes});
  if (tasks.empty()) {
    tasks = tiles_of(schedule, data, axes);
    tasks.push_back(channel[0]);
    schedule.reorder(in_order(tasks, xi, nu, channel[1]));
  } else {
    schedule.reorder({channel[0], xi, nu, channel[1]});
  }
  schedule.compute_at(rows, channel[0]);
  set_scope_of(schedule, rows, Scope::register_);
  vectorize_below(schedule, rows, channel[0], axes.size() - 3, lanes);
  schedule.unroll(xi);
  schedule.unroll(nu);
  schedule.vectorize(channel[1]);
  if (!block_loop) share_out(schedule, schedule.fuse(tasks));
}

// `out` is the copy of finished tiles from registers.
void schedule_product(Schedule& schedule, const BlockRef& out, const LoopRef& panel_loop, const RegisterTile& tile,
                      int lanes, const Target& target) {
  schedule.compute_at(out, panel_loop);
  const std::vector<Var> axes = analyse(schedule.node(out)).spatial();
  const LoopRef xi = own_loop(schedule, out, axes[0]), nu = own_loop(schedule, out, axes[1]);
  std::vector<LoopRef> tiles = tiles_of(schedule, out, axes);
  const auto i = schedule.split(tiles.back(), {std::nullopt, tile.rows});
  tiles.back() = i[0];
  schedule.reorder(in_order(xi, nu, tiles, i[1], own_loop(schedule, out, axes.back())));
  const LoopRef k = tile_in_registers(schedule, product, i[0], lanes, target);
  vectorize_below(schedule, out, i[0], axes.size() - 1, lanes);
  // While one point's tiles compute, the next one's weights are on their way.
  for (const Access& read : analyse(schedule.node(product)).reads) {
    if (read.buffer->is_constant)
      prefetch_ahead(schedule, k, read.buffer,
                     extent_of(schedule, k) * tile.vectors * lanes * read.buffer->dtype.bytes());
  }
}

}  // namespace

bool schedule_bilinear(Schedule& original, const Target& target) {
  if (!has_block(original, product)) return false;
  Schedule schedule = original;
  const bool has_padding = has_block(schedule, padded), has_scales = has_block(schedule, scales);
  std::vector<BlockRef> stages{rows, data, product, columns, finished};
  if (has_padding) stages.insert(stages.begin(), padded);
  if (has_scales) stages.insert(stages.begin(), {exponents, scales});
  inline_injective_blocks(schedule, stages);
  const std::vector<BlockRef> blocks = schedule.blocks();
  const BlockRef last = blocks.back();
  // The stages, and at most one epilogue that works element by element on the result.
  const bool has_epilogue = !(last == finished);
  if (blocks.size() != stages.size() + (has_epilogue ? 1 : 0)) return false;
  if (has_epilogue && find_epilogue(schedule, finished) != last) return false;
  const std::vector<LoopRef> loops = schedule.loops(last);
  const size_t channels = channel_axis(schedule);
  if (loops.size() != analyse(schedule.node(finished)).spatial().size()) return false;
  const auto sizes = sizes_of(schedule, extent_of(schedule, loops[channels]));
  if (!sizes) return false;

  const int lanes = target.lanes(f32);
  if (sizes->is_divided() && sizes->together % lanes != 0) return false;
  const Blocking blocking = decide_blocking(schedule, *sizes, target);
  const int64_t panel = static_cast<int64_t>(blocking.tile.vectors) * lanes;

  const std::string products = written_by(schedule, product)->name;
  const BlockRef out = schedule.cache_write(product, products, Scope::register_);

  // The output, tile by tile.
  std::vector<LoopRef> outer, inner;
  std::vector<LoopRef> of_rows(loops.begin() + 1, loops.end());
  of_rows.erase(of_rows.begin() + static_cast<std::ptrdiff_t>(channels - 1));
  if (sizes->has_joined_rows) {
    schedule.reorder(in_order(loops[0], of_rows, loops[channels]));
    of_rows = {as_one(schedule, of_rows)};
  }
  const bool is_dilated = sizes->dilation > 1;
  for (size_t d = 0; d < of_rows.size(); ++d) {
    if (sizes->tile[d] == 1) {
      outer.push_back(of_rows[d]);
      continue;
    }
    const auto parts = is_dilated ? schedule.split(of_rows[d], {std::nullopt, sizes->tile[d], sizes->dilation})
                                  : schedule.split(of_rows[d], {std::nullopt, sizes->tile[d]});
    outer.push_back(parts[0]);
    if (is_dilated) outer.push_back(parts[2]);
    inner.push_back(parts[1]);
  }
  LoopRef of_columns = loops[channels];
  if (sizes->column_blocks > 1) {
    const auto parts = schedule.split(of_columns, {std::nullopt, sizes->outputs});
    inner.push_back(parts[0]);
    of_columns = parts[1];
  }
  const auto k = schedule.split(of_columns, {std::nullopt, blocking.tile.vectors, lanes});
  schedule.reorder(in_order(loops[0], outer, k[0], k[1], inner, k[2]));
  const bool is_local = blocking.is_data_local;
  if (!sizes->is_by_image) outer.insert(outer.begin(), loops[0]);
  const LoopRef all = as_one(schedule, outer);
  const auto t = schedule.split(all, {std::nullopt, blocking.tiles});
  std::vector<LoopRef> shared;
  if (sizes->is_by_image) shared.push_back(loops[0]);
  if (!is_local) shared.push_back(k[0]);
  shared.push_back(t[0]);
  schedule.reorder(in_order(shared, is_local ? std::optional(k[0]) : std::nullopt, t[1], k[1], inner, k[2]));
  const LoopRef panel_loop = is_local ? k[0] : t[0];
  if (has_epilogue) {
    schedule.compute_at(finished, inner.back());
    set_scope_of(schedule, finished, Scope::register_);
    vectorize_below(schedule, finished, inner.back(), channels, lanes);
  }
  schedule.compute_at(columns, k[1]);
  set_scope_of(schedule, columns, Scope::register_);
  vectorize_below(schedule, columns, k[1], sizes->is_by_image ? 2 : 1, lanes);
  schedule_product(schedule, out, panel_loop, blocking.tile, lanes, target);
  schedule.set_scope(products, Scope::stack);
  pack_weights(schedule, panel);
  schedule_data(schedule, is_local ? &t[0] : nullptr, lanes);
  if (is_local) schedule.set_scope(written_by(schedule, data)->name, Scope::stack);
  if (is_local && has_scales) set_scope_of(schedule, scales, Scope::stack);
  for (const LoopRef& loop : inner) schedule.unroll(loop);
  schedule.vectorize(k[2]);
  share_out(schedule, as_one(schedule, shared));
  if (has_padding) {
    block_channels(schedule, lanes);
    schedule_elementwise(schedule, padded, target);
  }
  original = schedule;
  return true;
}

}  // namespace tw::cpu
