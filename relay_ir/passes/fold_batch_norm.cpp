// A scale for each output channel behind a convolution or matmul goes into its weights.
//
//   multiply(conv(x, w), s)                ⇒  conv(x, w·s)
//   multiply(add(conv(x, w), b), s)        ⇒  add(conv(x, w·s), b·s)
//   divide(…, s)                           ⇒  with 1/s
//   add(add(conv(x, w), b), c)             ⇒  add(conv(x, w), b + c)
//
// s, b and c are constants with one number for each output channel, or one for all.  Batch norms arrive as such scales
// and shifts.
#include <unordered_map>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

class BatchNormFolder {
 public:
  explicit BatchNormFolder(const Graph& graph) : copy_(graph), uses_(graph) {}

  Graph run() {
    return copy_.rewrite([&](const Node& node) { return fold(node); });
  }

 private:
  // A linear form of the new graph, with what is already added to it.
  struct Biased {
    const OpDef* op = nullptr;
    NodeAttributes attributes;
    ValueId data = no_value;
    NDArray weight;
    std::optional<std::vector<double>> bias = {};  // by output channel
    int64_t channels = 0;
    int channel_axis = 1;  // of the result
    int weight_axis = 0;   // of the weight's filters
    int rank = 0;
  };

  const Graph& from() const { return copy_.from(); }

  // What the old node's result is, if it is a linear form with constant weights.
  std::optional<Biased> as_linear(const Node& node) {
    const auto form = linear_of(from(), node);
    if (!form || form->filter_axis < 0 || !from().is_constant(node.inputs[1])) return std::nullopt;
    const NDArray& weight = *from().values[node.inputs[1]].constant;
    if (weight.dtype() != f32 && weight.dtype() != f64) return std::nullopt;
    return Biased{.op = node.op,
                  .attributes = node.attributes,
                  .data = copy_[node.inputs[0]],
                  .weight = weight,
                  .channels = weight.shape()[form->filter_axis],
                  .channel_axis = form->result_axis,
                  .weight_axis = form->filter_axis,
                  .rank = from().values[node.outputs[0]].type.rank()};
  }

  // A constant with one number for each channel of the linear operator's result.
  std::optional<std::vector<double>> per_channel(const Biased& linear, ValueId id) const {
    if (!from().is_constant(id)) return std::nullopt;
    const NDArray& array = *from().values[id].constant;
    if (array.rank() > linear.rank) return std::nullopt;
    for (int i = 0; i < array.rank(); ++i) {
      const bool is_channel_axis = i + linear.rank - array.rank() == linear.channel_axis;
      if (array.shape()[i] != 1 && !(is_channel_axis && array.shape()[i] == linear.channels)) return std::nullopt;
    }
    std::vector<double> result(static_cast<size_t>(linear.channels));
    for (int64_t i = 0; i < linear.channels; ++i) result[i] = array.get_float(array.size() == 1 ? 0 : i);
    return result;
  }

  struct Rule {
    bool is_scale;                       // or a shift
    double (*number)(double) = nullptr;  // null: the operand itself, which may come first as well
  };

  ValueId fold(const Node& node) {
    static const RulesByOp<Rule> rules = {{"multiply", {true}},
                                          {"divide", {true, [](double x) { return 1 / x; }}},
                                          {"add", {false}},
                                          {"subtract", {false, [](double x) { return -x; }}}};
    if (const auto linear = as_linear(node)) {
      linear_[node.outputs[0]] = *linear;
      return no_value;
    }
    const Rule* rule = rules.find(node);
    if (!rule) return no_value;
    for (const int side : {0, 1}) {
      if (side == 1 && rule->number) continue;
      const ValueId source = node.inputs[side];
      const auto found = linear_.find(source);
      if (found == linear_.end() || !uses_.is_used_once(source)) continue;
      if (!(from().values[source].type == from().values[node.outputs[0]].type)) continue;
      Biased linear = found->second;
      auto numbers = per_channel(linear, node.inputs[1 - side]);
      if (!numbers) continue;
      if (rule->number)
        for (double& x : *numbers) x = rule->number(x);
      const bool changes_graph = rule->is_scale || linear.bias.has_value();
      if (rule->is_scale) {
        scale(linear, *numbers);
      } else if (linear.bias) {
        for (size_t i = 0; i < numbers->size(); ++i) (*linear.bias)[i] += (*numbers)[i];
      } else {
        linear.bias = *numbers;
      }
      linear_[node.outputs[0]] = linear;
      return changes_graph ? emit(node, linear) : no_value;
    }
    return no_value;
  }

  static void scale(Biased& linear, const std::vector<double>& factors) {
    linear.weight = linear.weight.clone();
    int64_t inner = 1;
    for (int i = linear.weight_axis + 1; i < linear.weight.rank(); ++i) inner *= linear.weight.shape()[i];
    for (int64_t i = 0; i < linear.weight.size(); ++i) {
      linear.weight.set_float(i, linear.weight.get_float(i) * factors[i / inner % linear.channels]);
    }
    if (!linear.bias) return;
    for (size_t i = 0; i < factors.size(); ++i) (*linear.bias)[i] *= factors[i];
  }

  ValueId emit(const Node& node, const Biased& linear) {
    Graph& to = copy_.to();
    const ValueId weight = to.add_constant(node.name + ".weight", linear.weight);
    ValueId result = copy_.add(node, *linear.op, {linear.data, weight}, linear.attributes)[0];
    if (linear.bias) {
      Shape shape(static_cast<size_t>(linear.rank - linear.channel_axis), 1);
      shape[0] = linear.channels;
      NDArray bias(linear.weight.dtype(), shape);
      for (int64_t i = 0; i < linear.channels; ++i) bias.set_float(i, (*linear.bias)[i]);
      result = copy_.add(node, "add", {result, to.add_constant(node.name + ".bias", bias)})[0];
    }
    return result;
  }

  GraphCopy copy_;
  const Uses uses_;
  std::unordered_map<ValueId, Biased> linear_;  // by value of the old graph
};

}  // namespace

Graph fold_batch_norm(const Graph& graph) {
  return BatchNormFolder(graph).run();
}

}  // namespace tw::relay
