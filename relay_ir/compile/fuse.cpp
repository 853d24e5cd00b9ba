// Which nodes become one Func.
//
// A group has one last node, its sink, whose results alone leave the group; what is inside is used inside only.  So
// groups in the order of their sinks are in topological order.  A group is grown from each node towards its producers:
//
//   elementwise  takes up elementwise and injective producers of its own shape; and one contraction, reduction or
//                composite of its own shape, whose epilogue it then is
//   injective    takes up elementwise and injective producers that it does not enlarge
//   reduction    takes up elementwise producers of what it reduces
//   depthwise    takes up the contraction that makes its channels, with its epilogue, where a pass has decided so
//   attention    takes up transposes and slices of its inputs, and the transpose of its result: it reads and writes
//                with any strides
//
// Large concatenations stand alone, but channels in blocks that are put together take an epilogue like a contraction's.
// Views are in no group: they are other names of the same bytes.  Updates in place are groups of their own, and what
// reads the elements that they overwrite ends its group, so that order_groups can put it before them.
#include <algorithm>
#include <set>

#include "relay_ir/compile/group.h"
#include "relay_ir/compile/lower_selection.h"
#include "relay_ir/in_place.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/view.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

constexpr size_t max_group_nodes = 48;

// The part of a group that decides what may join it.
enum class Weight { light, anchored, closed };

struct Cluster {
  std::vector<int> nodes;  // ascending; the sink is the last
  Weight weight = Weight::light;
  bool is_elementwise = true;  // every node is
  bool has_contraction = false;
  bool takes_strides = false;      // the anchor does
  bool only_moves = false;         // transposes and slices
  bool is_selection = false;       // of channels in blocks, alone
  bool reads_overwritten = false;  // elements of before an update in place
  bool is_absorbed = false;
};

class Fuser {
 public:
  explicit Fuser(const Graph& graph)
      : graph_(graph), uses_(graph), viewed_(viewed_values(graph)), clusters_(graph.nodes.size()) {
    for (const Node& node : graph.nodes)
      if (overwrites(node)) overwritten_.insert(viewed_[node.inputs[0]]);
  }

