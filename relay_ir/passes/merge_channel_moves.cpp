// Channels that several operators move in turn are moved once, from where they were computed.
//
//   j = concat(a, b) {axis = 1}; s = shuffle(j); x = slice(s) {axes = [1]}; y = conv(x, w)
//     ⇒   x = select_channels(a, b) {inputs = [0, 1], starts = [29, 29], counts = [29, 29]}; y = conv(x, w')
//
// shuffle: reshape to [n, g, c / g, …], transpose to [n, c / g, g, …], reshape back.  Where everything that reads the
// channels multiplies them by constant weights, their order is free: they come sorted by where they are from, which
// makes runs of them, and the weights are permuted instead.  A permutation passes through depthwise convolutions,
// pools and elementwise operators with constants on its way to such weights.
#include <algorithm>
#include <numeric>
#include <set>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

constexpr size_t most_runs = 32;  // of one selection: beyond, as the model says
constexpr int most_moves = 64;    // in a row

struct Source {
  ValueId value = no_value;  // of the old graph; not moved itself
  int64_t channel = 0;
  auto operator<=>(const Source&) const = default;
};

struct Run {
  ValueId value = no_value;
  int64_t start = 0, count = 0;
};

std::vector<Run> runs_of(const std::vector<Source>& sources) {
  std::vector<Run> runs;
  for (const Source& s : sources) {
    if (!runs.empty() && runs.back().value == s.value && runs.back().start + runs.back().count == s.channel) {
      ++runs.back().count;
    } else {
      runs.push_back({s.value, s.channel, 1});
    }
  }
  return runs;
}

// The array with its `axis` in the order `order`.
NDArray permute(const NDArray& array, int axis, const Ints& order) {
  int64_t outer = 1, inner = array.dtype().bytes();
  for (int d = 0; d < axis; ++d) outer *= array.shape()[d];
  for (int d = axis + 1; d < array.rank(); ++d) inner *= array.shape()[d];
  const auto count = static_cast<int64_t>(order.size());
  NDArray result = array.clone();
  const auto* from = static_cast<const std::byte*>(array.data());
  auto* to = static_cast<std::byte*>(result.data());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(from + (o * count + order[i]) * inner, inner, to + (o * count + i) * inner);
  }
  return result;
}

class ChannelMoves {
 public:
  explicit ChannelMoves(const Graph& graph) : copy_(graph), uses_(graph) {}

  Graph run() {
    for (const Node& node : from().nodes) {
      if (is_move(node)) {
        if (remember(node)) continue;
        materialise(node.outputs[0]);
      } else {
        copy_permuted(node);
      }
    }
    for (const ValueId id : from().outputs) get(id);
    return copy_.finish();
  }

 private:
  struct Move {
    std::vector<Source> sources;  // by channel; empty: not understood
    int depth = 1;                // moves in a row
  };

  const Graph& from() const { return copy_.from(); }
  Shape shape(ValueId id) const { return typical_shape(from().values[id].type); }
  // Another order of elements, or some of them: nothing is computed.
  bool is_move(const Node& node) const {
    return node.op->kind == OpKind::view || is_strided(from(), node) || joins_whole(from(), node);
  }

  // ---- where channels come from

  // Empty: they are as many as a run says.
  std::vector<Source> sources_of(ValueId id) {
    if (const auto found = moves_.find(id); found != moves_.end() && !found->second.sources.empty())
      return found->second.sources;
    std::vector<Source> own;
    const int64_t channels = as_int(from().values[id].type.shape[1]).value_or(0);
    for (int64_t c = 0; c < channels; ++c) own.push_back({id, c});
    return own;
  }

