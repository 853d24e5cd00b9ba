// A 1×1 convolution mixes the channels of each position, a resize the positions of each channel.  Where the resize
// makes many positions of few, the convolution goes before it; of channels that are put together, for each part by
// itself, and the parts are added up.
//
//   y = conv(resize(x), w)                ⇒   y = resize(conv(x, w))
//   y = conv(concat(a, resize(b)), w)     ⇒   y = conv(a, w[:, of a]) + resize(conv(b, w[:, of b]))
//
// A resize is one or several nodes that interpolate, or that repeat elements by reshapes and broadcasts.  The heads of
// segmentation networks are such, where all maps but the largest are enlarged before they are mixed, and the necks of
// detectors.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

// Some of the channels that a convolution mixes.
struct Part {
  ValueId data = no_value;             // before it is resized, where that is to move
  std::vector<const Node*> resizes{};  // to move, the first one first
  int64_t channels = 0;
};

int64_t positions_of(const TensorType& type) {
  const Shape shape = typical_shape(type);
  return std::accumulate(shape.begin() + 2, shape.end(), shape[0], std::multiplies<>());
}

class ResizeMover {
 public:
  explicit ResizeMover(const Graph& graph) : graph_(graph), uses_(graph), copy_(graph) {}

  Graph run() {
    return copy_.rewrite([&](const Node& node) { return replacement(node); });
  }

 private:
  // One group, no window, and weights [out, in, 1, …] of the data's type.
  bool mixes_channels(const Node& node) const {
    const auto form = linear_of(graph_, node);
    const bool is_of_channels = form && form->data_axis == 1 && form->result_axis == 1;
    if (!is_of_channels || form->weight_axis != 1 || form->filter_axis != 0 || form->groups != 1) return false;
    const TensorType &data = graph_.values[node.inputs[0]].type, &weight = graph_.values[node.inputs[1]].type;
    if (!graph_.is_constant(node.inputs[1]) || weight.dtype != data.dtype || !data.dtype.is_float()) return false;
    const auto uses = axes_of(graph_, node)[0];
    for (size_t d = 0; d < uses.size(); ++d)
      if (d != 1 && !uses[d].is_same(static_cast<int>(d))) return false;
    return weight.rank() == data.rank();
  }

  // The concatenation of channels that such convolutions alone read.
  const Node* join_of(ValueId id) const {
    const int producer = uses_.producer[id];
    if (producer < 0 || uses_.is_output[id]) return nullptr;
    const Node& join = graph_.nodes[producer];
    if (!joins_whole(graph_, join) || joined_axis(graph_, join) != 1) return nullptr;
    const bool is_only_mixed = std::ranges::all_of(uses_.users[id], [&](int user) {
      return graph_.nodes[user].inputs[0] == id && mixes_channels(graph_.nodes[user]);
    });
    return is_only_mixed ? &join : nullptr;
  }

  int64_t outputs_of(const Node& node) const { return *as_int(graph_.values[node.inputs[1]].type.shape[0]); }

  // Each channel of each image by itself, and so that sums of images become sums.
  bool resizes(const Node& node) const {
    using Rule = bool (ResizeMover::*)(const Node&) const;
    static const RulesByOp<Rule> rules = {{"interpolate", &ResizeMover::is_of_positions},
                                          {"reshape", &ResizeMover::keeps_channels},
                                          {"broadcast_to", &ResizeMover::keeps_channels}};
    const Rule* rule = rules.find(node);
    return rule && (this->**rule)(node);
  }

  bool is_of_positions(const Node& node) const { return node.attributes.get_int("axis") >= 2; }

  bool keeps_channels(const Node& node) const {
    const std::vector<Expr>&from = graph_.values[node.inputs[0]].type.shape,
          &to = graph_.values[node.outputs[0]].type.shape;
    if (from.size() < 3 || to.size() < 3) return false;
    return is_known_equal(from[0], to[0]) && is_known_equal(from[1], to[1]);
  }

  // `least`: channels that are mixed for each position that there is more, for the resize to move.
  Part part_of(ValueId id, int64_t outputs, int64_t least) const {
    const TensorType& type = graph_.values[id].type;
    const int64_t after = positions_of(type);
    Part part{id, {}, as_int(type.shape[1]).value_or(0)};
    std::vector<const Node*> resizes_before;
    ValueId data = id;
    for (const Node* resize = made_for_one(graph_, uses_, data); resize && resizes(*resize);
         resize = made_for_one(graph_, uses_, data)) {
      resizes_before.insert(resizes_before.begin(), resize);
      data = resize->inputs[0];
      const TensorType& smaller = graph_.values[data].type;
      const int64_t before = positions_of(smaller);
      // More channels take longer to resize.
      const bool is_worth = outputs <= 2 * part.channels && part.channels * (after - before) >= least * after;
      if (is_worth && 2 * before <= after && smaller.rank() == type.rank())
        part.data = data, part.resizes = resizes_before;
    }
    return part;
  }