  std::vector<Group> run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const OpKind kind = node.op->kind;
      Cluster& cluster = clusters_[i];
      cluster.nodes = {static_cast<int>(i)};
      cluster.is_elementwise = kind == OpKind::elementwise;
      cluster.has_contraction = kind == OpKind::contraction;
      cluster.takes_strides = node.op->facts.takes_strides;
      cluster.only_moves = is_strided(graph_, node);
      cluster.is_selection = is_blocked_selection(graph_, node);
      const bool is_alone = kind == OpKind::opaque || is_view(i) || node.outputs.size() > 1 || is_large_concat(node) ||
                            cluster.is_selection || is_in_place(node);
      const bool is_light = kind == OpKind::elementwise || kind == OpKind::injective;
      cluster.weight = is_alone ? Weight::closed : is_light ? Weight::light : Weight::anchored;
      cluster.reads_overwritten = reads_overwritten(node);
      while (absorb_one(static_cast<int>(i))) {
      }
    }
    std::vector<Group> groups;
    for (size_t i = 0; i < clusters_.size(); ++i) {
      if (!clusters_[i].is_absorbed && !is_view(i)) groups.push_back(make_group(clusters_[i]));
    }
    return groups;
  }

 private:
  bool reads_overwritten(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return id != no_value && overwritten_.count(viewed_[id]); });
  }

  bool is_view(size_t node) const { return view_offset(graph_, graph_.nodes[node]).has_value(); }

  Expr elements(ValueId id) const { return product_of(graph_.values[id].type.shape); }

  // Copying its parts is faster than selecting among them in every element of a larger expression.
  bool is_large_concat(const Node& node) const {
    return joins_whole(graph_, node) && element_count(typical_shape(graph_.values[node.outputs[0]].type)) > 8192;
  }

  // Producers of what the cluster alone reads, latest first.
  std::vector<int> candidate_producers(const Cluster& cluster) const {
    const std::set<int> members(cluster.nodes.begin(), cluster.nodes.end());
    std::set<int, std::greater<>> result;
    for (const int node : cluster.nodes) {
      for (const ValueId input : graph_.nodes[node].inputs) {
        if (input == no_value || uses_.is_output[input]) continue;
        const int producer = uses_.producer[input];
        if (producer < 0 || members.count(producer) || clusters_[producer].is_absorbed) continue;
        const auto& users = uses_.users[input];
        if (std::all_of(users.begin(), users.end(), [&](int user) { return members.count(user) != 0; })) {
          result.insert(producer);
        }
      }
    }
    // Contractions first: a residual sum is the epilogue of the convolution, not of the pool beside it.
    std::vector<int> ordered(result.begin(), result.end());
    std::stable_partition(ordered.begin(), ordered.end(), [&](int sink) { return clusters_[sink].has_contraction; });
    return ordered;
  }

  bool may_absorb(int sink, int producer) const {
    const Cluster &cluster = clusters_[sink], &other = clusters_[producer];
    if (cluster.weight == Weight::closed || (other.weight == Weight::closed && !other.is_selection)) return false;
    if (cluster.nodes.size() + other.nodes.size() > max_group_nodes || other.reads_overwritten) return false;
    const ValueId value = graph_.nodes[producer].outputs[0];
    if (takes_expansion(sink, producer)) return true;
    if (other.is_selection) return cluster.weight == Weight::light && is_epilogue(cluster, value);
    if (other.weight == Weight::anchored) {
      const bool is_written_so =
          other.takes_strides && cluster.nodes.size() == 1 && is_permutation(graph_, graph_.nodes[sink]);
      return cluster.weight == Weight::light && (is_written_so || is_epilogue(cluster, value));
    }
    if (cluster.takes_strides) return other.only_moves && is_operand(cluster, value);
    const OpKind kind = graph_.nodes[sink].op->kind;
    if (cluster.weight == Weight::anchored) {
      // Producers of a reduction's input; of its epilogue only what is computed element by element beside it.
      if (kind == OpKind::contraction || kind == OpKind::composite) return false;
      if (is_conversion_beside(cluster, producer)) return true;
      for (const int node : cluster.nodes) {
        const OpKind inner = graph_.nodes[node].op->kind;
        if (inner == OpKind::contraction || inner == OpKind::composite) return false;
      }
      return other.is_elementwise && is_never_enlarged(cluster, value);
    }
    return is_never_enlarged(cluster, value);
  }

  // As fuse_expansions has decided; in blocks of channels, whose layout the kernel wants.
  bool takes_expansion(int sink, int producer) const {
    const Node &node = graph_.nodes[sink], &first = graph_.nodes[clusters_[producer].nodes[0]];
    return clusters_[sink].nodes.size() == 1 && decided(node.decisions, "fuse_expansion") == 1 &&
           first.op->kind == OpKind::contraction && graph_.values[first.inputs[0]].channel_block > 0 &&
           graph_.values[node.outputs[0]].channel_block > 0;
  }

  // Not a mask or the like.
  bool is_operand(const Cluster& cluster, ValueId value) const {
    return std::all_of(cluster.nodes.begin(), cluster.nodes.end(), [&](int index) {
      const Node& node = graph_.nodes[index];
      const auto beside = node.inputs.begin() + std::min<ptrdiff_t>(node.inputs.size(), node.op->facts.operands);
      return !node.op->facts.takes_strides || std::find(beside, node.inputs.end(), value) == node.inputs.end();
    });
  }

  // A conversion of the element type of what an epilogue reads beside its contraction is part of the load.
  bool is_conversion_beside(const Cluster& cluster, int producer) const {
    const Node& made = graph_.nodes[producer];
    const ValueId value = made.outputs[0];
    if (clusters_[producer].nodes.size() != 1 || made.op->kind != OpKind::elementwise || made.inputs.size() != 1 ||
        graph_.values[made.inputs[0]].type.dtype == graph_.values[value].type.dtype) {
      return false;
    }
    return std::all_of(cluster.nodes.begin(), cluster.nodes.end(), [&](int node) {
      const auto& inputs = graph_.nodes[node].inputs;
      const bool reads = std::find(inputs.begin(), inputs.end(), value) != inputs.end();
      return !reads || graph_.nodes[node].op->kind == OpKind::elementwise;
    });
  }

  // Every node of the cluster works element by element on values of this value's shape.
  bool is_epilogue(const Cluster& cluster, ValueId value) const {
    if (!cluster.is_elementwise) return false;
    const std::vector<Expr>& shape = graph_.values[value].type.shape;
    return std::all_of(cluster.nodes.begin(), cluster.nodes.end(), [&](int node) {
      return is_same_shape(graph_.values[graph_.nodes[node].outputs[0]].type.shape, shape);
    });
  }

  // No user computes an element of the value more than once because its own result is larger.
  bool is_never_enlarged(const Cluster& cluster, ValueId value) const {
    const Expr size = elements(value);
    for (const int node : cluster.nodes) {
      const auto& inputs = graph_.nodes[node].inputs;
      if (std::find(inputs.begin(), inputs.end(), value) == inputs.end()) continue;
      if (graph_.nodes[node].op->kind == OpKind::reduction || joins_whole(graph_, graph_.nodes[node])) continue;
      if (!can_prove(elements(graph_.nodes[node].outputs[0]) <= size)) return false;
    }
    return true;
  }

  bool absorb_one(int sink) {
    Cluster& cluster = clusters_[sink];
    for (const int producer : candidate_producers(cluster)) {
      if (!may_absorb(sink, producer)) continue;
      Cluster& other = clusters_[producer];
      cluster.nodes.insert(cluster.nodes.end(), other.nodes.begin(), other.nodes.end());
      std::sort(cluster.nodes.begin(), cluster.nodes.end());
      if (other.weight != Weight::light) cluster.weight = other.weight;
      cluster.is_elementwise = cluster.is_elementwise && other.is_elementwise;
      cluster.has_contraction = cluster.has_contraction || other.has_contraction;
      cluster.takes_strides = cluster.takes_strides || other.takes_strides;
      cluster.only_moves = cluster.only_moves && other.only_moves;
      other.is_absorbed = true;
      return true;
    }
    return false;
  }

  Group make_group(const Cluster& cluster) const {
    std::string name;
    for (size_t i = 0; i < cluster.nodes.size() && i < 3; ++i) {
      name += (i ? "+" : "") + graph_.nodes[cluster.nodes[i]].name;
    }
    if (cluster.nodes.size() > 3) name += "+" + std::to_string(cluster.nodes.size() - 3);
    return group_of(graph_, cluster.nodes, name);
  }

  const Graph& graph_;
  const Uses uses_;
  const std::vector<ValueId> viewed_;
  std::set<ValueId> overwritten_;  // values that are no views
  std::vector<Cluster> clusters_;  // by sink
};

}  // namespace

std::vector<Group> fuse(const Graph& graph) {
  return Fuser(graph).run();
}

Group group_of(const Graph& graph, std::vector<int> nodes, std::string name) {
  Group group{std::move(nodes), {}, {}, std::move(name)};
  group.outputs = graph.nodes[group.nodes.back()].outputs;
  std::set<ValueId> seen;
  for (const int index : group.nodes) {
    const Node& node = graph.nodes[index];
    std::copy_if(node.inputs.begin(), node.inputs.end(), std::back_inserter(group.inputs),
                 [&](ValueId id) { return id != no_value && seen.insert(id).second; });
    seen.insert(node.outputs.begin(), node.outputs.end());
  }
  return group;
}

}  // namespace tw::relay
