#include "targets/cuda/default_schedule.h"

#include <algorithm>

#include "targets/analysis/block_relations.h"
#include "targets/analysis/loop_strides.h"
#include "targets/analysis/templates.h"

namespace tw::cuda {

using namespace analysis;

namespace {

constexpr int64_t threads_a_block = 256, square = 32, rows_at_once = 8;

bool is_plain_nest(const Schedule& schedule, const BlockRef& block) {
  const size_t loops = schedule.loops(block).size();
  return loops == schedule.node(block).iters.size() &&
         loops == loops_of_kind(schedule, block, IterKind::spatial).size() +
                      loops_of_kind(schedule, block, IterKind::reduce).size();
}

}  // namespace

std::vector<LoopRef> loops_of_kind(const Schedule& schedule, const BlockRef& block, IterKind kind) {
  std::vector<LoopRef> result;
  for (const LoopRef& loop : schedule.loops(block)) {
    for (const IterVar& iter : schedule.node(block).iters) {
      if (iter.kind == kind && iter.binding.get() == loop.var.get()) result.push_back(loop);
    }
  }
  return result;
}

BlockRef keep_in_thread(Schedule& schedule, const BlockRef& block, const LoopRef& loop) {
  return keep_in_scope(schedule, block, loop, Scope::local);
}

BlockRef keep_in_scope(Schedule& schedule, const BlockRef& block, const LoopRef& loop, Scope scope) {
  const std::string result = analyse(schedule.node(block)).write.buffer->name;
  const auto epilogue = find_epilogue(schedule, block);
  const BlockRef out = epilogue ? *epilogue : schedule.cache_write(block, result, scope);
  schedule.reverse_compute_at(out, loop);
  if (epilogue) schedule.set_scope(result, scope);
  return out;
}

namespace {

std::optional<Var> main_iteration(const BlockAnalysis& analysis, const Access& own, const Access& other) {
  // Open ones may have few.
  const auto expected = [&](const Var& var) { return analysis.is_open(var) ? warp : analysis.extent(var); };
  std::optional<Var> best;  // the last of equals
  for (const Var& var : analysis.spatial()) {
    if (!own.uses(var) || other.uses(var)) continue;
    if (!best || expected(var) >= expected(*best)) best = var;
  }
  return best;
}

}  // namespace

std::optional<size_t> dimension_of(const Access& access, const Var& var) {
  for (size_t d = 0; d < access.indices.size(); ++d)
    if (access.indices[d].get() == var.get()) return d;
  return std::nullopt;
}

std::optional<Product> find_product(const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis) {
  const Access &a = analysis.reads[0], &b = analysis.reads[1];
  if (a.buffer == b.buffer) return std::nullopt;
  auto i = main_iteration(analysis, a, b), j = main_iteration(analysis, b, a);
  if (!i || !j) return std::nullopt;
  const auto is_contiguous = [&](const Var& var) { return result_stride(schedule, block, var, 1) == 1; };
  if (is_contiguous(*i) && !is_contiguous(*j)) std::swap(i, j);
  const auto at_i = dimension_of(analysis.write, *i), at_j = dimension_of(analysis.write, *j);
  return at_i && at_j ? std::optional(Product{*i, *j, *at_i, *at_j}) : std::nullopt;
}

std::vector<LoopRef> loops_of_blocks(const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                     const Product& product, const std::vector<LoopRef>& tiles) {
  std::vector<LoopRef> loops;
  for (const Var& var : analysis.spatial())
    if (!(var == product.i) && !(var == product.j)) loops.push_back(loop_of(schedule, block, var));
  loops.insert(loops.end(), tiles.begin(), tiles.end());
  // What comes first is found without a remainder.
  std::stable_partition(loops.begin(), loops.end(), [&](const LoopRef& loop) { return is_open(schedule, loop); });
  return loops;
}

LoopRef loop_of(const Schedule& schedule, const BlockRef& block, const Var& iteration) {
  return loops_of(schedule, block, iteration).at(0);
}

void put_dimension_last(Schedule& schedule, const Buffer& buffer, size_t dimension) {
  IndexMap map;
  for (int d = 0; d < buffer.rank(); ++d) map.from.push_back(Var("d" + std::to_string(d)));
  map.to.assign(map.from.begin(), map.from.end());
  std::rotate(map.to.begin() + static_cast<long>(dimension), map.to.begin() + static_cast<long>(dimension) + 1,
              map.to.end());
  schedule.transform_layout(buffer->name, map);
}

BlockRef share_results(Schedule& schedule, const BlockRef& block, const LoopRef& outer) {
  const std::string buffer = written_by(schedule, block)->name;
  const BlockRef copy = schedule.cache_write(block, buffer, Scope::local);
  schedule.set_scope(buffer, Scope::shared);
  schedule.compute_at(copy, outer);
  return copy;
}

OrderedLoops put_spatial_first(Schedule& schedule, const BlockRef& block) {
  const OrderedLoops loops = {loops_of_kind(schedule, block, IterKind::spatial),
                              loops_of_kind(schedule, block, IterKind::reduce)};
  std::vector<LoopRef> order = loops.spatial;
  order.insert(order.end(), loops.reduce.begin(), loops.reduce.end());
  if (order != schedule.loops(block)) schedule.reorder(order);
  return loops;
}

FlatBinding bind_flat(Schedule& schedule, const std::vector<LoopRef>& loops, int64_t threads) {
  check(!loops.empty(), "bind_flat: loops");
  std::vector<LoopRef> blocks, within;
  int64_t count = 1;
  bool has_more = true;  // loops that give threads
  bool is_in_order = true;
  const auto add_threads = [&](const LoopRef& loop, int64_t extent) {
    is_in_order = is_in_order && blocks.empty();
    within.insert(within.begin(), loop);
    count *= extent;
  };
  for (size_t i = loops.size(); i-- > 0;) {
    const int64_t extent = extent_of(schedule, loops[i]);
    const bool is_long = is_open(schedule, loops[i]);  // perhaps
    if (has_more && !is_long && count * extent <= threads) {
      add_threads(loops[i], extent);
      continue;
    }
    // Of an open loop no more than a warp, where other loops have threads for the rest.
    const int64_t most = is_long && i > 0 ? std::min(warp, threads / count) : threads / count;
    if (!has_more || most <= 1) {
      blocks.insert(blocks.begin(), loops[i]);
      has_more = false;
      continue;
    }
    const std::vector<LoopRef> parts = schedule.split(loops[i], {std::nullopt, most});
    add_threads(parts[1], most);
    blocks.insert(blocks.begin(), parts[0]);
    has_more = is_long;
  }
  if (blocks.empty()) {  // all of it is one block
    const std::vector<LoopRef> parts = schedule.split(within.front(), {1, std::nullopt});
    blocks.push_back(parts[0]);
    within.front() = parts[1];
  }
  std::vector<LoopRef> order = blocks;
  order.insert(order.end(), within.begin(), within.end());
  if (!is_in_order) schedule.reorder(order);
  return {blocks.size() > 1 ? schedule.fuse(blocks) : blocks[0], within.size() > 1 ? schedule.fuse(within) : within[0]};
}

void deal_out(Schedule& schedule, const BlockRef& block, const LoopRef& outer, int64_t y, int64_t x) {
  std::vector<LoopRef> loops = schedule.loops(block);
  loops.erase(loops.begin(), std::find(loops.begin(), loops.end(), outer) + 1);
  check(!loops.empty(), "deal_out: a copy has loops");
  const auto is_one = [&](const LoopRef& loop) { return extent_of(schedule, loop) == 1; };
  auto at = std::find_if_not(loops.rbegin(), loops.rend(), is_one);
  if (at == loops.rend()) at = loops.rbegin();
  const LoopRef last = *at;
  loops.erase(std::next(at).base());
  LoopRef longest;
  for (const LoopRef& loop : loops)
    if (!longest.var.is_defined() || extent_of(schedule, loop) > extent_of(schedule, longest)) longest = loop;
  // Threads outermost: between the steps of a loop inside of them nobody waits.
  std::vector<LoopRef> order;
  if (longest.var.is_defined() && extent_of(schedule, longest) > 1 && y > 1) {
    const std::vector<LoopRef> parts =
        schedule.split(longest, {std::nullopt, std::min(y, extent_of(schedule, longest))});
    std::replace(loops.begin(), loops.end(), longest, parts[0]);
    order.push_back(parts[1]);
  }
  const std::vector<LoopRef> parts = schedule.split(last, {std::nullopt, std::min(x, extent_of(schedule, last))});
  order.push_back(parts[1]);
  const size_t threads = order.size();
  order.insert(order.end(), loops.begin(), loops.end());
  order.push_back(parts[0]);
  schedule.reorder(order);
  if (threads == 2) schedule.bind(order[0], ThreadAxis::thread_y);
  schedule.bind(order[threads - 1], ThreadAxis::thread_x);
}

void deal_out_pieces(Schedule& schedule, const BlockRef& copy, const LoopRef& outer,
                     const std::array<int64_t, 3>& threads, bool has_near_rows) {
  const int64_t piece = access_bytes / written_by(schedule, copy)->dtype.bytes();
  std::vector<LoopRef> loops = loops_below(schedule, copy, outer);
  const std::vector<LoopRef> last = schedule.split(loops.back(), {std::nullopt, piece});
  schedule.vectorize(last[1]);
  loops.back() = last[0];
  if (has_near_rows && loops.size() > 1) {
    std::swap(loops[loops.size() - 2], loops.back());
    schedule.reorder(loops);
  }
  const LoopRef pieces = loops.size() > 1 ? schedule.fuse(loops) : loops[0];
  const std::vector<LoopRef> shared = schedule.split(pieces, {std::nullopt, threads[0], threads[1], threads[2]});
  schedule.reorder({shared[1], shared[2], shared[3], shared[0]});
  schedule.bind(shared[1], ThreadAxis::thread_z);
  schedule.bind(shared[2], ThreadAxis::thread_y);
  schedule.bind(shared[3], ThreadAxis::thread_x);
  schedule.unroll(shared[0]);
}

namespace {

// Where results lie in blocks of channels, out[n, c // 8, h, w, c % 8], the loop over c becomes two, the second of
// which is the innermost of the loops `spatial`: these are in the order of memory then, and so are constants.
void follow_layout(Schedule& schedule, const BlockRef& block, std::vector<LoopRef>& spatial) {
  const auto epilogue = find_epilogue(schedule, block);
  const BlockAnalysis own = analyse(schedule.node(block)), last = analyse(schedule.node(epilogue ? *epilogue : block));
  const auto* within = last.write.indices.empty() ? nullptr : last.write.indices.back().as<Binary>();
  if (!within || within->op != BinaryOp::floor_mod || within->a.kind() != NodeKind::Var) return;
  const auto lanes = as_int(within->b);
  const Var var = own.spatial().at(position_of(last, Var::of(within->a)));
  const auto loop = std::find(spatial.begin(), spatial.end(), loop_of(schedule, block, var));
  if (!lanes || loop == spatial.end() || extent_of(schedule, *loop) % *lanes != 0) return;
  for (const Access& read : own.reads)
    if (const auto d = dimension_of(read, var);
        d && read.buffer->is_constant && readers_of(schedule, read.buffer).size() == 1)
      put_dimension_last(schedule, read.buffer, *d);
  const std::vector<LoopRef> parts = schedule.split(*loop, {std::nullopt, *lanes});
  *loop = parts[0];
  spatial.push_back(parts[1]);
  schedule.reorder(spatial);
}

// Elements along the innermost of the loops over results that a thread takes at once: those of one access to memory
// where everything runs along it or stands still, and threads are left for the whole device.
int64_t elements_at_once(const Schedule& schedule, const BlockRef& block, const std::vector<LoopRef>& loops,
                         const Target& target) {
  const LoopRef& inner = loops.back();
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const bool is_direct = analysis.block_class == BlockClass::injective;  // other results wait in registers
  if (is_open(schedule, inner)) return 1;
  if (is_direct && loop_stride(schedule, block, analysis.write, inner) != 1) return 1;
  int64_t bytes = is_direct ? analysis.write.buffer->dtype.bytes() : 1;
  for (const Access& read : analysis.reads) {
    const auto stride = loop_stride(schedule, block, read, inner);
    if (!stride || *stride < 0 || *stride > 1) return 1;
    if (*stride == 1) bytes = std::max<int64_t>(bytes, read.buffer->dtype.bytes());
  }
  const int64_t total = count_iterations(schedule, loops);
  int64_t elements = access_bytes / bytes;
  while (elements > 1 &&
         (extent_of(schedule, inner) % elements != 0 || total / elements < int64_t{target.threads} * threads_a_block))
    elements /= 2;
  return std::max<int64_t>(elements, 1);
}

// The loops within `outer` ones, which are a grid, as threads of a block; where there are none, as a grid of these.
void bind_elements(Schedule& schedule, const std::vector<LoopRef>& loops, const std::vector<LoopRef>& outer) {
  const FlatBinding bound = bind_flat(schedule, loops, threads_a_block);
  if (outer.empty()) schedule.bind(bound.blocks, ThreadAxis::block_x);
  schedule.bind(bound.threads, ThreadAxis::thread_x);
}

// Loops within those that the block shares with others, the latter first.
struct SharedLoops {
  std::vector<BlockRef> blocks;  // that share them
  std::vector<LoopRef> shared;
};
SharedLoops find_shared_loops(const Schedule& schedule, const BlockRef& block) {
  SharedLoops result = {{block}, {}};
  const std::vector<LoopRef> loops = schedule.loops(block);
  size_t shared = loops.size();
  for (const BlockRef& other : schedule.blocks()) {
    const std::vector<LoopRef> others = schedule.loops(other);
    const auto common = std::mismatch(loops.begin(), loops.end(), others.begin(), others.end()).first - loops.begin();
    if (other == block || common == 0) continue;
    result.blocks.push_back(other);
    shared = std::min(shared, static_cast<size_t>(common));
  }
  if (result.blocks.size() > 1) result.shared.assign(loops.begin(), loops.begin() + static_cast<long>(shared));
  return result;
}

// Several elements a thread, of one access to memory; false where that does not pay, or threads cannot be shown to be
// independent once loops are one.  `loops`: the block's within the `outer` ones.
bool schedule_in_vectors(Schedule& schedule, const BlockRef& block, std::vector<LoopRef> loops,
                         const std::vector<LoopRef>& outer, const Target& target) {
  Schedule wide = schedule;
  try {
    follow_layout(wide, block, loops);
    merge_loops(wide, block, loops);
    std::vector<LoopRef> all = outer;
    all.insert(all.end(), loops.begin(), loops.end());
    const int64_t elements = elements_at_once(wide, block, all, target);
    if (elements == 1) return false;
    const std::vector<LoopRef> parts = wide.split(loops.back(), {std::nullopt, elements});
    wide.vectorize(parts[1]);
    loops.back() = parts[0];
    bind_elements(wide, loops, outer);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::schedule) throw;
    return false;
  }
  schedule = std::move(wide);
  return true;
}

}  // namespace

