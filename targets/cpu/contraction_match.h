// A block that is C[…, i, j] += A[…, i, k] * B[…, k, j], with its axes by what they do.  Of grouped convolutions it is
// C[…, i, j] += A[…, j // g, i, k] * B[…, k, j]: results of one group share A's elements.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "targets/analysis/block_analysis.h"

namespace tw::cpu {

using namespace analysis;

struct Contraction {
  BlockAnalysis analysis;
  Var vector_axis;         // contiguous in C, in B, and in A at most as the number of its group
  int64_t group = 0;       // neighbours along the vector axis that share A's elements: all of them, or those of a group
  int a = -1, b = -1;      // indices of reads: the broadcast operand and the vector operand
  std::vector<Var> batch;  // in both operands
  Var parts;               // not in A: the epilogue takes all of them (Epilogue); not defined: there are none
  std::vector<Var> rows;   // in A only
  std::vector<Var> reduce;
  bool is_across = false;  // C is contiguous along the last of the rows instead: tiles are transposed on their way out

  bool is_grouped() const { return group != analysis.extent(vector_axis); }
  bool has_rows() const { return !rows.empty(); }
  int64_t m() const { return has_rows() ? analysis.extent(rows.back()) : 1; }  // rows that make tiles: the innermost
  int64_t n_parts() const { return parts.is_defined() ? analysis.extent(parts) : 1; }
  int64_t k_count() const { return count_iterations(analysis, reduce); }
  const Access& read_a() const { return analysis.reads[static_cast<size_t>(a)]; }
  const Access& read_b() const { return analysis.reads[static_cast<size_t>(b)]; }
};

// With vectors along this axis, if one operand only has it.
std::optional<Contraction> contraction_along(const BlockAnalysis& analysis, const Var& axis);

// `accepts` sees the vector axis, its groups and which operand is which; the innermost axis that it takes is the one.
std::optional<Contraction> match_contraction(
    const Schedule& schedule, const BlockRef& block, int lanes,
    const std::function<bool(const Contraction&)>& accepts = [](const Contraction& c) { return !c.is_grouped(); });

// The same with vectors across the axis along which C is contiguous, of weights B: what the product of blocks of
// channels, or of rows of pixels, gives to a result that is stored channel by channel.
std::optional<Contraction> match_across(
    const Schedule& schedule, const BlockRef& block,
    const std::function<bool(const Contraction&)>& accepts = [](const Contraction& c) { return !c.is_grouped(); });

// Neighbours along the axis for which the operand is the same: the largest divisor of its extent that gives such
// groups; 1 when there are none, the extent when the operand is without the axis.
int64_t group_along(const Access& operand, const Var& axis, const BlockAnalysis& analysis);

// A product of words: g elements side by side along k.
struct Words {
  Var axis;             // the axis of k whose neighbours make A's words
  int64_t granule = 0;  // within groups of so many elements: all of the axis, or blocks of a layout
  bool is_blocked = false;

  // Elements that the loops take which the axis is split into, but the outermost: a block, if there are several, then
  // the `steps` within it, the last of which is a word.
  std::vector<int64_t> sizes(std::vector<int64_t> steps) const;
};
// The axis of k along which A has words of g elements; nothing when it has none, or when B is without that axis.
std::optional<Words> find_words(const Contraction& c, int64_t g, int lanes);

// Bytes from one row of A to the next along the innermost axis of rows; 0: there is none, or they differ.
int64_t row_stride(const Contraction& c);

// How B's indices map to its iterations: the dimension of B that is the iteration itself, -1 when none is.
int dimension_of(const Access& access, const Var& iteration);
// Each index of the access is one iteration variable, each at most once, or that of a dimension of one element.
bool has_plain_indices(const Access& access);

}  // namespace tw::cpu
