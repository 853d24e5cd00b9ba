// Random bits, which a state of two numbers decides: a key, and which stream of that key it is.
//
// An element is what the generator makes of its own place in the stream, so elements are independent work, and the same
// whatever computes them.  Two elements are the state of a stream of their own (frontends/random.h), so that each node
// and each step of a loop has one.
#include "relay_ir/ops/common.h"

namespace tw::relay {
namespace {

OpDef random_bits_op() {
  OpDef op;
  op.name = "random_bits";
  op.kind = OpKind::injective;
  op.doc = "Random bits by Philox4x32-10, of which all 64 are independent; those of a state are always the same.";
  op.input_names = {"state"};
  op.attributes = {{"shape", std::vector<Expr>{}, true, "the dimensions"},
                   {"first", std::vector<Expr>{Expr(0)}, false, "one number: the place of the first in the stream"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    c.require(c.inputs[0] == tensor_type(u64, {2}), "the state is u64[2]");
    c.require(c.attributes.get_dims("first").size() == 1, "the place is one number");
    for (const Expr& dim : c.attributes.get_dims("shape"))
      c.require(as_int(dim).value_or(0) >= 0, "dimensions are not negative");
    return {{u64, c.attributes.get_dims("shape")}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const Expr& first = c.attributes.get_dims("first")[0];
    return {te::compute("random_bits", c.outputs[0].shape, in, [&](const te::Indices& s) {
      const Expr place = cast(u64, first + flatten_index(s, c.outputs[0].shape));
      return tw::call(Intrinsic::philox, {in[0]({Expr(0)}), place, in[0]({Expr(1)})});
    })};
  };
  op.examples = {
      {{tensor_type(u64, {2})}, attributes_of({{"shape", std::vector<Expr>{3, 5}}})},
      {{tensor_type(u64, {2})}, attributes_of({{"shape", std::vector<Expr>{2}}, {"first", std::vector<Expr>{6}}})}};
  return op;
}

}  // namespace

std::vector<OpDef> random_family() {
  return {random_bits_op()};
}

}  // namespace tw::relay