  // Notes the move for later; false: it has to happen now.
  bool remember(const Node& node) {
    const ValueId out = node.outputs[0];
    Move move;
    bool has_constant = false;
    for (const ValueId id : node.inputs) {
      has_constant |= from().is_constant(id);
      if (const auto found = moves_.find(id); found != moves_.end())
        move.depth = std::max(move.depth, found->second.depth + 1);
    }
    if (move.depth > most_moves) return false;
    const std::vector<Expr>& type = from().values[out].type.shape;
    if (!has_constant && type.size() >= 3 && as_int(type[1]).value_or(1) > 1) move.sources = moved(node);
    moves_[out] = std::move(move);
    return true;
  }

  std::vector<Source> moved(const Node& node) {
    if (node.op->kind == OpKind::view) return shuffled(node);
    std::vector<Source> result(shape(node.outputs[0])[1]);
    const AxisUses uses = axes_of(from(), node);
    for (size_t i = 0; i < uses.size(); ++i) {
      for (size_t d = 0; d < uses[i].size(); ++d)
        if (d != 1 && !uses[i][d].is_same(static_cast<int>(d))) return {};
      if (uses[i][1].axis != 1 || uses[i][1].runs.empty()) return {};
      const auto all = sources_of(node.inputs[i]);
      if (all.empty()) return {};
      for (const AxisUse::Run& run : uses[i][1].runs)
        for (int64_t c = 0; c < run.count; ++c) result.at(run.to + c) = all.at(run.from + c * run.step);
    }
    return result;
  }

  std::vector<Source> shuffled(const Node& node) {
    const Node* transpose = made_by(from(), uses_, node.inputs[0], "transpose");
    const Node* reshape = transpose ? made_by(from(), uses_, transpose->inputs[0], "reshape") : nullptr;
    if (!reshape) return {};
    const ValueId x = reshape->inputs[0];
    const Shape outer = shape(x), inner = shape(reshape->outputs[0]);
    if (outer != shape(node.outputs[0]) || outer.size() < 3 || inner.size() != outer.size() + 1) return {};
    Ints swapped(inner.size());
    std::iota(swapped.begin(), swapped.end(), 0);
    std::swap(swapped[1], swapped[2]);
    if (transpose->attributes.get_ints("perm") != swapped || inner[0] != outer[0]) return {};
    if (!std::equal(outer.begin() + 2, outer.end(), inner.begin() + 3)) return {};
    const int64_t groups = inner[1], width = inner[2];
    const auto all = sources_of(x);
    if (all.empty()) return {};
    std::vector<Source> result;
    for (int64_t c = 0; c < groups * width; ++c) result.push_back(all[c % groups * width + c / groups]);
    return result;
  }

  // ---- whether the order of channels is free

  // What reads the value does not care in which order its channels are, once its constants are permuted.
  bool is_order_free(ValueId id) {
    if (uses_.is_output[id] || shape(id).size() < 3) return false;
    if (const auto known = order_free_.find(id); known != order_free_.end()) return known->second;
    bool is_free = true;
    for (const int user : uses_.users[id]) {
      const Node& node = from().nodes[user];
      is_free =
          is_free && !is_move(node) && (consumes(node, id) || (passes_on(node, id) && is_order_free(node.outputs[0])));
    }
    return order_free_[id] = is_free;
  }

  // A sum over all channels, with constant weights.
  bool consumes(const Node& node, ValueId data) const {
    const auto form = linear_of(from(), node);
    return form && form->groups == 1 && form->data_axis == 1 && node.inputs[0] == data && node.inputs[1] != data &&
           from().is_constant(node.inputs[1]);
  }
  // Channels stay apart and in order, beside constants.
  bool passes_on(const Node& node, ValueId data) {
    const ValueId out = node.outputs[0];
    if (node.outputs.size() != 1 || shape(out).size() < 3 || node.op->kind == OpKind::composite ||
        node.op->kind == OpKind::opaque) {
      return false;
    }
    const AxisUses uses = axes_of(from(), node);
    for (size_t i = 0; i < uses.size(); ++i) {
      const ValueId id = node.inputs[i];
      const AxisUse& channels = uses[i][1];
      const bool is_beside =
          id == no_value ||
          (from().is_constant(id) && (channels.kind == AxisUse::Kind::same || channels.kind == AxisUse::Kind::fixed));
      const bool is_along = id == data && channels.is_same(1) && shape(id).size() == shape(out).size();
      if (!is_beside && !is_along) return false;
    }
    return true;
  }

