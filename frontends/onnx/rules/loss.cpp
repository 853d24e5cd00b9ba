// Losses.
#include "frontends/loss.h"

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {
namespace {

ValueId negative_log_likelihood(Context& c, ValueId log_prob) {
  const std::string reduction = c.attribute_string("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean") c.refuse("reduction=\"" + reduction + "\"");
  Loss loss{log_prob, c.input(1), c.optional_input(2)};
  if (c.has_attribute("ignore_index")) loss.ignored = c.attribute_int("ignore_index", 0);
  if (reduction != "mean") loss.reduction = reduction == "sum" ? Loss::Reduction::sum : Loss::Reduction::none;
  return emit_negative_log_likelihood(c, loss);
}

std::vector<ValueId> import_softmax_cross_entropy(Context& c) {
  const ValueId log_prob = c.emit("log_softmax", {c.input(0)}, attributes_of({{"axis", int64_t{1}}}));
  return {negative_log_likelihood(c, log_prob), log_prob};
}

}  // namespace

std::vector<Rule> loss_rules() {
  return {
      rule("NegativeLogLikelihoodLoss", 12, [](Context& c) { return negative_log_likelihood(c, c.input(0)); }),
      {"SoftmaxCrossEntropyLoss", "", 12, import_softmax_cross_entropy},
  };
}

}  // namespace tw::frontends::onnx