  ValueId replacement(const Node& node) {
    if (!mixes_channels(node)) return no_value;
    // A sum of maps takes as long as it takes to mix so many channels: it waits for memory.
    constexpr int64_t sum = 32;
    const Node* join = join_of(node.inputs[0]);
    const std::vector<ValueId> inputs = join ? join->inputs : std::vector<ValueId>{node.inputs[0]};
    int64_t outputs = outputs_of(node);
    if (join)
      for (const int user : uses_.users[node.inputs[0]]) outputs = std::max(outputs, outputs_of(graph_.nodes[user]));
    std::vector<Part> parts;
    for (const ValueId id : inputs) parts.push_back(part_of(id, outputs, join ? sum : 1));
    const auto moves = [](const Part& part) { return !part.resizes.empty(); };
    const auto is_unknown = [](const Part& part) { return part.channels == 0; };
    if (std::ranges::none_of(parts, moves) || std::ranges::any_of(parts, is_unknown)) return no_value;

    std::vector<ValueId> stay, terms;
    std::vector<std::pair<int64_t, int64_t>> stay_channels;
    int64_t begin = 0;
    for (const Part& part : parts) {
      const std::pair<int64_t, int64_t> channels{begin, begin + part.channels};
      begin = channels.second;
      if (moves(part)) {
        terms.push_back(resized(node, part, mixed(node, copy_[part.data], {channels})));
      } else {
        stay.push_back(copy_[part.data]);
        stay_channels.push_back(channels);
      }
    }
    if (!stay.empty()) terms.push_back(mixed(node, joined(stay, join), stay_channels));
    return std::accumulate(terms.begin() + 1, terms.end(), terms[0],
                           [&](ValueId sum, ValueId term) { return copy_.add(node, "add", {sum, term})[0]; });
  }

  Graph& to() { return copy_.to(); }

  // The convolution of some of its channels.
  ValueId mixed(const Node& node, ValueId data, const std::vector<std::pair<int64_t, int64_t>>& channels) {
    const NDArray weight = columns_of(*graph_.values[node.inputs[1]].constant, channels);
    return to().add_node(*node.op, {data, to().add_constant(node.name + ".weight", weight)}, node.attributes,
                         node.name + ".part")[0];
  }

  ValueId joined(const std::vector<ValueId>& data, const Node* join) {
    return data.size() == 1 ? data[0] : to().add_node(*join->op, data, join->attributes, join->name + ".rest")[0];
  }

  // In the convolution's stead, if the part is all that it mixes.
  ValueId resized(const Node& node, const Part& part, ValueId data) {
    const Expr channels = to().values[data].type.shape[1];
    for (const Node* resize : part.resizes) {
      std::vector<ValueId> inputs = copy_.inputs_of(*resize);
      inputs[0] = data;
      const Node& stead = resize->outputs[0] == node.inputs[0] ? node : *resize;
      data = copy_.add(stead, *resize->op, inputs, attributes_for(graph_, *resize, 1, channels))[0];
    }
    return data;
  }

  // Of weights [out, in, 1, …].
  static NDArray columns_of(const NDArray& weight, const std::vector<std::pair<int64_t, int64_t>>& channels) {
    Shape shape = weight.shape();
    const int64_t all = std::exchange(shape[1], 0), size = weight.dtype().bytes();
    for (const auto& [begin, end] : channels) shape[1] += end - begin;
    NDArray result(weight.dtype(), shape);
    const auto* from = static_cast<const std::byte*>(weight.data());
    auto* to = static_cast<std::byte*>(result.data());
    for (int64_t row = 0; row < shape[0]; ++row) {
      for (const auto& [begin, end] : channels) {
        std::memcpy(to, from + (row * all + begin) * size, static_cast<size_t>((end - begin) * size));
        to += (end - begin) * size;
      }
    }
    return result;
  }

  const Graph& graph_;
  const Uses uses_;
  GraphCopy copy_;
};

}  // namespace

Graph move_resizes(const Graph& graph) {
  return ResizeMover(graph).run();
}

}  // namespace tw::relay
