#include "frontends/onnx/scores.h"

namespace tw::frontends::onnx {

ValueId as_reals(Context& c, ValueId x) {
  return dtype_of(c, x) == f64 ? x : emit_cast(c, x, f32);
}

void require_length(const std::string& name, size_t length, size_t wanted) {
  if (length != wanted)
    malformed(name + " has " + std::to_string(length) + " elements, where there are " + std::to_string(wanted));
}

namespace {

// √2 · erf⁻¹(2x - 1), by Winitzki's approximation with its constants as ONNX Runtime has them.
ValueId emit_probit(Context& c, ValueId scores) {
  const DType dtype = dtype_of(c, scores);
  const auto number = [&](double value) { return emit_scalar(c, dtype, value); };
  const auto times = [&](double value, ValueId x) { return c.emit("multiply", {number(value), x}); };
  const ValueId x = c.emit("subtract", {times(2, scores), number(1)});
  const ValueId log =
      c.emit("log", {c.emit("multiply", {c.emit("subtract", {number(1), x}), c.emit("add", {number(1), x})})});
  const ValueId v = c.emit("add", {number(2 / (3.14159 * 0.147)), times(0.5, log)});
  const ValueId root = c.emit("sqrt", {c.emit("subtract", {c.emit("multiply", {v, v}), times(1 / 0.147, log)})});
  const ValueId size = times(1.41421356, c.emit("sqrt", {c.emit("subtract", {root, v})}));
  return c.emit("where", {c.emit("less", {x, number(0)}), c.emit("negate", {size}), size});
}

// The softmax of those that are not zero.
ValueId emit_softmax_zero(Context& c, ValueId scores) {
  const DType dtype = dtype_of(c, scores);
  const ValueId is_zero = c.emit("less_equal", {c.emit("abs", {scores}), emit_scalar(c, dtype, 1e-7)});
  const ValueId most = emit_reduce(c, "reduce_max", scores, {1}, true);
  const ValueId exponential = c.emit("exp", {c.emit("subtract", {scores, most})});
  const ValueId part = c.emit("where", {is_zero, emit_scalar(c, dtype, 0), exponential});
  const ValueId small = c.emit("multiply", {scores, c.emit("exp", {c.emit("negate", {most})})});
  const ValueId sum = emit_reduce(c, "reduce_sum", part, {1}, true);
  return c.emit("divide", {c.emit("where", {is_zero, small, exponential}), sum});
}

}  // namespace

ValueId emit_post_transform(Context& c, ValueId scores, const std::string& form) {
  if (form == "LOGISTIC") return c.emit("sigmoid", {scores});
  if (form == "SOFTMAX") return c.emit("softmax", {scores});
  if (form == "SOFTMAX_ZERO") return emit_softmax_zero(c, scores);
  if (form == "PROBIT") return emit_probit(c, scores);
  if (form != "NONE") c.refuse("post_transform=" + form);
  return scores;
}

ValueId emit_post_transform(Context& c, ValueId scores) {
  return emit_post_transform(c, scores, c.attribute_string("post_transform", "NONE"));
}

ClassLabels::ClassLabels(Context& c, const std::string& ints, const std::string& strings)
    : c_(c), ints_(c.attribute_ints(ints, {})), strings_(c.attribute_strings(strings)) {
  count_ = static_cast<int64_t>(strings_.empty() ? ints_.size() : strings_.size());
  if (count_ < 2) c.refuse(std::to_string(count_) + " classes");
}

ValueId ClassLabels::emit(ValueId classes) const {
  if (strings_.empty()) return c_.emit("gather", {c_.emit_constant(int_array(ints_)), classes});
  Ints codes;
  for (const std::string& word : strings_) codes.push_back(c_.import().words.code_of(word));
  return c_.emit_text(c_.emit("gather", {c_.emit_constant(int_array(codes)), classes}));
}

}  // namespace tw::frontends::onnx
