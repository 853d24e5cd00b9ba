// What rules do with sequences, whether their length is known at import or only in a run.  A sequence of a length that
// a run says is one tensor: `packed`, the parts follow one another along an axis, and i64[n] has their sizes there;
// `stacked`, the parts have one shape, and the axis is none of theirs; or `ragged`, the elements of all parts follow
// one another, and i64[n, rank] has their shapes, with -1 for axes that a part does not have.
#pragma once

#include <optional>
#include <vector>

#include "frontends/parts.h"

namespace tw::frontends {

ValueId emit_sequence(Builder& b, const std::vector<ValueId>& tensors);
ValueId emit_sequence_at(Builder& b, ValueId sequence, const Position& position);
// Without a position: at the end, or of the last one.
ValueId emit_sequence_insert(Builder& b, ValueId sequence, ValueId x, const std::optional<Position>& position);
ValueId emit_sequence_erase(Builder& b, ValueId sequence, const std::optional<Position>& position);
Expr sequence_length(Builder& b, ValueId sequence);
// The parts along an axis of theirs or, where it is new, before it.
ValueId emit_joined(Builder& b, ValueId sequence, int64_t axis, bool is_new);
// Parts of x of a size of one integer, or 1 (no_value); the last one may be smaller.  `keeps`: the axis, where it is 1.
ValueId emit_parts(Builder& b, ValueId x, int axis, ValueId size, bool keeps);
// Parts of x of the sizes in a tensor of integers.
ValueId emit_parts_of(Builder& b, ValueId x, int axis, ValueId sizes);
// One tensor, whose axis 0 is the sequence.
ValueId emit_stacked(Builder& b, ValueId sequence);

// What a branch and another one give in one place, or a step of a loop and what was before it, where lists of theirs
// are not alike.
struct United {
  std::optional<ListKind> kind = {};  // nothing: a tensor
  int axis = 0, rank = 0;
  bool is_decided = false;         // an optional value by the run
  TensorType type = {};            // of the tensor; of a part, of what is packed or stacked
  std::vector<United> parts = {};  // of other lists
};
// What a value is, in a graph.
United as_it_is(const Lists& lists, const Graph& graph, ValueId id);
bool is_same_form(const United& a, const United& b);  // but for types
// `of_a`, `of_b`: the graphs of their tensors; `is_fixed`: of sizes that are the same for all parts that are ever put
// into the sequences.  Nothing: there is no such form.
std::optional<United> unite(const Lists& lists, const Graph& of_a, ValueId a, const Graph& of_b, ValueId b,
                            const std::function<bool(const Expr&)>& is_fixed);
// What the branch that is built gives, in that form.
ValueId emit_united(Builder& b, ValueId value, const United& form);

}  // namespace tw::frontends