  // ---- the new graph

  ValueId get(ValueId id) {
    if (id != no_value && moves_.count(id) && done_.insert(id).second) materialise(id);
    return copy_[id];
  }

  void materialise(ValueId id) {
    done_.insert(id);
    const Node& node = from().nodes[uses_.producer[id]];
    const auto found = moves_.find(id);
    if (found != moves_.end() && found->second.depth > 1 && !found->second.sources.empty()) {
      std::vector<Source> sources = found->second.sources;
      if (is_order_free(id)) {
        Ints order(sources.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return sources[a] < sources[b]; });
        std::sort(sources.begin(), sources.end());
        if (!std::is_sorted(order.begin(), order.end())) order_[id] = std::move(order);
      }
      const std::vector<Run> runs = runs_of(sources);
      if (runs.size() <= most_runs) return copy_.set(id, select(node, runs));
      order_.erase(id);
    }
    for (const ValueId input : node.inputs) get(input);
    copy_.copy(node);
  }

  ValueId select(const Node& node, const std::vector<Run>& runs) {
    std::vector<ValueId> inputs;
    Ints from_input, starts, counts;
    bool is_whole = true;  // whole inputs, one after the other
    for (const Run& run : runs) {
      const ValueId now = get(run.value);
      auto at = std::find(inputs.begin(), inputs.end(), now);
      is_whole = is_whole && at == inputs.end() && run.count == shape(run.value)[1];
      if (at == inputs.end()) at = inputs.insert(inputs.end(), now);
      from_input.push_back(at - inputs.begin()), starts.push_back(run.start), counts.push_back(run.count);
    }
    if (is_whole && inputs.size() == 1) return inputs[0];
    if (is_whole) return copy_.add(node, "concat", inputs, attributes_of({{"axis", int64_t{1}}}))[0];
    return copy_.add(node, "select_channels", inputs,
                     attributes_of({{"inputs", from_input}, {"starts", starts}, {"counts", counts}}))[0];
  }

  ValueId permuted_constant(ValueId id, int axis, const Ints& order) {
    return copy_.to().add_constant(from().values[id].name, permute(*from().values[id].constant, axis, order));
  }

  void copy_permuted(const Node& node) {
    const Ints* order = nullptr;
    for (const ValueId id : node.inputs) {
      if (!from().is_constant(id)) get(id);
      if (const auto found = order_.find(id); found != order_.end()) order = &found->second;
    }
    if (!order) return copy_.copy(node);
    const auto form = linear_of(from(), node);
    const bool is_end = form && form->groups == 1;
    const AxisUses uses = axes_of(from(), node);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      const int axis = is_end ? form->weight_axis : uses[i][1].axis;  // of the channels, in a constant
      const bool has_channels = from().is_constant(id) && axis >= 0 && (is_end ? i == 1 : uses[i][1].is_same(axis));
      inputs.push_back(has_channels ? permuted_constant(id, axis, *order) : get(id));
    }
    copy_.copy(node, inputs);
    if (!is_end) order_[node.outputs[0]] = *order;
  }

  GraphCopy copy_;
  const Uses uses_;
  std::unordered_map<ValueId, Move> moves_;  // by result, of the old graph
  std::set<ValueId> done_;                   // results of moves that the new graph has
  std::unordered_map<ValueId, Ints> order_;  // new channel i of the value is its old channel order[i]
  std::unordered_map<ValueId, bool> order_free_;
};

}  // namespace

Graph merge_channel_moves(const Graph& graph) {
  return ChannelMoves(graph).run();
}

}  // namespace tw::relay
