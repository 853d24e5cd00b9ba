// Operators of ONNX with an activation behind them, as ONNX Runtime's optimiser fuses them (com.microsoft).
#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {
namespace {

// `parameters`: alpha and beta, or the ends of a Clip.
ValueId emit_activation(Context& c, ValueId x, const std::vector<double>& parameters) {
  const std::string name = c.attribute_string("activation", "");
  const auto of = [&](const char* op, std::vector<const char*> names) {
    if (parameters.size() < names.size()) c.refuse("activation " + name + " without its parameters");
    NodeAttributes attributes;
    for (size_t i = 0; i < names.size(); ++i) attributes.set(names[i], parameters[i]);
    return c.emit(op, {x}, attributes);
  };
  if (name.empty()) return x;
  if (name == "Relu") return of("relu", {});
  if (name == "Tanh") return of("tanh", {});
  if (name == "Sigmoid") return of("sigmoid", {});
  if (name == "LeakyRelu") return of("leaky_relu", {"alpha"});
  if (name == "HardSigmoid") return of("hard_sigmoid", {"alpha", "beta"});
  if (name == "Clip") return of("clip", {"low", "high"});
  c.refuse("activation " + name);
}

// `plain`: how many inputs the operator of ONNX has; one more is added to its result.
ValueId emit_plain(Context& c, const char* op_type, size_t plain) {
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < plain; ++i) inputs.push_back(c.optional_input(i));
  const ValueId y = c.with_inputs(inputs, 13, find_rule("", op_type, 13)->import).at(0);
  return c.has_input(plain) ? c.emit("add", {y, c.input(plain)}) : y;
}

}  // namespace

std::vector<Rule> fused_rules() {
  return {
      rule_of(microsoft, "FusedConv",
              [](Context& c) {
                return emit_activation(c, emit_plain(c, "Conv", 3), c.attribute_floats("activation_params", {}));
              }),
      rule_of(microsoft, "FusedGemm",
              [](Context& c) {
                return emit_activation(
                    c, emit_plain(c, "Gemm", 3),
                    {c.attribute_float("activation_alpha", 0.01), c.attribute_float("activation_beta", 0.5)});
              }),
  };
}

}  // namespace tw::frontends::onnx
