// Which blocks of a Func belong together, whatever is made of them.
#pragma once

#include <optional>
#include <vector>

#include "targets/analysis/block_analysis.h"

namespace tw::analysis {

std::vector<BlockRef> readers_of(const Schedule& schedule, const Buffer& buffer);

// The blocks that read what `block` writes, in order, if they do nothing else with it than out[i] = f(in[i], …): they
// can run on a tile while that is in registers.  Later ones may read results of earlier ones at the same place, or
// these alone.  Where in has more dimensions than out, each out[i] takes all of these, at places that are known: they
// are its *parts*.  Of an open extent, out may have fewer elements: what fills up the last tile is left out.
struct Epilogue {
  std::vector<BlockRef> blocks;  // none: there is no such block, or others read the result, too
  std::vector<bool> is_part;     // by dimension of what `block` writes

  // The epilogue's spatial axis that is number `axis` of `block`; nothing of a part.
  std::optional<size_t> axis(size_t axis) const;
};
Epilogue find_epilogues(const Schedule& schedule, const BlockRef& block);
// …where there is one, without parts.
std::optional<BlockRef> find_epilogue(const Schedule& schedule, const BlockRef& block);
// Elements of memory between neighbours along a spatial axis of `block`, where its results end up: of its epilogue,
// when it has one, since the tile itself is in registers.
std::optional<int64_t> result_stride(const Schedule& schedule, const BlockRef& block, const Var& axis, int granule);

// What `block` writes has several equal parts along `axis`, and each element of what is made of it takes one of each,
// at the same place: out[i, j] = f(in[i, j], in[i, j + extent], …).
struct EqualParts {
  size_t axis = 0;     // number of a spatial axis
  int64_t extent = 0;  // of a part
};
std::optional<EqualParts> find_equal_parts(const Schedule& schedule, const BlockRef& block);
// The parts as a dimension of their own, before that axis: the block then has an Epilogue with parts.
void separate_parts(Schedule& schedule, const BlockRef& block, const EqualParts& parts);
// The cheap copy, read by this block alone, that its input goes through: zeros around it, in blocks of channels.
std::optional<BlockRef> find_padding(const Schedule& schedule, const BlockRef& block);

// All blocks of a Func, when they are stages over the same rows and only the last leaves it; `shared`: leading axes of
// all of them, which number the rows.
struct RowStages {
  std::vector<BlockAnalysis> blocks;
  size_t shared;
};
enum class Squares { are_products, are_sums };  // what a sum of x · x counts as: no stage, or one like others
std::optional<RowStages> find_row_stages(const Schedule& schedule, Squares squares = Squares::are_products);

// Folds cheap injective blocks into their consumers, but those in `kept`.
void inline_injective_blocks(Schedule& schedule, const std::vector<BlockRef>& kept = {});

}  // namespace tw::analysis
