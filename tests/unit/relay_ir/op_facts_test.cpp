// Operators that the project does not have, known to passes by their facts alone, are treated as its own are: one that
// works element by element like relu, and one with a window over an axis like average_pool.
#include <gtest/gtest.h>

#include <random>

#include "relay_ir/compile/compile.h"
#include "relay_ir/compile/group.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "targets/target.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

// x where it is positive, a quarter of it elsewhere.
const OpDef& quarter_below() {
  static const OpDef op = [] {
    OpDef op;
    op.name = "quarter_below";
    op.kind = OpKind::elementwise;
    op.input_names = {"x"};
    op.facts = plain_facts(broadcast_axes, Rounding::keeps);
    op.infer = [](const OpCall& c) { return std::vector{c.inputs[0]}; };
    op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) {
      return std::vector{te::compute("quarter_below", c.outputs[0].shape, in, [&](const te::Indices& i) {
        const Expr x = cast(f32, in[0](i));
        return cast(c.outputs[0].dtype, maximum_of(x, x * float_imm(f32, 0.25)));
      })};
    };
    return op;
  }();
  return op;
}

// The mean of three neighbours along the last axis.
const OpDef& mean_of_three() {
  static const OpDef op = [] {
    OpDef op;
    op.name = "mean_of_three";
    op.kind = OpKind::reduction;
    op.input_names = {"x"};
    op.facts = plain_facts(
        [](const OpCall& c) {
          AxisUses uses = aligned_axes(c);
          const int last = c.inputs[0].rank() - 1;
          uses[0][last] = {.kind = AxisUse::Kind::window, .axis = last, .size = 3};
          return uses;
        },
        Rounding::keeps);
    op.infer = [](const OpCall& c) {
      TensorType y = c.inputs[0];
      y.shape.back() = y.shape.back() - 2;
      return std::vector{y};
    };
    op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) {
      const te::Tensor sum = te::reduce("sum_of_three", c.outputs[0].shape, {Expr(3)}, te::Combiner::sum, {in[0]},
                                        [&](const te::Indices& s, const te::Indices& r) {
                                          te::Indices at = s;
                                          at.back() = at.back() + r[0];
                                          return cast(f32, in[0](at));
                                        });
      return std::vector{te::compute("mean_of_three", sum.shape(), {sum}, [&](const te::Indices& i) {
        return cast(c.outputs[0].dtype, sum(i) * float_imm(f32, 1.0 / 3));
      })};
    };
    return op;
  }();
  return op;
}

// An operator on one value, with its attributes.
struct Use {
  const OpDef& op;
  NodeAttributes attributes = {};
};

struct Pair {
  Use element, window;
};
Pair own() {
  return {{quarter_below()}, {mean_of_three()}};
}
Pair ours() {
  return {{*find_op("relu")}, {*find_op("average_pool"), attributes_of({{"kernel", Ints{1, 3}}})}};
}

class Builder {
 public:
  explicit Builder(const Shape& shape) {
    graph.inputs = {graph.add_value("x", TensorType{f32, {shape.begin(), shape.end()}})};
    at = graph.inputs[0];
  }
  Builder& conv(const Shape& weight, int64_t groups = 1, const Ints& pads = {0, 0, 0, 0}) {
    at = graph.add_node("conv", {at, graph.add_constant("w", test::random_array(weight, ++seed, 0.2))},
                        attributes_of({{"groups", groups}, {"pads", pads}}))[0];
    return *this;
  }
  Builder& use(const Use& u) {
    at = graph.add_node(u.op, {at}, u.attributes, "used")[0];
    return *this;
  }
  Graph finish() {
    graph.outputs = {at};
    return std::move(graph);
  }
  Graph graph;
  ValueId at = no_value;
  uint32_t seed = 0;
};

// conv, element, window, element, conv: in blocks of channels from end to end.
Graph chain(const Pair& pair, const Shape& shape) {
  Builder b(shape);
  const int64_t c = shape[1];
  return b.conv({c, c, 3, 3}).use(pair.element).use(pair.window).use(pair.element).conv({c, c, 1, 1}).finish();
}

// Channels that are put together, shuffled, and moved through both operators on their way to a convolution.
Graph shuffled(const Pair& pair) {
  Builder b({1, 32, 12, 14});
  const ValueId x = b.at;
  const ValueId left = b.conv({32, 32, 1, 1}).at;
  b.at = x;
  const ValueId right = b.conv({32, 32, 1, 1}).at;
  b.at = b.graph.add_node("concat", {left, right}, attributes_of({{"axis", int64_t{1}}}))[0];
  const auto reshape = [&](const std::vector<Expr>& shape) {
    b.at = b.graph.add_node("reshape", {b.at}, attributes_of({{"shape", shape}}))[0];
  };
  reshape({1, 2, 32, 12, 14});
  b.at = b.graph.add_node("transpose", {b.at}, attributes_of({{"perm", Ints{0, 2, 1, 3, 4}}}))[0];
  reshape({1, 64, 12, 14});
  return b.use(pair.element).use(pair.window).conv({32, 64, 1, 1}).finish();
}

