// Sequences and optional values: what nodes do with them leaves tensors and what is computed from them
// (frontends/sequences.h).  SequenceMap is in control.cpp.
#include "frontends/onnx/rules.h"
#include "frontends/sequences.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

[[noreturn]] void bad_sequence(const Context& c, const std::string& what) {
  throw Error(ErrorCode::shape, c.op() + ": " + what + "\n  help: onnx.checker.check_model(model, full_check=True)");
}

std::optional<Position> position(const Context& c, size_t input) {
  if (!c.has_input(input)) return std::nullopt;
  const ValueId id = c.input(input);
  const TensorType& type = c.type(id);
  if (!type.dtype.is_integer() || !is_const_int(product_of(type.shape), 1)) bad_sequence(c, "a position is one number");
  const Expr known = c.known_number(id);
  if (const auto number = known.is_defined() ? as_int(known) : std::nullopt) return Position{*number};
  return Position{{}, id};
}

ValueId import_sequence_construct(Context& c) {
  std::vector<ValueId> tensors;
  for (size_t i = 0; i < c.input_count(); ++i) tensors.push_back(c.input(i));
  return emit_sequence(c, tensors);
}

ValueId import_sequence_at(Context& c) {
  const auto at = position(c, 1);
  if (!at) bad_sequence(c, "no position");
  return emit_sequence_at(c, c.sequence(0), *at);
}

// Parts of the sizes in a list, or of one size (otherwise 1) of which the last may be smaller.
ValueId import_split_to_sequence(Context& c) {
  const ValueId x = c.input(0), split = c.optional_input(1);
  const int axis = rule_axis(c, c.attribute_int("axis", 0), rank_of(c, x));
  if (split == no_value) return emit_parts(c, x, axis, no_value, c.attribute_int("keepdims", 1) != 0);
  return rank_of(c, split) > 0 ? emit_parts_of(c, x, axis, split) : emit_parts(c, x, axis, split, true);
}

ValueId import_concat_from_sequence(Context& c) {
  const ValueId sequence = c.sequence(0);
  if (!c.has_attribute("axis")) bad_sequence(c, "no axis");
  return emit_joined(c, sequence, c.attribute_int("axis", 0), c.attribute_int("new_axis", 0) != 0);
}

ValueId import_optional(Context& c) {
  if (c.has_optional(0)) bad_sequence(c, "an optional value within another one");
  std::vector<ValueId> values;
  if (c.has_input(0)) values.push_back(c.input_or_list(0));
  return c.emit_list(ListKind::optional, values);
}

const List& optional(Context& c) {
  return c.import().lists[c.input_or_list(0)];
}

// A tensor or a sequence is there; an input that is absent is not.
ValueId import_optional_has_element(Context& c) {
  if (c.has_optional(0) && optional(c).is_decided()) return optional(c).values[0];
  const bool is_there = c.has_optional(0) ? !optional(c).values.empty() : c.has_input(0);
  return emit_scalar(c, boolean, is_there ? 1 : 0);
}

ValueId import_optional_get_element(Context& c) {
  if (!c.has_optional(0)) return c.input_or_list(0);
  const std::vector<ValueId> values = optional(c).values;
  if (values.empty()) bad_sequence(c, "there is nothing in the optional value");
  if (values.size() > 1) c.emit_required(emit_cast(c, values[0], i64), 1);
  return values.back();
}

}  // namespace

std::vector<Rule> sequence_rules() {
  return {
      rule("SequenceEmpty", 11, [](Context& c) { return emit_sequence(c, {}); }),
      rule("SequenceConstruct", 11, import_sequence_construct),
      rule("SequenceAt", 11, import_sequence_at),
      rule("SequenceInsert", 11,
           [](Context& c) { return emit_sequence_insert(c, c.sequence(0), c.input(1), position(c, 2)); }),
      rule("SequenceErase", 11, [](Context& c) { return emit_sequence_erase(c, c.sequence(0), position(c, 1)); }),
      rule("SequenceLength", 11, [](Context& c) { return c.emit_sizes({sequence_length(c, c.sequence(0))}, {}); }),
      rule("SplitToSequence", 11, import_split_to_sequence),
      rule("ConcatFromSequence", 11, import_concat_from_sequence),
      rule("Optional", 15, import_optional),
      rule("OptionalHasElement", 15, import_optional_has_element),
      rule("OptionalGetElement", 15, import_optional_get_element),
  };
}

}  // namespace tw::frontends::onnx
