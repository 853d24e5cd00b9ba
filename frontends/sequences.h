// What rules do with sequences, whether their length is known at import or only in a run.  A sequence of a length that
// a run says is one tensor: `packed`, the parts follow one another along an axis, and i64[n] has their sizes there; or
// `stacked`, the parts have one shape, and the axis is none of theirs.
#pragma once

#include <optional>
#include <vector>

#include "frontends/builder.h"

namespace tw::frontends {

// A position in a sequence: a number that is known, from the end where it is negative, or a tensor of one integer.
// Error(shape), or of a run Error(input), where it is outside.
struct Position {
  std::optional<int64_t> known;
  ValueId computed = no_value;
};

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

// What a branch and another one give in one place, where lists of theirs are not alike.
struct United {
  std::optional<ListKind> kind = {};  // nothing: a tensor
  int axis = 0;
  bool is_decided = false;         // an optional value by the run
  TensorType type = {};            // of the tensor; of a part, of what is packed or stacked
  std::vector<United> parts = {};  // of other lists
};
// `of_a`, `of_b`: the graphs of their tensors.  Nothing: there is no such form.
std::optional<United> unite(const Lists& lists, const Graph& of_a, ValueId a, const Graph& of_b, ValueId b);
// What the branch that is built gives, in that form.
ValueId emit_united(Builder& b, ValueId value, const United& form);

}  // namespace tw::frontends
