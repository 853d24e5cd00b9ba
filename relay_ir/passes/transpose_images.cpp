// Transposes beside convolutions are of the image's own axes: reshapes that make rows of tokens of them go to the
// transpose's other side, and what works on single elements goes in front, into the convolution.
//
//   t = transpose(x: f32[1, 3136, 64]); i = reshape(t): f32[1, 64, 56, 56]; y = conv(i, w)
//     ⇒   r = reshape(x): f32[1, 56, 56, 64]; i = transpose(r): f32[1, 64, 56, 56]; y = conv(i, w)
//   y = conv(i, w); r = reshape(y): f32[1, 64, 3136]; t = transpose(r): f32[1, 3136, 64]; z = gelu(t)
//     ⇒   z' = gelu(conv(i, w)); t = transpose(z'): f32[1, 56, 56, 64]; z = reshape(t): f32[1, 3136, 64]
//
// A transpose then takes or gives blocks of channels as they lie (assign_layout), and reshapes are no work.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;
using Dims = std::vector<Expr>;

// By axis of `coarse`: the axes of `fine` that it is made of; nothing where it is not made of whole ones.
std::optional<std::vector<Ints>> made_of(const Dims& coarse, const Dims& fine) {
  std::vector<Ints> parts;
  size_t next = 0;
  for (const Expr& dim : coarse) {
    Ints part;
    Expr size(1);
    do {
      if (next == fine.size()) return std::nullopt;
      size = simplify(size * fine[next]);
      part.push_back(static_cast<int64_t>(next++));
    } while (!is_same_dim(size, dim));
    parts.push_back(std::move(part));
  }
  if (next != fine.size()) return std::nullopt;
  return parts;
}

bool is_identity(const Ints& order) {
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] != static_cast<int64_t>(i)) return false;
  return true;
}