// Blocks that share loops are one kernel, whose grid these are.
void schedule_elementwise(Schedule& schedule, const BlockRef& block, const Target& target) {
  const auto [together, shared] = find_shared_loops(schedule, block);
  for (const BlockRef& each : together) {
    std::vector<LoopRef> loops = schedule.loops(each);
    loops.erase(loops.begin(), loops.begin() + static_cast<long>(shared.size()));
    if (loops.empty() || schedule_in_vectors(schedule, each, loops, shared, target)) continue;
    follow_layout(schedule, each, loops);
    bind_elements(schedule, loops, shared);
  }
  if (!shared.empty()) schedule.bind(shared.size() > 1 ? schedule.fuse(shared) : shared[0], ThreadAxis::block_x);
}

void schedule_reduction(Schedule& schedule, const BlockRef& block, const Target& target) {
  auto [spatial, reduced] = put_spatial_first(schedule, block);
  if (spatial.empty()) return;  // one value: one thread
  const size_t dimensions = spatial.size();
  follow_layout(schedule, block, spatial);
  // Of a block of channels a thread takes as many as it reads at once.
  std::optional<LoopRef> lanes;
  if (const int64_t elements = spatial.size() > dimensions ? elements_at_once(schedule, block, spatial, target) : 1;
      elements > 1) {
    const std::vector<LoopRef> parts = schedule.split(spatial.back(), {std::nullopt, elements});
    spatial.back() = parts[0];
    lanes = parts[1];
    std::vector<LoopRef> order = reduced;
    order.push_back(*lanes);
    schedule.reorder(order);
  }
  const FlatBinding bound = bind_flat(schedule, spatial, threads_a_block / 2);
  // The running value stays in a register, and memory is written once.
  const BlockRef out = keep_in_thread(schedule, block, bound.threads);
  if (lanes) {
    const BlockRef init = schedule.decompose_reduction(block, reduced.front());
    schedule.vectorize(*lanes);
    for (const BlockRef& other : {init, out}) {  // each of which has one loop of more than a step
      const std::vector<LoopRef> own = loops_below(schedule, other, bound.threads);
      schedule.vectorize(
          *std::find_if(own.begin(), own.end(), [&](const LoopRef& loop) { return extent_of(schedule, loop) > 1; }));
    }
  }
  schedule.bind(bound.blocks, ThreadAxis::block_x);
  schedule.bind(bound.threads, ThreadAxis::thread_x);
}

