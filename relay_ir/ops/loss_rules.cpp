// ONNX's losses, composed.
#include <numeric>

#include "relay_ir/ops/index_ops.h"

namespace tw::relay {
namespace {

using Context = OnnxNodeContext;
using Ints = std::vector<int64_t>;

// -weight[t] · log_prob[n, t, d…] of each target t, zero where t is ignored; then none, summed, or divided by the
// weights.
ValueId negative_log_likelihood(Context& c, ValueId log_prob) {
  const std::string reduction = c.attribute_string("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean") c.refuse("reduction=\"" + reduction + "\"");
  ValueId target = emit_cast(c, c.input(1), i64);
  const DType dtype = dtype_of(c, log_prob);
  const Ints dims = dims_of(c, target);
  Ints with_class = dims;
  if (dims.empty() || rank_of(c, log_prob) != static_cast<int>(dims.size()) + 1) c.refuse("targets of another rank");
  with_class.insert(with_class.begin() + 1, 1);
  const bool has_ignored = c.has_attribute("ignore_index"), has_weight = c.has_input(2);
  ValueId is_ignored = no_value, weight = no_value;
  if (has_ignored) {
    is_ignored = c.emit("equal", {target, emit_ints(c, {c.attribute_int("ignore_index", 0)}, {}, i64)});
    target = c.emit("where", {is_ignored, emit_ints(c, {0}, {}, i64), target});
  }
  const ValueId picked =
      c.emit("gather_elements", {log_prob, emit_reshape(c, target, with_class)}, attributes_of({{"axis", int64_t{1}}}));
  ValueId loss = c.emit("negate", {emit_reshape(c, picked, dims)});
  if (has_weight) weight = c.emit("gather", {c.input(2), target});
  if (has_ignored) {
    const ValueId one = has_weight ? weight : emit_scalar(c, dtype, 1);
    weight = c.emit("where", {is_ignored, emit_scalar(c, dtype, 0), one});
  }
  if (weight != no_value) loss = c.emit("multiply", {loss, weight});
  if (reduction == "none") return loss;
  std::vector<int> axes(dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (reduction == "sum") return emit_reduce(c, "reduce_sum", loss, axes, false);
  if (weight == no_value) return emit_reduce(c, "reduce_mean", loss, axes, false);
  return c.emit("divide",
                {emit_reduce(c, "reduce_sum", loss, axes, false), emit_reduce(c, "reduce_sum", weight, axes, false)});
}

std::vector<ValueId> import_softmax_cross_entropy(Context& c) {
  const ValueId log_prob = c.emit("log_softmax", {c.input(0)}, attributes_of({{"axis", int64_t{1}}}));
  return {negative_log_likelihood(c, log_prob), log_prob};
}

}  // namespace

std::vector<OnnxRule> loss_rules() {
  return {
      rule("NegativeLogLikelihoodLoss", 12, [](Context& c) { return negative_log_likelihood(c, c.input(0)); }),
      {"SoftmaxCrossEntropyLoss", "", 12, import_softmax_cross_entropy},
  };
}

}  // namespace tw::relay
