#include "targets/analysis/block_relations.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"

namespace tw::analysis {
namespace {

int count_loads(const Block& block, const Buffer& buffer) {
  int loads = 0;
  visit(block.body, [&](const Load& l) { loads += l.buffer == buffer; });
  return loads;
}

bool reads_with_guard(const Block& block) {
  bool found = false;
  visit(block.body, [&](const Load& l) { found |= l.predicate.is_defined(); }, [&](const Select&) { found = true; });
  return found;
}

bool is_worth_inlining(const Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis producer = analyse(schedule.node(block));
  if (producer.block_class != BlockClass::injective || !has_identity_write(producer)) return false;
  if (schedule.func().is_output(producer.write.buffer)) return false;
  const auto consumers = readers_of(schedule, producer.write.buffer);
  if (consumers.empty()) return false;
  for (const BlockRef& consumer : consumers) {
    const BlockAnalysis analysis = analyse(schedule.node(consumer));
    if (analysis.block_class == BlockClass::unknown) return false;
    if (analysis.block_class == BlockClass::injective) {
      const bool is_repeated = consumers.size() > 1 || count_loads(schedule.node(consumer), producer.write.buffer) > 1;
      if (producer.is_expensive && is_repeated) return false;
      continue;
    }
    // Into a reduction it is computed once for each use: only what costs next to nothing, and never what a register
    // tile would read through a guard.
    if (producer.is_expensive || reads_with_guard(schedule.node(block))) return false;
    if (analysis.block_class == BlockClass::contraction) {
      const Stmt& body = schedule.node(block).body;
      if (!body.as<Store>() || !body.as<Store>()->value.as<Load>()) return false;  // more than a change of indices
    }
  }
  return true;
}

// Σ x · x.
bool is_square(const BlockAnalysis& block) {
  if (block.block_class != BlockClass::contraction) return false;
  const Access &a = block.reads[0], &b = block.reads[1];
  const auto is_same = [](const Expr& x, const Expr& y) { return structural_equal(x, y); };
  return a.buffer == b.buffer && std::ranges::equal(a.indices, b.indices, is_same);
}

// How many leading axes all blocks share: written by each in the same order, and read from the group's own buffers at
// the same place.
size_t count_shared_axes(const std::vector<BlockAnalysis>& blocks) {
  const BlockAnalysis& last = blocks.back();
  size_t shared = last.write.indices.size();
  const auto is_own = [&](const Buffer& buffer) {
    return std::any_of(blocks.begin(), blocks.end(), [&](const BlockAnalysis& b) { return b.write.buffer == buffer; });
  };
  const auto restrict_to = [&](const BlockAnalysis& block, const Access& access) {
    const std::vector<Var> spatial = block.spatial();
    size_t d = 0;
    while (d < shared && d < access.indices.size() && d < spatial.size() &&
           access.indices[d].get() == spatial[d].get() &&
           is_known_equal(block.iter(spatial[d]).extent, last.iter(last.spatial()[d]).extent)) {
      ++d;
    }
    shared = d;
  };
  for (const BlockAnalysis& block : blocks) {
    restrict_to(block, block.write);
    for (const Access& read : block.reads)
      if (is_own(read.buffer)) restrict_to(block, read);
  }
  return shared;
}

bool reads(const BlockAnalysis& block, const Buffer& buffer) {
  return std::any_of(block.reads.begin(), block.reads.end(), [&](const Access& r) { return r.buffer == buffer; });
}

// At the place of each iteration of the block itself.
bool is_at(const Access& access, const std::vector<Var>& spatial) {
  return std::equal(access.indices.begin(), access.indices.end(), spatial.begin(), spatial.end(),
                    [](const Expr& index, const Var& v) { return index.get() == v.get(); });
}

// Which dimensions of what is read are parts (Epilogue), where the others are read at the block's own iterations.
std::optional<std::vector<bool>> parts_of(const Access& read, const std::vector<Var>& spatial,
                                          const std::vector<Expr>& extents) {
  const std::vector<Expr>& shape = read.buffer->shape;
  std::vector<bool> is_part(shape.size());
  size_t own = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool is_single = is_const_int(shape[d], 1) && is_const_int(read.indices[d], 0);
    is_part[d] = !is_single && as_int(read.indices[d]).has_value();
    if (is_part[d]) continue;
    if (own == spatial.size() || (read.indices[d].get() != spatial[own].get() && !is_single)) return std::nullopt;
    const bool is_filled_up = !as_int(shape[d]) && can_prove(extents[own] <= shape[d]);
    if (!is_filled_up && !is_known_equal(extents[own], shape[d])) return std::nullopt;
    ++own;
  }
  return own == spatial.size() ? std::optional(is_part) : std::nullopt;
}

}  // namespace