bool schedule_transpose(Schedule& schedule, const BlockRef& block, const Target&) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const std::vector<Var> spatial = analysis.spatial();
  if (analysis.block_class != BlockClass::injective || spatial.size() < 2 || !is_plain_nest(schedule, block))
    return false;
  const Var& along_write = spatial.back();
  if (analysis.extent(along_write) < square || unit_stride(analysis.write, along_write, analysis.iters, 1) != 1)
    return false;
  // An input that runs along another iteration than the output does.
  for (const Access& read : analysis.reads) {
    if (unit_stride(read, along_write, analysis.iters, 1).value_or(1) <= 1) continue;
    for (size_t i = 0; i + 1 < spatial.size(); ++i) {
      if (analysis.extent(spatial[i]) < square || unit_stride(read, spatial[i], analysis.iters, 1) != 1) continue;
      const std::string input = read.buffer->name;
      std::vector<LoopRef> loops = schedule.loops(block);
      const LoopRef turned = loops[i], last = loops.back();
      loops.erase(loops.begin() + static_cast<long>(i));
      loops.pop_back();
      const std::vector<LoopRef> a = schedule.split(turned, {std::nullopt, square});
      const std::vector<LoopRef> b = schedule.split(last, {std::nullopt, square});
      std::vector<LoopRef> blocks = loops;
      blocks.insert(blocks.end(), {a[0], b[0]});
      std::vector<LoopRef> order = blocks;
      order.insert(order.end(), {a[1], b[1]});
      schedule.reorder(order);
      const LoopRef tile = schedule.fuse(blocks);
      const BlockRef copy = schedule.cache_read(block, input, Scope::shared);
      schedule.compute_at(copy, tile);
      schedule.bind(tile, ThreadAxis::block_x);
      const std::vector<LoopRef> rows = schedule.split(a[1], {std::nullopt, rows_at_once});
      schedule.bind(rows[1], ThreadAxis::thread_y);
      schedule.bind(b[1], ThreadAxis::thread_x);
      deal_out(schedule, copy, tile, rows_at_once, square);
      return true;
    }
  }
  return false;
}

