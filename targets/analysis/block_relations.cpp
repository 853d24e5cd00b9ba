#include "targets/analysis/block_relations.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

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

}  // namespace

std::vector<BlockRef> readers_of(const Schedule& schedule, const Buffer& buffer) {
  std::vector<BlockRef> result;
  for (const BlockRef& block : schedule.blocks()) {
    const BlockAnalysis analysis = analyse(schedule.node(block));
    if (std::any_of(analysis.reads.begin(), analysis.reads.end(),
                    [&](const Access& r) { return r.buffer == buffer; })) {
      result.push_back(block);
    }
  }
  return result;
}

std::optional<BlockRef> find_epilogue(const Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis producer = analyse(schedule.node(block));
  const Buffer& buffer = producer.write.buffer;
  if (schedule.func().is_parameter(buffer)) return std::nullopt;
  const auto consumers = readers_of(schedule, buffer);
  if (consumers.size() != 1) return std::nullopt;
  const BlockAnalysis consumer = analyse(schedule.node(consumers[0]));
  if (consumer.block_class != BlockClass::injective || !has_identity_write(producer)) return std::nullopt;
  const std::vector<Var> spatial = consumer.spatial();
  if (spatial.size() != static_cast<size_t>(buffer.rank())) return std::nullopt;
  for (const Access& read : consumer.reads) {
    if (read.buffer != buffer) continue;
    for (size_t d = 0; d < spatial.size(); ++d) {
      const bool is_single = is_const_int(buffer->shape[d], 1) && is_const_int(read.indices[d], 0);
      if (read.indices[d].get() != spatial[d].get() && !is_single) return std::nullopt;
      if (!is_known_equal(consumer.iter(spatial[d]).extent, buffer->shape[d])) return std::nullopt;
    }
  }
  return consumers[0];
}

std::optional<int64_t> result_stride(const Schedule& schedule, const BlockRef& block, const Var& axis, int granule) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const auto epilogue = find_epilogue(schedule, block);
  if (!epilogue) return unit_stride(analysis.write, axis, analysis.iters, granule);
  const BlockAnalysis last = analyse(schedule.node(*epilogue));
  return unit_stride(last.write, last.spatial().at(position_of(analysis, axis)), last.iters, granule);
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

std::optional<RowStages> find_row_stages(const Schedule& schedule) {
  std::vector<BlockAnalysis> blocks;
  bool has_reduction = false;
  for (const BlockRef& block : schedule.blocks()) {
    blocks.push_back(analyse(schedule.node(block)));
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