class ImageTransposer {
 public:
  explicit ImageTransposer(const Graph& graph) : graph_(graph), copy_(graph), uses_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes) {
      if (is_done_.count(&node) || delay(node)) continue;
      for (const ValueId id : node.inputs) materialise(id);
      if (!reshape_before(node)) copy_.copy(node);
    }
    for (const ValueId id : graph_.outputs) materialise(id);
    return copy_.finish();
  }

 private:
  // What is made of a convolution's image: reshape(transpose(image, order), shape of the value).
  struct Delayed {
    ValueId image = no_value;  // of the new graph
    Ints order;                // its axes
  };

  const Dims& shape(ValueId id) const { return graph_.values[id].type.shape; }
  const Node* only_user(ValueId id) const {
    const auto& users = uses_.users[id];
    return users.size() == 1 && !uses_.is_output[id] ? &graph_.nodes[users[0]] : nullptr;
  }
  bool is_convolution(const Node& node) const {
    const auto form = linear_of(graph_, node);
    return form && form->has_window;
  }

  // ---- behind a convolution

  // By a convolution, alone or with operators on its elements.
  bool is_made_by_convolution(ValueId id) const {
    while (id != no_value && uses_.producer[id] >= 0) {
      const Node& node = graph_.nodes[uses_.producer[id]];
      if (is_convolution(node)) return true;
      if (node.op->kind != OpKind::elementwise) return false;
      id = node.inputs[0];
    }
    return false;
  }

  // Works on the elements of one value, beside numbers.
  bool is_on_elements(const Node& node) const {
    return node.op->kind == OpKind::elementwise && !node.op->states_shapes && node.outputs.size() == 1 &&
           std::all_of(node.inputs.begin() + 1, node.inputs.end(), [&](ValueId id) {
             return id == no_value || (graph_.is_constant(id) && graph_.values[id].type.rank() == 0);
           });
  }

  bool delay(const Node& node) {
    if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs[0] == no_value) return false;
    const ValueId x = node.inputs[0], out = node.outputs[0];
    if (!only_user(x)) return false;
    const auto found = delayed_.find(x);
    if (found == delayed_.end()) {
      const bool is_begin = node.op->kind == OpKind::view || is_permutation(graph_, node);
      if (!is_begin || shape(x).size() < 3 || !is_made_by_convolution(x)) return false;
    }
    Delayed now = found == delayed_.end() ? Delayed{copy_[x], axes(shape(x).size())} : found->second;
    if (is_permutation(graph_, node)) {
      const auto parts = made_of(shape(x), permuted(now));
      if (!parts) return false;
      Ints order;
      for (const int64_t axis : node.attributes.get_ints("perm"))
        for (const int64_t part : (*parts)[static_cast<size_t>(axis)]) order.push_back(now.order[part]);
      now.order = std::move(order);
    } else if (node.op->kind == OpKind::view) {
      if (!made_of(shape(out), permuted(now))) return false;
    } else if (is_on_elements(node)) {
      std::vector<ValueId> inputs{now.image};
      for (size_t i = 1; i < node.inputs.size(); ++i)
        inputs.push_back(node.inputs[i] == no_value ? no_value : copy_[node.inputs[i]]);
      now.image = copy_.to().add_node(*node.op, inputs, node.attributes, node.name + ".image")[0];
    } else {
      return false;
    }
    delayed_[out] = std::move(now);
    return true;
  }

  static Ints axes(size_t rank) {
    Ints order(rank);
    std::iota(order.begin(), order.end(), 0);
    return order;
  }

  Dims permuted(const Delayed& delayed) {
    const Dims& image = copy_.to().values[delayed.image].type.shape;
    Dims result;
    for (const int64_t axis : delayed.order) result.push_back(image[static_cast<size_t>(axis)]);
    return result;
  }

  void materialise(ValueId id) {
    const auto found = id == no_value ? delayed_.end() : delayed_.find(id);
    if (found == delayed_.end()) return;
    const Node& node = graph_.nodes[uses_.producer[id]];
    ValueId now = found->second.image;
    if (!is_identity(found->second.order)) {
      const NodeAttributes perm = attributes_of({{"perm", found->second.order}});
      const bool is_last = is_same_shape(permuted(found->second), shape(id));
      now = is_last ? copy_.add(node, "transpose", {now}, perm)[0]
                    : copy_.to().add_node("transpose", {now}, perm, node.name + ".transpose")[0];
    }
    if (!is_same_shape(copy_.to().values[now].type.shape, shape(id)))
      now = copy_.add(node, "reshape", {now}, attributes_of({{"shape", shape(id)}}))[0];
    copy_.set(id, now);
    delayed_.erase(found);
  }

  // ---- in front of a convolution

  bool reshape_before(const Node& transpose) {
    if (!is_permutation(graph_, transpose)) return false;
    const Node* reshape = only_user(transpose.outputs[0]);
    if (!reshape || reshape->op->kind != OpKind::view) return false;
    const ValueId image = reshape->outputs[0];
    const auto& users = uses_.users[image];
    const bool is_for_convolution = std::any_of(users.begin(), users.end(), [&](int user) {
      const Node& node = graph_.nodes[user];
      return is_convolution(node) && node.inputs[0] == image;
    });
    const auto parts = made_of(shape(transpose.outputs[0]), shape(image));
    if (!is_for_convolution || !parts) return false;
    const Ints& perm = transpose.attributes.get_ints("perm");
    Dims rows;                        // of what the transpose reads
    Ints order(shape(image).size());  // of these, by axis of the image
    for (int64_t axis = 0; axis < static_cast<int64_t>(perm.size()); ++axis) {
      const size_t at = std::find(perm.begin(), perm.end(), axis) - perm.begin();
      for (const int64_t part : (*parts)[at]) {
        order[part] = static_cast<int64_t>(rows.size());
        rows.push_back(shape(image)[part]);
      }
    }
    const ValueId x = copy_[transpose.inputs[0]];
    const ValueId split =
        copy_.to().add_node("reshape", {x}, attributes_of({{"shape", rows}}), transpose.name + ".rows")[0];
    copy_.set(image, copy_.add(*reshape, "transpose", {split}, attributes_of({{"perm", order}}))[0]);
    is_done_.insert(reshape);
    return true;
  }

  const Graph& graph_;
  GraphCopy copy_;
  const Uses uses_;
  std::map<ValueId, Delayed> delayed_;  // by value of the old graph
  std::set<const Node*> is_done_;
};

}  // namespace

Graph transpose_images(const Graph& graph, const PassContext&) {
  return ImageTransposer(graph).run();
}

}  // namespace tw::relay