namespace {

bool is_padding(const Schedule& schedule, const BlockRef& block) {
  for (const BlockRef& reader : schedule.blocks())
    if (is_sum(analyse(schedule.node(reader))) && find_padding(schedule, reader) == block) return true;
  return false;
}

// By the template of another block, or gone into it.
bool is_scheduled(const Schedule& schedule, const BlockRef& block) {
  if (!has_block(schedule, block)) return true;
  const std::vector<LoopRef> loops = schedule.loops(block);
  return std::any_of(loops.begin(), loops.end(),
                     [&](const LoopRef& loop) { return schedule.node(loop).loop_kind == LoopKind::thread; });
}

void schedule_blocks(Schedule& schedule, const Target& target) {
  if (apply_template(schedule, [&](Schedule& attempt) { return schedule_attention(attempt, target); })) return;
  inline_injective_blocks(schedule);
  const auto in_registers = [&](Schedule& attempt) { return schedule_rows_in_registers(attempt, target); };
  if (apply_template(schedule, in_registers) || apply_template(schedule, schedule_rows)) return;
  for (const BlockRef& block : schedule.blocks()) {
    if (is_scheduled(schedule, block)) continue;
    const auto applies = [&](bool (*schedule_block)(Schedule&, const BlockRef&, const Target&)) {
      return apply_template(schedule, [&](Schedule& attempt) { return schedule_block(attempt, block, target); });
    };
    switch (analyse(schedule.node(block)).block_class) {
      case BlockClass::contraction:
        if (applies(schedule_on_tensor_cores) || applies(schedule_contraction)) break;
        [[fallthrough]];
      case BlockClass::reduction:
        if (const auto padding = find_padding(schedule, block)) schedule.compute_inline(*padding);
        if (!applies(schedule_row_reduction) && !applies(schedule_columns)) schedule_reduction(schedule, block, target);
        break;
      case BlockClass::injective:
        if (is_padding(schedule, block)) break;  // becomes part of its reader
        if (!applies(schedule_transpose)) schedule_elementwise(schedule, block, target);
        break;
      case BlockClass::unknown:
        break;  // runs as written, in one thread
    }
  }
}

}  // namespace

Schedule default_schedule(const Func& func, const Target& target) {
  return decided_schedule(func, target, {});
}

Schedule decided_schedule(const Func& func, const Target& target, const Decisions& decisions) {
  Schedule schedule(func, decisions);
  schedule_blocks(schedule, target);
  begin_outside(schedule);
  schedule.require_all_asked();
  return schedule;
}

}  // namespace tw::cuda
