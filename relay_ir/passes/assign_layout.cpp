// Activations of convolutional networks in blocks of channels, [n, c // b, h, w, c % b]: the b channels that a vector
// holds lie side by side, so that convolutions, pools and what stands between them read and write whole vectors.
//
//   y = conv(x, w); p = max_pool(y); z = reshape(p)
//   ⇒
//   y = conv(x, w): … in c16; p = max_pool(y): … in c16; p' = convert_layout(p); z = reshape(p')
//
// Types stay logical; only how a value is stored changes.  Convolutions start blocked values, operators that keep
// channels apart hand them on, and everything else reads row-major: a conversion is put in front of it, one for each
// value; so is what 1 × 1 convolutions of many filters read, before a map grows or joins others.  On tensor cores,
// which multiply 16-bit floats, tf32, bytes and floats of 8 bits, only convolutions of these start them; what a thread
// copies at once is a block, so that networks of bytes have 16 channels in one where those of 16 bits have 8, and those
// of tf32 4.  A convolution that nobody reads in blocks writes row-major itself.  Values with one element a channel are
// left alone: both layouts of them are alike.
#include <algorithm>
#include <numeric>

#include "relay_ir/op.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "runtime/rounding.h"
#include "targets/analysis/lanes.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

class LayoutAssignment {
 public:
  LayoutAssignment(const Graph& graph, const Target& target)
      : graph_(graph),
        target_(target),
        has_tensor_cores_(target.tensor_core_rate > 0),
        bytes_of_access_(target.vector_bits / 8),
        block_(has_tensor_cores_ ? bytes_of_access_ / of_tensor_cores(graph).bytes() : target.lanes(f32)),
        uses_(graph),
        is_blocked_(graph.values.size(), false),
        is_wanted_(graph.values.size(), false) {
    has_bytes_ = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      return convolution(node) && graph.values[node.inputs[0]].type.dtype.bytes() == 1;
    });
  }

  Graph run() {
    for (const Node& node : graph_.nodes) {
      if (node.outputs.size() == 1) is_blocked_[node.outputs[0]] = gives_blocks(node);
    }
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) make_wanted(*node);
    for (const Node& node : graph_.nodes) leave_plain(node);
    GraphCopy copy(graph_);
    for (const Node& node : graph_.nodes) {
      if (is_item(node)) {  // reads one number
        copy.copy(node);
        continue;
      }
      const bool reads_blocked = reads_blocks(node);
      const ValueId out = node.outputs[0];
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs) {
        if (id != no_value && is_blocked_[id] && !reads_blocked) {
          inputs.push_back(converted(copy, id, 0));
        } else if (id != no_value && !is_blocked_[id] && needs_blocks(node) && !graph_.is_constant(id) &&
                   is_eligible(id)) {
          inputs.push_back(converted(copy, id, block_of(id)));
        } else {
          inputs.push_back(copy[id]);
        }
      }
      copy.copy(node, inputs);
      if (is_blocked_[out]) copy.to().values[copy[out]].channel_block = block_of(out);
    }
    for (const ValueId id : graph_.outputs)
      if (is_blocked_[id]) copy.set(id, converted(copy, id, 0));
    return copy.finish();
  }

 private:
  Shape shape(ValueId id) const { return typical_shape(graph_.values[id].type); }

  // Tiles, tensor cores or dot products multiply such elements, in words along the channels.
  bool has_words(ValueId id) const {
    const DType dtype = graph_.values[id].type.dtype;
    if (has_tensor_cores_) return dtype == bf16 || dtype == f16 || dtype == i8 || dtype == u8 || is_float8(dtype);
    const auto takes = [&](Intrinsic product) {
      const TensorInstruction* instruction = find_tensor_instruction(to_text(product));
      return instruction && instruction->description.buffers[0]->dtype == dtype;
    };
    return std::ranges::any_of(target_.tiles.products, takes) ||
           std::ranges::any_of(target_.instructions, takes, &MachineInstruction::intrinsic);
  }
  bool has_whole_words(ValueId id) const {
    return shape(id)[1] * graph_.values[id].type.dtype.bytes() % f32.bytes() == 0;
  }
  // …the node's data, which may be of tf32.
  bool multiplies_words(const Node& node) const { return is_of_tf32(node) || has_words(node.inputs[0]); }
  static bool is_of_tf32(const Node& node) {
    return node.attributes.has("operands") && node.attributes.get_string("operands") == "tf32";
  }

  // What tensor cores multiply beside bytes.
  DType of_tensor_cores(const Graph& graph) const {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                       [&](const Node& node) { return is_of_tf32(node) && convolution(node); })
               ? f32
               : bf16;
  }

  // A vector's lanes, or as much of a row of a tile as small elements fill with whole blocks: the fewest.  Products of
  // bytes take blocks that are not full as well, since zeros weigh nothing there, where these waste little.
  int64_t block_of(ValueId id) {
    if (has_tensor_cores_) return has_bytes_ && shape(id)[1] % bytes_of_access_ == 0 ? bytes_of_access_ : block_;
    if (!has_words(id)) return block_;
    const int64_t bytes = graph_.values[id].type.dtype.bytes(), channels = shape(id)[1];
    const auto blocks = [&](int64_t block) { return divide_up(channels, block); };
    int64_t best = block_;
    for (int64_t block = 2 * block_; block * bytes <= target_.tiles.row_bytes; block *= 2) {
      const bool is_small =
          bytes == 1 ? blocks(block) * block * 4 <= blocks(block_) * block_ * 5 : channels % block == 0;
      if (is_small && blocks(block) < blocks(best)) best = block;
    }
    return best;
  }

  // Worth blocking: numbers with space, and channels that fill most of a block; for tensor cores whole ones, as they
  // are copied.
  bool is_eligible(ValueId id) {
    const DType dtype = graph_.values[id].type.dtype;
    if (dtype.is_bool() || dtype == i64 || dtype == u64) return false;
    const Shape dims = shape(id);
    if (dims.size() < 3 || element_count(dims) == 0) return false;
    if (has_tensor_cores_ ? dims[1] % block_ != 0 : dims[1] * 4 < block_ * 3) return false;
    const std::vector<Expr>& type = graph_.values[id].type.shape;
    return element_count(dims) > dims[0] * dims[1] ||
           std::any_of(type.begin() + 2, type.end(), [](const Expr& dim) { return !as_int(dim); });
  }

  int64_t count_blocked_inputs(const Node& node) const {
    return std::count_if(node.inputs.begin(), node.inputs.end(),
                         [&](ValueId id) { return id != no_value && is_blocked_[id]; });
  }

  // Of a convolution, be it direct, transposed or Winograd's.
  std::optional<Linear> convolution(const Node& node) const {
    const auto form = linear_of(graph_, node);
    return form && form->has_window ? form : std::nullopt;
  }

  // Groups that share blocks are stored in pieces of blocks: these must not be too small.
  bool is_blockable(const Node& node, const Linear& form) {
    const int64_t in = shape(node.inputs[0])[1], out = shape(node.outputs[0])[1], groups = form.groups;
    if (groups == 1 || (groups == in && groups == out)) return true;
    return std::gcd(out / groups, block_) * 4 >= block_ && in / groups > 1 && out / groups > 1;
  }

  // Of more than one element.
  bool has_large_window(const Node& node) const {
    const std::vector<AxisUse> data = axes_of(graph_, node)[0];
    return std::any_of(data.begin() + 2, data.end(),
                       [](const AxisUse& use) { return use.kind == AxisUse::Kind::window && use.size > 1; });
  }

  // A window's sums for so few filters that vectors of neighbours along the map's rows are better filled: at least
  // twice as well as vectors of filters.
  bool has_few_filters(const Node& node, const Linear& form) {
    if (form.groups != 1 || !may_take_words(node) || graph_.values[node.inputs[0]].type.dtype != f32) return false;
    if (!has_large_window(node) || axes_of(graph_, node)[0].back().stride != 1) return false;
    const TensorType& type = graph_.values[node.outputs[0]].type;
    const auto row = as_int(type.shape.back());
    const int lanes = static_cast<int>(block_);
    return 2 * analysis::share_of_lanes(shape(node.outputs[0])[1], lanes) <=
           (row ? analysis::share_of_lanes(*row, lanes) : 1);
  }

  // Every output element comes from input elements of its own channel, or of whole blocks, and of its own image: of the
  // same place, or of one that data says.
  bool keeps_channels(const Node& node) {
    if (node.op->kind != OpKind::elementwise && node.op->kind != OpKind::injective &&
        node.op->kind != OpKind::reduction) {
      return false;
    }
    const Shape out = shape(node.outputs[0]);
    if (out.size() < 3) return false;
    const AxisUses uses = axes_of(graph_, node);
    for (size_t i = 0; i < uses.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == no_value || (!is_blocked_[id] && !is_joined(uses[i][1]))) continue;
      const bool has_axes = shape(id).size() == out.size() && stays_in_image(uses[i][0]);
      if (!has_axes || !(uses[i][1].is_same(1) || takes_blocks(node, id, uses[i][1]))) return false;
      for (size_t d = 2; d < out.size(); ++d)
        if (!is_free(uses[i][d]) && uses[i][d].axis != static_cast<int>(d)) return false;
    }
    return true;
  }

  static bool is_joined(const AxisUse& use) { return use.kind == AxisUse::Kind::runs; }
  static bool is_free(const AxisUse& use) {
    return use.kind == AxisUse::Kind::fixed || use.kind == AxisUse::Kind::unknown;
  }
  static bool stays_in_image(const AxisUse& use) {
    return use.kind == AxisUse::Kind::fixed || use.is_same(0) || (is_joined(use) && use.axis == 0);
  }

  // Runs of channels that are whole blocks; or any runs, but whole inputs, of what lies in blocks.
  bool takes_blocks(const Node& node, ValueId id, const AxisUse& channels) {
    if (!is_joined(channels) || channels.runs.empty()) return false;
    if (node.inputs.size() == 1 || joins_whole(graph_, node)) {
      const int64_t block = block_of(node.inputs.size() == 1 ? id : node.outputs[0]);
      return std::all_of(channels.runs.begin(), channels.runs.end(), [&](const AxisUse::Run& run) {
        return run.from % block == 0 && run.count % block == 0 && run.step == 1;
      });
    }
    return is_blocked_[id];
  }

  bool gives_blocks(const Node& node) {
    if (!is_eligible(node.outputs[0])) return false;
    if (const auto form = convolution(node))
      return graph_.is_constant(node.inputs[1]) && is_blockable(node, *form) &&
             (!has_tensor_cores_ || multiplies_words(node) || (form->groups > 1 && count_blocked_inputs(node) > 0));
    return count_blocked_inputs(node) > 0 && keeps_channels(node);
  }

  // Lanes of the result are lanes of the inputs: element by element, or of a convolution that keeps channels apart.  Or
  // lanes of the inputs are words.
  bool needs_blocks(const Node& node) {
    const auto form = convolution(node);
    if (form && may_take_words(node) && graph_.is_constant(node.inputs[1]) && is_blockable(node, *form) &&
        multiplies_words(node) && has_whole_words(node.inputs[0])) {
      return true;
    }
    if (!is_blocked_[node.outputs[0]]) return false;
    return node.op->kind == OpKind::elementwise || is_wanted_[node.outputs[0]] ||
           (form && ((may_take_words(node) && form->groups > 1) || rereads_elements(node, *form)));
  }
  // Each element meets so many filters, one after the other, that converting it once, which reads and writes it, is
  // little beside their multiplications.  The data of a larger window is copied anyway.
  bool rereads_elements(const Node& node, const Linear& form) {
    constexpr int64_t many_filters = 128;
    return form.groups == 1 && node.op->facts.rounding == Rounding::multiplies &&
           shape(node.outputs[0])[1] >= many_filters && !has_large_window(node);
  }
  // Multiplies data and weights as they lie.
  static bool may_take_words(const Node& node) {
    return node.op->facts.rounding == Rounding::multiplies && node.op->facts.operands > 1;
  }

  // What everybody needs in blocks is made in blocks, where that converts no more elements than its own: of a larger
  // map's source, or of what is joined along the channels.
  void make_wanted(const Node& node) {
    const auto needs = [&](int user) {
      const Node& reader = graph_.nodes[user];
      return reader.outputs.size() == 1 && needs_blocks(reader);
    };
    if (node.outputs.size() != 1) return;
    const ValueId out = node.outputs[0];
    const std::vector<int>& users = uses_.users[out];
    if (is_blocked_[out] || uses_.is_output[out] || users.empty() || !std::ranges::all_of(users, needs)) return;
    std::vector<ValueId> data;
    int64_t elements = 0;
    for (const ValueId id : node.inputs) {
      if (id == no_value || is_blocked_[id] || graph_.is_constant(id) || !is_eligible(id)) continue;
      data.push_back(id);
      elements += element_count(shape(id));
    }
    for (const ValueId id : data) is_blocked_[id] = true;  // as it would be
    is_wanted_[out] = elements <= element_count(shape(out)) && gives_blocks(node);
    for (const ValueId id : data) is_blocked_[id] = false;
    is_blocked_[out] = is_wanted_[out];
  }

  // Puts the channels last, or something like that: a copy that takes whole blocks as they are.
  bool transposes(const Node& node) const {
    if (is_permutation(graph_, node)) return true;
    if (node.op->kind != OpKind::view || node.outputs.size() != 1) return false;
    const auto& users = uses_.users[node.outputs[0]];
    return std::any_of(users.begin(), users.end(), [&](int user) {
      return transposes(graph_.nodes[user]) && !interleaves(node, graph_.nodes[user]);
    });
  }

  // The view splits the channels, and the transpose puts an outer part of them last: neighbours of a block are apart.
  bool interleaves(const Node& view, const Node& transpose) const {
    if (!is_permutation(graph_, transpose)) return false;
    const Shape from = shape(view.inputs[0]), to = shape(view.outputs[0]);
    if (from.size() < 2) return false;
    const int last = axes_of(graph_, transpose)[0].back().axis;
    int64_t images = 1, channels = 1;
    int axis = 0, first = 0;
    while (axis < static_cast<int>(to.size()) && images < from[0]) images *= to[static_cast<size_t>(axis++)];
    first = axis;
    while (axis < static_cast<int>(to.size()) && channels < from[1]) channels *= to[static_cast<size_t>(axis++)];
    return images == from[0] && channels == from[1] && last >= first && last + 1 < axis;
  }

  // What a convolution makes, alone or with operators on its elements, stays row-major where everything that reads it
  // wants it so: it is transposed while it is in registers.
  void leave_plain(const Node& node) {
    const auto form = convolution(node);
    const bool is_one_group = form && may_take_words(node) && form->groups == 1;
    if (!is_one_group || !is_blocked_[node.outputs[0]]) return;
    std::vector<ValueId> made{node.outputs[0]};
    while (uses_.users[made.back()].size() == 1 && !uses_.is_output[made.back()]) {
      const Node& user = graph_.nodes[uses_.users[made.back()][0]];
      if (user.op->kind != OpKind::elementwise || count_blocked_inputs(user) != 1 || user.outputs.size() != 1) break;
      made.push_back(user.outputs[0]);
    }
    const auto& users = uses_.users[made.back()];
    const bool is_read_plain = std::none_of(users.begin(), users.end(), [&](int user) {
      const Node& node = graph_.nodes[user];
      return reads_blocks(node) || transposes(node);
    });
    if (!is_read_plain) return;
    for (const ValueId id : made) is_blocked_[id] = false;
  }

  // Whether the node is as well off with blocked inputs.
  bool reads_blocks(const Node& node) {
    if (count_blocked_inputs(node) == 0) return false;
    if (const auto form = convolution(node))
      return !is_blocked_[node.inputs[1]] && is_blockable(node, *form) && !has_few_filters(node, *form);
    if (node.outputs.size() != 1 || !keeps_channels(node)) return false;
    return is_blocked_[node.outputs[0]] || node.op->kind == OpKind::reduction;
  }

  ValueId converted(GraphCopy& copy, ValueId id, int64_t block) {
    const auto found = conversions_.find(id);
    if (found != conversions_.end()) return found->second;
    const ValueId result = copy.to().add_node("convert_layout", {copy[id]}, {},
                                              graph_.values[id].name + (block ? ".blocked" : ".plain"))[0];
    copy.to().values[result].channel_block = block;
    return conversions_[id] = result;
  }

  const Graph& graph_;
  const Target& target_;
  const bool has_tensor_cores_;
  const int64_t bytes_of_access_;
  const int64_t block_;     // of values that tiles do not multiply: a vector, or an access to memory that brings words
  bool has_bytes_ = false;  // that convolutions multiply
  const Uses uses_;
  std::vector<bool> is_blocked_;                      // by ValueId
  std::vector<bool> is_wanted_;                       // by ValueId: in blocks for those that read it
  std::unordered_map<ValueId, ValueId> conversions_;  // to the other layout
};

}  // namespace

Graph assign_layout(const Graph& graph, const PassContext& context) {
  if (context.target.lanes(f32) < 2) return graph;
  return LayoutAssignment(graph, context.target).run();
}

}  // namespace tw::relay
