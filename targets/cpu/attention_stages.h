// The stages of relay_ir's operator attention (ops/attention_op.cpp), known by their names, and what its schedules
// share.
#pragma once

#include "targets/cpu/contraction/output.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cpu::attention {

inline const BlockRef query{"attention_query"}, scores{"attention_scores"}, masked{"attention_masked"},
    largest{"attention_max"}, weights{"attention_weights"}, sum{"attention_sum"}, mixed{"attention_mixed"},
    top{"attention_top"}, share{"attention_share"}, total{"attention_total"}, joined{"attention_joined"},
    result{"attention"};

void unroll_all(Schedule& schedule, const std::vector<LoopRef>& loops);

// Of the stages' own axes; `keys`: of a part, where they are cut into parts.
struct Extents {
  int64_t group, queries, keys, size, columns;
};
Extents extents_of(const Schedule& schedule);

// The block that writes the finished scores: the mask's or, where there is none, a copy of sums made in `scope`.
BlockRef finish_scores(Schedule& schedule, Scope scope);

// Of rows × vectors of weights · v, and × vectors of keys of the scores.
struct Tile {
  int rows = 1, columns = 1;
  int keys = 0;  // 0: scores are dot products along the elements
};
// Which tiles there are: rows are queries or, of one query, heads that share their keys.
struct TileChoice {
  bool has_keys = true;      // scores are tiles, too
  bool divides_rows = true;  // no tile is partial…
  bool divides_keys = false;
  int most_rows = 24;
};
// The decision "attention_tile": all keys and values go by for each tile of rows.
Tile decide_tile(Schedule& schedule, const Extents& extents, const TileChoice& choice, int lanes, const Target& target);

// Transposes and slices of the operands become indices of the stages, and those of the result indices of the last one.
// Those of k wait for pack_keys, whose panels begin with the first key, or for inline_keys.
void inline_moves(Schedule& schedule);
void inline_keys(Schedule& schedule);

// How the last block, which reads what `source` writes, runs over the result.
struct Output {
  BlockRef block;
  std::vector<LoopRef> batch;
  LoopRef heads, queries, columns;
};
std::optional<Output> match_output(const Schedule& schedule, const BlockRef& source);

// A copy of k as panels of `width` keys, each [element][key].
BlockRef pack_keys(Schedule& schedule, int64_t width, Scope scope);
// Largest or sum of each row within `tile`.
void reduce_rows(Schedule& schedule, const BlockRef& block, const LoopRef& tile, int lanes);
// Scores as dot products along the elements, key by key: the loop over keys.
LoopRef dot_products(Schedule& schedule, const LoopRef& tile, int lanes);
void vectorize_keys(Schedule& schedule, const BlockRef& block, int lanes);
// Where each query sees more keys than the one before, those that none of a tile sees are left out within `tile`.
// Scores are made in panels of so many keys.
void skip_unseen_keys(Schedule& schedule, const LoopRef& tile, int64_t panel);

}  // namespace tw::cpu::attention