std::vector<BlockRef> readers_of(const Schedule& schedule, const Buffer& buffer) {
  std::vector<BlockRef> result;
  for (const BlockRef& block : schedule.blocks()) {
    if (reads(analyse(schedule.node(block)), buffer)) result.push_back(block);
  }
  return result;
}

std::optional<size_t> Epilogue::axis(size_t axis) const {
  if (is_part[axis]) return std::nullopt;
  return axis - static_cast<size_t>(std::count(is_part.begin(), is_part.begin() + static_cast<ptrdiff_t>(axis), true));
}

Epilogue find_epilogues(const Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis producer = analyse(schedule.node(block));
  const Buffer& buffer = producer.write.buffer;
  if (schedule.func().is_parameter(buffer) || !has_identity_write(producer)) return {};
  Epilogue epilogue;
  std::vector<Buffer> made;  // that leave the Func
  std::vector<Expr> extents;
  bool is_in_order = true;
  for (const BlockRef& reader : schedule.blocks()) {
    const BlockAnalysis consumer = analyse(schedule.node(reader));
    const bool is_reader = reads(consumer, buffer);
    const auto reads_it = [&](const Buffer& b) { return reads(consumer, b); };
    if (reader == block || (!is_reader && std::none_of(made.begin(), made.end(), reads_it))) continue;
    const std::vector<Var> spatial = consumer.spatial();
    if (epilogue.blocks.empty())
      for (const Var& v : spatial) extents.push_back(consumer.iter(v).extent);
    const auto is_one = [&] {
      if (consumer.block_class != BlockClass::injective || spatial.size() != extents.size()) return false;
      for (size_t i = 0; i < spatial.size(); ++i)
        if (!is_known_equal(consumer.iter(spatial[i]).extent, extents[i])) return false;
      for (const Access& read : consumer.reads) {
        if (std::find(made.begin(), made.end(), read.buffer) != made.end() && !is_at(read, spatial)) return false;
        if (read.buffer != buffer) continue;
        const auto parts = parts_of(read, spatial, extents);
        if (!parts || (!epilogue.is_part.empty() && *parts != epilogue.is_part)) return false;
        epilogue.is_part = *parts;
      }
      return true;
    };
    if (!is_one()) {
      if (is_reader) return {};
      continue;
    }
    is_in_order = is_in_order && has_identity_write(consumer);
    if (schedule.func().is_parameter(consumer.write.buffer)) made.push_back(consumer.write.buffer);
    epilogue.blocks.push_back(reader);
  }
  return is_in_order || epilogue.blocks.size() == 1 ? epilogue : Epilogue();
}

std::optional<BlockRef> find_epilogue(const Schedule& schedule, const BlockRef& block) {
  const Epilogue epilogue = find_epilogues(schedule, block);
  const bool has_parts = std::find(epilogue.is_part.begin(), epilogue.is_part.end(), true) != epilogue.is_part.end();
  return epilogue.blocks.size() == 1 && !has_parts ? std::optional(epilogue.blocks[0]) : std::nullopt;
}

std::optional<int64_t> result_stride(const Schedule& schedule, const BlockRef& block, const Var& axis, int granule) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const Epilogue epilogue = find_epilogues(schedule, block);
  if (epilogue.blocks.empty()) return unit_stride(analysis.write, axis, analysis.iters, granule);
  const auto own = epilogue.axis(position_of(analysis, axis));
  if (!own) return std::nullopt;
  const BlockAnalysis last = analyse(schedule.node(epilogue.blocks.back()));
  return unit_stride(last.write, last.spatial().at(*own), last.iters, granule);
}

