// Sequences and optional values: what nodes do with lists that are known at import (frontends/lists.h) leaves tensors
// and what is computed from them.  SequenceMap is in control.cpp.
#include <algorithm>

#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

[[noreturn]] void bad_sequence(const Context& c, const std::string& what) {
  throw Error(ErrorCode::shape, c.op() + ": " + what + "\n  help: onnx.checker.check_model(model, full_check=True)");
}

ValueId emit_sequence(Context& c, const std::vector<ValueId>& tensors) {
  for (const ValueId id : tensors)
    if (dtype_of(c, id) != dtype_of(c, tensors[0])) bad_sequence(c, "tensors of different types in a sequence");
  return c.emit_list(List::Kind::sequence, tensors);
}

// Input `input`, of `count` places; from the end where it is negative.
ptrdiff_t place_of(const Context& c, size_t input, size_t count, const std::vector<ValueId>& sequence) {
  const Ints given = c.constant_ints(input);
  if (given.size() != 1) bad_sequence(c, "a position is one number");
  const int64_t length = std::ssize(sequence);
  if (given[0] < -length || given[0] >= static_cast<int64_t>(count))
    bad_sequence(c, "position " + std::to_string(given[0]) + " in a sequence of " + std::to_string(length));
  return given[0] < 0 ? given[0] + length : given[0];
}

ValueId import_sequence_construct(Context& c) {
  std::vector<ValueId> tensors;
  for (size_t i = 0; i < c.input_count(); ++i) tensors.push_back(c.input(i));
  return emit_sequence(c, tensors);
}

ValueId import_sequence_at(Context& c) {
  const std::vector<ValueId> sequence = c.sequence(0);
  return sequence[place_of(c, 1, sequence.size(), sequence)];
}

ValueId import_sequence_insert(Context& c) {
  std::vector<ValueId> sequence = c.sequence(0);
  const ptrdiff_t place = c.has_input(2) ? place_of(c, 2, sequence.size() + 1, sequence) : std::ssize(sequence);
  sequence.insert(sequence.begin() + place, c.input(1));
  return emit_sequence(c, sequence);
}

ValueId import_sequence_erase(Context& c) {
  std::vector<ValueId> sequence = c.sequence(0);
  if (sequence.empty()) bad_sequence(c, "an empty sequence");
  const ptrdiff_t place = c.has_input(1) ? place_of(c, 1, sequence.size(), sequence) : std::ssize(sequence) - 1;
  sequence.erase(sequence.begin() + place);
  return emit_sequence(c, sequence);
}

// Parts of the sizes in a list, or of one size (otherwise 1) of which the last may be smaller.
ValueId import_split_to_sequence(Context& c) {
  constexpr int64_t most_parts = 1 << 12;
  const ValueId x = c.input(0);
  const int axis = rule_axis(c, c.attribute_int("axis", 0), rank_of(c, x));
  const std::string is_open = "the length of the sequence is known only in a run: ";
  if (c.has_input(1) && rank_of(c, c.input(1)) > 0) {
    if (!static_shape(c.type(c.input(1)))) c.refuse(is_open + open_dimension_text(c.type(c.input(1))));
    return emit_sequence(c, emit_split(c, x, axis, c.read_dims(1)));
  }
  if (c.has_input(1) && !c.is_known(1))
    c.refuse(is_open + "`split`, the size of its tensors, is computed; give it as a constant, or as a list of sizes");
  if (!as_int(c.type(x).shape[axis]))
    c.refuse(is_open + open_dimension_text(c.type(x), axis) + ", or give `split` as a list of sizes");
  const int64_t extent = dim_of(c, x, axis), size = c.has_input(1) ? c.constant_ints(1)[0] : 1;
  if (size < 1) bad_sequence(c, "parts of size " + std::to_string(size));
  if ((extent - 1) / size >= most_parts) c.refuse("a sequence of more than " + std::to_string(most_parts) + " tensors");
  std::vector<Expr> sizes;
  for (int64_t begin = 0; begin < extent; begin += size) sizes.emplace_back(std::min(size, extent - begin));
  std::vector<ValueId> parts = emit_split(c, x, axis, sizes);
  if (!c.has_input(1) && c.attribute_int("keepdims", 1) == 0)
    for (ValueId& part : parts) part = emit_without_axis(c, part, axis);
  return emit_sequence(c, parts);
}

ValueId import_concat_from_sequence(Context& c) {
  const std::vector<ValueId> parts = c.sequence(0);
  if (parts.empty()) bad_sequence(c, "an empty sequence");
  if (!c.has_attribute("axis")) bad_sequence(c, "no axis");
  const bool is_new = c.attribute_int("new_axis", 0) != 0;
  const int axis = rule_axis(c, c.attribute_int("axis", 0), rank_of(c, parts[0]) + (is_new ? 1 : 0));
  for (const ValueId part : parts)
    if (rank_of(c, part) != rank_of(c, parts[0])) bad_sequence(c, "tensors of different ranks");
  return is_new ? emit_stack(c, parts, axis) : emit_concat(c, parts, axis);
}

bool has_optional(const Context& c) {
  return c.has_list(0, List::Kind::optional);
}

ValueId import_optional(Context& c) {
  if (has_optional(c)) bad_sequence(c, "an optional value within another one");
  std::vector<ValueId> values;
  if (c.has_input(0)) values.push_back(c.input_or_list(0));
  return c.emit_list(List::Kind::optional, values);
}

// A tensor or a sequence is there; an input that is absent is not.
ValueId import_optional_has_element(Context& c) {
  const bool is_there = has_optional(c) ? !c.list(0, List::Kind::optional).empty() : c.has_input(0);
  return emit_scalar(c, boolean, is_there ? 1 : 0);
}

ValueId import_optional_get_element(Context& c) {
  if (!has_optional(c)) return c.input_or_list(0);
  const std::vector<ValueId> values = c.list(0, List::Kind::optional);
  if (values.empty()) bad_sequence(c, "there is nothing in the optional value");
  return values[0];
}

}  // namespace

std::vector<Rule> sequence_rules() {
  return {
      rule("SequenceEmpty", 11, [](Context& c) { return c.emit_list(List::Kind::sequence, {}); }),
      rule("SequenceConstruct", 11, import_sequence_construct),
      rule("SequenceAt", 11, import_sequence_at),
      rule("SequenceInsert", 11, import_sequence_insert),
      rule("SequenceErase", 11, import_sequence_erase),
      rule("SequenceLength", 11,
           [](Context& c) { return emit_scalar(c, i64, static_cast<double>(c.sequence(0).size())); }),
      rule("SplitToSequence", 11, import_split_to_sequence),
      rule("ConcatFromSequence", 11, import_concat_from_sequence),
      rule("Optional", 15, import_optional),
      rule("OptionalHasElement", 15, import_optional_has_element),
      rule("OptionalGetElement", 15, import_optional_get_element),
  };
}

}  // namespace tw::frontends::onnx
