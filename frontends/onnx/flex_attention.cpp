// Attention whose scores and probabilities pass through graphs of the node (ai.onnx.preview's FlexAttention).
#include <cmath>

#include "frontends/onnx/control.h"
#include "frontends/onnx/rules/attention.h"

namespace tw::frontends::onnx {

std::vector<ValueId> import_flex_attention(Context& context, const std::string& name, const Surroundings& around) {
  const ValueId q = context.input(0), k = context.input(1), v = context.input(2);
  for (const ValueId x : {q, k, v})
    if (rank_of(context, x) != 4) context.refuse("inputs that are not [batch, heads, rows, size]");
  const DType dtype = dtype_of(context, q);
  DType precision = dtype.bits < 32 ? f32 : dtype;
  if (context.has_attribute("softmax_precision")) precision = context.attribute_dtype("softmax_precision");
  if (!precision.is_float()) context.refuse("softmax_precision of type " + to_string(precision));
  double scale = context.attribute_float("scale", 0);
  if (!context.has_attribute("scale")) scale = 1 / std::sqrt(static_cast<double>(dim_of(context, q, 3)));
  const auto through = [&](const char* attribute, ValueId x) {
    if (!context.has_attribute(attribute)) return x;
    const Graph& graph = context.attribute_graph(attribute);
    if (graph.inputs.size() != 1 || graph.outputs.size() != 1)
      malformed("node " + in_quotes(name) + ": " + attribute + " has one input and one result");
    const ValueId changed = around.add_graph(graph, name + "/" + attribute, nullptr, {x})[0];
    const bool is_tensor = changed != unknown_value && !is_list(changed);
    if (!is_tensor || rank_of(context, changed) != rank_of(context, x))
      context.refuse(std::string(attribute) + " that gives something else than scores");
    return emit_cast(context, changed, precision);
  };
  const ValueId root = emit_scalar(context, dtype, std::sqrt(static_cast<float>(scale)));
  const auto scaled = [&](ValueId x) { return context.emit("multiply", {x, root}); };
  const ValueId scores = emit_cast(context, grouped_matmul(context, scaled(q), scaled(k), true), precision);
  const ValueId probability = context.emit("softmax", {through("score_mod", scores)});
  const ValueId y = grouped_matmul(context, through("prob_mod", probability), emit_cast(context, v, precision), false);
  return {emit_cast(context, y, dtype_of(context, v))};
}

}  // namespace tw::frontends::onnx
