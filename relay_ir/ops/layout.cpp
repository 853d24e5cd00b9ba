// What the compiler itself puts into graphs.
#include "relay_ir/op.h"

namespace tw::relay {

OpFamily layout_family() {
  OpDef op;
  op.name = "convert_layout";
  op.kind = OpKind::injective;
  op.doc = "x in another physical layout; the same values.";
  op.input_names = {"x"};
  op.infer = [](const OpCall& c) -> std::vector<TensorType> { return {c.inputs[0]}; };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {te::compute("convert_layout", c.outputs[0].shape, in, [&](const te::Indices& s) { return in[0](s); })};
  };
  op.examples = {{{TensorType{f32, {Expr(1), Expr(5), Expr(3)}}}, {}}};
  OpFamily family;
  family.ops = {op};
  return family;
}

}  // namespace tw::relay
