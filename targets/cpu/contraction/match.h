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
  int stored_lanes(int lanes) const;  // of vectors of results: those of a group never cross a block of its layout
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
// Vectors of `lanes` neighbours, or of those that groups leave, are contiguous where the results end up.
std::optional<Contraction> match_contraction(
    const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis, int lanes,
    const std::function<bool(const Contraction&)>& accepts = [](const Contraction& c) { return !c.is_grouped(); });

// The same with vectors across the axis along which C is contiguous, of weights B: what the product of blocks of
// channels, or of rows of pixels, gives to a result that is stored channel by channel.
std::optional<Contraction> match_across(
    const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
    const std::function<bool(const Contraction&)>& accepts = [](const Contraction& c) { return !c.is_grouped(); });

// Neighbours along the axis for which the operand is the same: the largest divisor of its extent that gives such
// groups; 1 when there are none, the extent when the operand is without the axis.
int64_t group_along(const Access& operand, const Var& axis, const BlockAnalysis& analysis);

// An axis of k as several loops, of which all but the outermost take so many elements each, outermost first: blocks of
// a layout, so that addresses advance by constants, and an atom's own steps.
struct SplitAxis {
  Var axis;
  std::vector<int64_t> sizes;
};

// The axis of k along which A has words of g elements; nothing when it has none, or when B is without that axis.
struct Words {
  Var axis;
  int64_t granule = 0;  // within groups of so many elements: all of the axis, or blocks of a layout
  bool is_blocked = false;

  SplitAxis split(const std::vector<int64_t>& steps) const;  // `steps`: extents of an atom's loops
};
std::optional<Words> find_words(const Contraction& c, int64_t g, int lanes);
// The axes of k that A stores in blocks of `lanes`.
std::vector<SplitAxis> find_blocked(const Contraction& c, int lanes);

// Bytes from one row of A to the next along the innermost axis of rows; 0: there is none, or they differ.
int64_t row_stride(const Contraction& c);

// The axis of rows next to the innermost, of more than one element: image rows of a convolution.  None where their
// number or length is known only when the kernel runs.
std::optional<Var> axis_around_rows(const Contraction& c);

// How B's indices map to its iterations: the dimension of B that is the iteration itself, -1 when none is.
int dimension_of(const Access& access, const Var& iteration);
// Each index of the access is one iteration variable, each at most once, or that of a dimension of one element.
bool has_plain_indices(const Access& access);

}  // namespace tw::cpu