std::optional<EqualParts> find_equal_parts(const Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis producer = analyse(schedule.node(block));
  const Buffer& buffer = producer.write.buffer;
  if (schedule.func().is_parameter(buffer) || !has_identity_write(producer)) return std::nullopt;
  std::optional<EqualParts> parts;
  for (const BlockRef& reader : readers_of(schedule, buffer)) {
    const BlockAnalysis consumer = analyse(schedule.node(reader));
    const std::vector<Var> spatial = consumer.spatial();
    if (spatial.size() != producer.spatial().size()) return std::nullopt;
    for (const Access& read : consumer.reads) {
      if (read.buffer != buffer) continue;
      for (size_t d = 0; d < spatial.size(); ++d) {
        const auto extent = as_int(consumer.iter(spatial[d]).extent), whole = as_int(buffer->shape[d]);
        const auto shift = as_int(simplify(read.indices[d] - spatial[d]));
        if (shift == 0 && is_known_equal(consumer.iter(spatial[d]).extent, buffer->shape[d])) continue;
        const bool is_part = shift && extent && whole && *whole % *extent == 0 && *shift % *extent == 0;
        if (!is_part || (parts && (parts->axis != d || parts->extent != *extent))) return std::nullopt;
        parts = EqualParts{d, *extent};
      }
    }
  }
  return parts;
}

void separate_parts(Schedule& schedule, const BlockRef& block, const EqualParts& parts) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const Var axis = analysis.spatial().at(parts.axis);
  const auto& iters = analysis.iters;
  const auto at = std::find_if(iters.begin(), iters.end(), [&](const IterVar& iter) { return iter.var == axis; });
  schedule.split(loops_of(schedule, block, axis).at(0), {std::nullopt, parts.extent});
  schedule.split_iteration(block, static_cast<int>(at - iters.begin()), parts.extent);
  const auto separate = [&](const Buffer& buffer, size_t dimension) {
    IndexMap map;
    for (size_t d = 0; d < buffer->shape.size(); ++d) {
      const Var from("d" + std::to_string(d));
      map.from.push_back(from);
      if (d == dimension) map.to.push_back(floor_div(from, parts.extent));
      map.to.push_back(d == dimension ? floor_mod(from, parts.extent) : Expr(from));
    }
    schedule.transform_layout(buffer->name, map);
  };
  separate(analysis.write.buffer, parts.axis);
  for (const Access& read : analysis.reads) {
    for (size_t d = 0; d < read.indices.size(); ++d)
      if (read.indices[d].get() == axis.get()) separate(read.buffer, d);
  }
}

std::optional<BlockRef> find_padding(const Schedule& schedule, const BlockRef& block) {
  for (const Access& read : analyse(schedule.node(block)).reads) {
    if (schedule.func().is_parameter(read.buffer)) continue;
    const auto writer = writer_of(schedule, read.buffer);
    if (!writer || readers_of(schedule, read.buffer).size() != 1) continue;
    const BlockAnalysis copy = analyse(schedule.node(*writer));
    if (copy.block_class == BlockClass::injective && copy.reads.size() == 1 && !copy.is_expensive &&
        schedule.func().is_parameter(copy.reads[0].buffer)) {
      return writer;
    }
  }
  return std::nullopt;
}

std::optional<RowStages> find_row_stages(const Schedule& schedule, Squares squares) {
  std::vector<BlockAnalysis> blocks;
  bool has_reduction = false;
  for (const BlockRef& block : schedule.blocks()) {
    blocks.push_back(analyse(schedule.node(block)));
    if (squares == Squares::are_sums && is_square(blocks.back())) blocks.back().block_class = BlockClass::reduction;
    if (blocks.back().block_class == BlockClass::unknown || blocks.back().block_class == BlockClass::contraction)
      return std::nullopt;
    has_reduction |= blocks.back().block_class == BlockClass::reduction;
  }
  if (blocks.size() < 2 || !has_reduction || blocks.back().block_class != BlockClass::injective) return std::nullopt;
  for (size_t b = 0; b + 1 < blocks.size(); ++b)
    if (schedule.func().is_parameter(blocks[b].write.buffer)) return std::nullopt;
  const size_t shared = count_shared_axes(blocks);
  if (shared == 0) return std::nullopt;
  return RowStages{std::move(blocks), shared};
}

void inline_injective_blocks(Schedule& schedule, const std::vector<BlockRef>& kept) {
  for (const BlockRef& block : schedule.blocks()) {
    if (std::find(kept.begin(), kept.end(), block) != kept.end()) continue;
    if (!is_worth_inlining(schedule, block)) continue;
    try {
      schedule.compute_inline(block);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::schedule) throw;  // it cannot be: the block stays
    }
  }
}

}  // namespace tw::analysis
