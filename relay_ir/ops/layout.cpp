// What the compiler itself puts into graphs.
#include "relay_ir/ops/common.h"

namespace tw::relay {

namespace {

using Ints = std::vector<int64_t>;

OpDef convert_layout_op() {
  OpDef op;
  op.name = "convert_layout";
  op.takes_narrow = true;
  op.kind = OpKind::injective;
  op.doc = "x in another physical layout; the same values.";
  op.input_names = {"x"};
  op.facts = plain_facts(aligned_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> { return {c.inputs[0]}; };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {te::compute("convert_layout", c.outputs[0].shape, in, [&](const te::Indices& s) { return in[0](s); })};
  };
  op.examples = {{{TensorType{f32, {Expr(1), Expr(5), Expr(3)}}}, {}}};
  return op;
}
AxisUses selected_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  for (size_t i = 0; i < uses.size(); ++i) {
    for (int d = 0; d < c.inputs[i].rank(); ++d) uses[i][d] = same_axis(d);
    uses[i][1] = {.kind = AxisUse::Kind::runs, .axis = 1};
  }
  const Ints &inputs = c.attributes.get_ints("inputs"), &starts = c.attributes.get_ints("starts"),
             &counts = c.attributes.get_ints("counts");
  int64_t to = 0;
  for (size_t i = 0; i < inputs.size(); to += counts[i++])
    uses[inputs[i]][1].runs.push_back({.to = to, .from = starts[i], .count = counts[i]});
  return uses;
}

OpDef select_channels_op() {
  OpDef op;
  op.name = "select_channels";
  op.takes_narrow = true;
  op.kind = OpKind::injective;
  op.doc =
      "Runs of channels (axis 1) one after the other: run i is the counts[i] channels of input inputs[i] from "
      "starts[i] "
      "on.";
  op.input_names = {"x"};
  op.takes_any_number = true;
  op.attributes = {{"inputs", Ints{}, true, "of each run, the number of its input"},
                   {"starts", Ints{}, true, "of each run, its first channel there"},
                   {"counts", Ints{}, true, "of each run, its channels"}};
  op.facts = plain_facts(selected_axes, Rounding::moves);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const Ints &inputs = c.attributes.get_ints("inputs"), &starts = c.attributes.get_ints("starts"),
               &counts = c.attributes.get_ints("counts");
    c.require(!inputs.empty() && inputs.size() == starts.size() && inputs.size() == counts.size(),
              "inputs, starts and counts are as many, one at least");
    TensorType y = c.inputs[0];
    c.require(y.rank() >= 2, "data is [n, c, …]");
    for (const TensorType& x : c.inputs) {
      c.require(x.dtype == y.dtype && x.rank() == y.rank(), "inputs have one element type and rank");
      for (int d = 0; d < y.rank(); ++d)
        c.require(d == 1 || is_same_dim(x.shape[d], y.shape[d]), "other dimensions than the channels differ");
    }
    int64_t channels = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      c.require(inputs[i] >= 0 && inputs[i] < static_cast<int64_t>(c.inputs.size()),
                "a run of an input that is absent");
      const auto extent = as_int(c.inputs[inputs[i]].shape[1]);
      c.require(extent && starts[i] >= 0 && counts[i] > 0 && starts[i] <= *extent - counts[i],
                "a run reaches outside of its input");
      channels += counts[i];
    }
    y.shape[1] = Expr(channels);
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const Ints &inputs = c.attributes.get_ints("inputs"), &starts = c.attributes.get_ints("starts"),
               &counts = c.attributes.get_ints("counts");
    return {te::compute("select_channels", c.outputs[0].shape, in, [&](const te::Indices& s) {
      int64_t end = *as_int(c.outputs[0].shape[1]);
      Expr result;
      for (size_t i = inputs.size(); i-- > 0;) {
        const int64_t begin = end - counts[i];
        te::Indices indices = s;
        indices[1] = s[1] - begin + starts[i];
        const Expr here = s[1] >= begin && s[1] < end;
        const Expr value = inputs.size() == 1 ? in[inputs[i]](indices) : load(in[inputs[i]].buffer(), indices, here);
        result = result.is_defined() ? select(s[1] < end, value, result) : value;
        end = begin;
      }
      return result;
    })};
  };
  op.examples = {{{tensor_type(f32, {1, 5, 3}), tensor_type(f32, {1, 4, 3})},
                  attributes_of({{"inputs", Ints{1, 0, 1}}, {"starts", Ints{1, 0, 0}}, {"counts", Ints{3, 4, 1}}})}};
  return op;
}

}  // namespace

std::vector<OpDef> layout_family() {
  return {convert_layout_op(), select_channels_op()};
}

}  // namespace tw::relay