Graph inverted_residual(const Pair& pair) {
  Builder b({1, 32, 112, 112});
  return b.conv({32, 32, 1, 1})
      .conv({192, 32, 1, 1})
      .use(pair.element)
      .conv({192, 1, 3, 3}, 192, {1, 1, 1, 1})
      .use(pair.element)
      .conv({32, 192, 1, 1})
      .finish();
}

// What passes have made of a graph, but for the operators' names.
std::vector<std::string> form_of(const Graph& graph) {
  std::vector<std::string> lines;
  for (const Node& node : graph.nodes) {
    std::string line = node.op == &quarter_below() || node.op->name == "relu"           ? "element"
                       : node.op == &mean_of_three() || node.op->name == "average_pool" ? "window"
                                                                                        : node.op->name;
    for (const ValueId id : node.inputs) line += " " + std::to_string(id);
    for (const ValueId id : node.outputs) {
      const Value& value = graph.values[id];
      line += " -> " + std::to_string(id) + " " + to_string(value.type) + " c" + std::to_string(value.channel_block);
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::vector<int>> groups_of(const Graph& graph) {
  std::vector<std::vector<int>> groups;
  for (const Group& group : fuse(graph)) groups.push_back(group.nodes);
  return groups;
}

int count(const Graph& graph, const std::string& op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.op->name == op; }));
}

TEST(OwnOperators, StayInBlocksOfChannels) {
  const Target target = parse_target("x86:avx512");
  const Graph graph = assign_layout(chain(own(), {1, 32, 20, 22}), {target});
  EXPECT_EQ(form_of(graph), form_of(assign_layout(chain(ours(), {1, 32, 20, 22}), {target})));
  for (const Node& node : graph.nodes)
    if (node.name.substr(0, 4) == "used") EXPECT_EQ(graph.values[node.outputs[0]].channel_block, 16) << node.name;
}

TEST(OwnOperators, AreStoredIn16Bits) {
  const Target target = parse_target("x86:amx");
  const Shape large = {1, 64, 112, 112};
  const Graph graph = lower_precision(chain(own(), large), {target, Precision::bf16});
  EXPECT_EQ(form_of(graph), form_of(lower_precision(chain(ours(), large), {target, Precision::bf16})));
  int rounded = 0;
  for (const Value& value : graph.values) rounded += value.type.dtype == bf16 && !value.constant;
  EXPECT_GE(rounded, 3);
}

TEST(OwnOperators, AreFused) {
  const Target target = parse_target("x86:avx512");
  const Graph graph = assign_layout(chain(own(), {1, 32, 20, 22}), {target});
  const auto groups = groups_of(graph);
  EXPECT_EQ(groups, groups_of(assign_layout(chain(ours(), {1, 32, 20, 22}), {target})));
  EXPECT_LT(groups.size(), graph.nodes.size());
}

TEST(OwnOperators, LetMovesOfChannelsPass) {
  const Graph graph = merge_channel_moves(shuffled(own()));
  EXPECT_EQ(form_of(graph), form_of(merge_channel_moves(shuffled(ours()))));
  EXPECT_EQ(count(graph, "reshape") + count(graph, "transpose"), 0);
}

TEST(OwnOperators, AreStreamed) {
  const Target target = parse_target("x86:avx512");
  std::vector<int> asked;
  for (const Pair& pair : {own(), ours()}) {
    asked.push_back(0);
    const DecisionSource count = [&](const GraphDecision& decision) {
      ++asked.back();
      return decision.asked.value();
    };
    fuse_expansions(inverted_residual(pair), {.target = target, .source = count});
  }
  EXPECT_EQ(asked, (std::vector<int>{1, 1}));
}

TEST(OwnOperators, ComputeWhatTheyDefine) {
  const Shape shape = {1, 32, 10, 13};
  const NDArray x = test::random_array(shape, 99, 0.2);
  for (const Graph& graph : {chain(own(), shape), shuffled(own())}) {
    const NDArray input = test::random_array(*static_shape(graph.values[graph.inputs[0]].type), 99, 0.2);
    const NDArray expected = test::evaluate(graph, {input})[0];
    Executable executable = compile(graph, parse_target("cpu"), {});
    const NDArray result = executable.run({input})[0];
    for (int64_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(result.get_float(i), expected.get_float(i), 1e-4) << i;
  }
}

}  // namespace
}  // namespace tw::relay
