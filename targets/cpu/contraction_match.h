// A block that is C[…, i, j] += A[…, i, k] * B[…, k, j], with its axes by what they do.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "targets/cpu/block_analysis.h"

namespace tw::cpu {

struct Contraction {
  BlockAnalysis analysis;
  Var vector_axis;         // contiguous in C, in B only
  int a = -1, b = -1;      // indices of reads: the broadcast operand and the vector operand
  std::vector<Var> batch;  // in both operands
  std::vector<Var> rows;   // in A only
  std::vector<Var> reduce;
};

// `accepts` sees the vector axis and which operand is which; the innermost axis that it takes is the one.
std::optional<Contraction> match_contraction(
    const Schedule& schedule, const BlockRef& block, int lanes,
    const std::function<bool(const Contraction&)>& accepts = [](const Contraction&) { return true; });

// A product of words: g elements side by side along k.
struct Words {
  Var axis;             // the axis of k whose neighbours make A's words
  int64_t granule = 0;  // within groups of so many elements: all of the axis, or blocks of a layout
};
// The axis of k along which A has words of g elements; nothing when it has none, or when B is without that axis.
std::optional<Words> find_words(const Contraction& c, int64_t g, int lanes);

// How B's indices map to its iterations: the dimension of B that is the iteration itself, -1 when none is.
int dimension_of(const Access& access, const Var& iteration);
// Each index of the access is one iteration variable, each at most once.
bool has_plain_indices(const Access& access);

}  // namespace tw::cpu
