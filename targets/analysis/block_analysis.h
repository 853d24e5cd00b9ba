// What a block does, as a schedule needs to know it: its iterations, and how each access moves through memory with each
// of them.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "schedule/schedule.h"
#include "targets/target.h"

namespace tw::analysis {

struct Access {
  Buffer buffer;
  std::vector<Expr> indices;  // of the block's iteration variables

  bool uses(const Var& iteration) const;
};

// Elements that the access moves when `iteration` grows by one, within an aligned group of `granule` values of it
// (layouts blocked by `granule` are linear inside a group).  Nothing: it does not move linearly.
std::optional<int64_t> unit_stride(const Access& access, const Var& iteration, const std::vector<IterVar>& iters,
                                   int granule);

// Stands for an extent that is known when the kernel runs: large, and a prime, so that nothing seems to divide it.
inline constexpr int64_t open_extent = 1021;

enum class BlockClass { injective, contraction, reduction, unknown };

struct BlockAnalysis {
  std::string name;
  BlockClass block_class = BlockClass::unknown;
  std::vector<IterVar> iters;
  std::vector<Access> reads;  // without the accumulator's own
  Access write;
  // What converts the factors of a sum of products, of the first read and the second one: round_tf32, decode_e4m3, …
  std::array<std::optional<Intrinsic>, 2> conversions = {};
  bool is_expensive = false;  // calls of exp, erf …: not to be computed twice

  bool is_of_tf32() const { return conversions[0] == Intrinsic::round_tf32 && conversions[1] == Intrinsic::round_tf32; }
  const IterVar& iter(const Var& var) const;
  std::vector<Var> axes(IterKind kind) const;
  std::vector<Var> spatial() const { return axes(IterKind::spatial); }
  std::vector<Var> reduce() const { return axes(IterKind::reduce); }
  // Extent of an iteration; `open_extent` when symbolic.
  int64_t extent(const Var& var) const;
  // …of a usual run, where that is said: for costs alone.
  int64_t typical_extent(const Var& var) const;
  bool is_open(const Var& var) const { return !as_int(iter(var).extent); }
};

BlockAnalysis analyse(const Block& block);
bool is_sum(const BlockAnalysis& block);  // a contraction or a reduction
Buffer written_by(const Schedule& schedule, const BlockRef& block);
// The block that writes the buffer; none writes a parameter that is no output.
std::optional<BlockRef> writer_of(const Schedule& schedule, const Buffer& buffer);
// Iterations of all these axes together; symbolic ones count as one.
int64_t count_iterations(const BlockAnalysis& analysis, const std::vector<Var>& axes);
int64_t count_iterations(const Schedule& schedule, const std::vector<LoopRef>& loops);
// The same where symbolic extents count as many: for what pays when there are few.
int64_t count_most_iterations(const BlockAnalysis& analysis, const std::vector<Var>& axes);
bool has_block(const Schedule& schedule, const BlockRef& block);
// The axis' number among the spatial ones.
size_t position_of(const BlockAnalysis& analysis, const Var& axis);

// A block writes its whole output, in its own order: out[i, j] = …, so that a consumer may compute it in place.
bool has_identity_write(const BlockAnalysis& analysis);

// The loops around the block whose variables the iteration's binding uses, outermost first.
std::vector<LoopRef> loops_of(const Schedule& schedule, const BlockRef& block, const Var& iteration);
// The loops around the block within one of them.
std::vector<LoopRef> loops_below(const Schedule& schedule, const BlockRef& block, const LoopRef& loop);
// …of the iteration.
std::vector<LoopRef> loops_below(const Schedule& schedule, const BlockRef& block, const LoopRef& loop,
                                 const Var& iteration);
int64_t extent_of(const Schedule& schedule, const LoopRef& loop);  // `open_extent` when symbolic
bool is_open(const Schedule& schedule, const LoopRef& loop);       // its extent is symbolic
// Of the buffer's elements; symbolic extents count as one, as in a batch of one.
int64_t least_bytes(const Buffer& buffer);

}  // namespace tw::analysis
