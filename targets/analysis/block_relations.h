// Which blocks of a Func belong together, whatever is made of them.
#pragma once

#include <optional>
#include <vector>

#include "targets/analysis/block_analysis.h"

namespace tw::analysis {

std::vector<BlockRef> readers_of(const Schedule& schedule, const Buffer& buffer);

// The only block that reads what `block` writes, if it does nothing else with it than out[i] = f(in[i], …): it can run
// on a tile while that is in registers.
std::optional<BlockRef> find_epilogue(const Schedule& schedule, const BlockRef& block);
// Elements of memory between neighbours along a spatial axis of `block`, where its results end up: of its epilogue,
// when it has one, since the tile itself is in registers.
std::optional<int64_t> result_stride(const Schedule& schedule, const BlockRef& block, const Var& axis, int granule);
// The cheap copy, read by this block alone, that its input goes through: zeros around it, in blocks of channels.
std::optional<BlockRef> find_padding(const Schedule& schedule, const BlockRef& block);

// All blocks of a Func, when they are stages over the same rows and only the last leaves it; `shared`: leading axes of
// all of them, which number the rows.
struct RowStages {
  std::vector<BlockAnalysis> blocks;
  size_t shared;
};
std::optional<RowStages> find_row_stages(const Schedule& schedule);

// Folds cheap injective blocks into their consumers, but those in `kept`.
void inline_injective_blocks(Schedule& schedule, const std::vector<BlockRef>& kept = {});

}  // namespace tw::analysis
