// Which nodes become one Func.
//
// A group has one last node, its sink, whose results leave the group; what else leaves it is used by what comes after
// the sink only.  So groups in the order of their sinks are in topological order.  A group is grown from each node
// towards its producers:
//
//   elementwise  takes up elementwise and injective producers of its own shape; and one contraction, reduction or
//                composite of its own shape, whose epilogue it then is
//   injective    takes up elementwise and injective producers that it does not enlarge
//   reduction    takes up elementwise producers of what it reduces
//   depthwise    takes up the contraction that makes its channels, with its epilogue, where a pass has decided so
//   convolution  takes up the pad of its data, where a pass has decided so
//   conversion   takes up nothing, where a pass has decided that it is computed of what is stored; what it makes is
//                taken up like a load
//   attention    takes up transposes and slices of its inputs, and the transpose of its result: it reads and writes
//                with any strides
//
// Where the columns of a product are equal parts that are combined element by element (the gates of a recurrent
// network, the halves of a GLU), the product takes up all that does so: none of it can be done before all parts are
// there, and then they are in registers.  Results in between leave the group where others use them, as the state of an
// LSTM's cell.
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
#include "relay_ir/pass.h"
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
  bool is_at_load = false;         // begins with a conversion of what is stored
  bool reads_overwritten = false;  // elements of before an update in place
  bool is_absorbed = false;
  std::vector<ValueId> exports;  // results of nodes before the sink that leave the group
};

class Fuser {
 public:
  Fuser(const Graph& graph, const std::set<std::string>& unfused)
      : graph_(graph),
        uses_(with_stored(graph, unfused)),
        viewed_(viewed_values(graph)),
        clusters_(graph.nodes.size()) {
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
      cluster.is_at_load = is_at_load(node);
      const bool is_alone = kind == OpKind::opaque || is_view(i) || node.outputs.size() > 1 || is_large_concat(node) ||
                            cluster.is_selection || is_in_place(node);
      const bool is_light = kind == OpKind::elementwise || kind == OpKind::injective;
      cluster.weight = is_alone ? Weight::closed : is_light ? Weight::light : Weight::anchored;
      cluster.reads_overwritten = reads_overwritten(node);
      while (absorb_one(static_cast<int>(i))) {
      }
    }
    // From the last on: what is made of all parts takes up what is made of some.
    for (size_t i = graph_.nodes.size(); i-- > 0;) absorb_parts(static_cast<int>(i));
    std::vector<Group> groups;
    for (size_t i = 0; i < clusters_.size(); ++i) {
      if (!clusters_[i].is_absorbed && !is_view(i)) groups.push_back(make_group(clusters_[i]));
    }
    return groups;
  }

 private:
  // What unfused nodes read and give is stored as outputs are.
  static Uses with_stored(const Graph& graph, const std::set<std::string>& unfused) {
    Uses uses(graph);
    for (const Node& node : graph.nodes) {
      if (!is_named(node, unfused)) continue;
      for (const ValueId id : node.inputs)
        if (id != no_value) uses.is_output[id] = true;
      for (const ValueId id : node.outputs) uses.is_output[id] = true;
    }
    return uses;
  }

  bool reads_overwritten(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return id != no_value && overwritten_.count(viewed_[id]); });
  }

  bool is_view(size_t node) const { return view_offset(graph_, graph_.nodes[node]).has_value(); }

  // As widen_at_loads has decided.
  static bool is_at_load(const Node& node) { return decided(node.decisions, "at_load") == 1; }

  Expr elements(ValueId id) const { return product_of(graph_.values[id].type.shape); }

  // Copying its parts is faster than selecting among them in every element of a larger expression: where these are
  // many, or the parts are, whose sizes are not known.
  bool is_large_concat(const Node& node) const {
    constexpr int64_t most_elements = 8192;
    constexpr size_t most_parts = 8;
    if (!joins_whole(graph_, node)) return false;
    const TensorType& type = graph_.values[node.outputs[0]].type;
    return element_count(typical_shape(type)) > most_elements ||
           (node.inputs.size() > most_parts && !static_shape(type));
  }

  // Producers of what the cluster alone reads, latest first.
  std::vector<int> candidate_producers(const Cluster& cluster) const {
    const std::set<int> members(cluster.nodes.begin(), cluster.nodes.end());
    std::set<int, std::greater<>> result;
    for (const int node : cluster.nodes) {
      if (is_at_load(graph_.nodes[node])) continue;
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
    if (takes_expansion(sink, producer) || takes_padding(sink, producer)) return true;
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

  // As fuse_pads has decided.
  bool takes_padding(int sink, int producer) const {
    const Node& node = graph_.nodes[sink];
    return clusters_[sink].nodes.size() == 1 && clusters_[producer].nodes.size() == 1 &&
           decided(node.decisions, "fuse_padding") == 1 && node.inputs[0] == graph_.nodes[producer].outputs[0];
  }

  // Not a mask or the like.
  bool is_operand(const Cluster& cluster, ValueId value) const {
    return std::all_of(cluster.nodes.begin(), cluster.nodes.end(), [&](int index) {
      const Node& node = graph_.nodes[index];
      const auto beside = node.inputs.begin() + std::min<ptrdiff_t>(node.inputs.size(), node.op->facts.operands);
      return !node.op->facts.takes_strides || std::find(beside, node.inputs.end(), value) == node.inputs.end();
    });
  }

  // A conversion of the element type of what an epilogue reads beside its contraction is part of the load, and so are
  // scale and shift behind one that is decided to be.
  bool is_conversion_beside(const Cluster& cluster, int producer) const {
    const Node& made = graph_.nodes[producer];
    const Cluster& other = clusters_[producer];
    const ValueId value = made.outputs[0];
    const bool is_conversion = other.nodes.size() == 1 && made.op->kind == OpKind::elementwise &&
                               made.inputs.size() == 1 &&
                               graph_.values[made.inputs[0]].type.dtype != graph_.values[value].type.dtype;
    if (!is_conversion && !(other.is_at_load && other.is_elementwise && is_never_enlarged(cluster, value)))
      return false;
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
      absorb(cluster, clusters_[producer]);
      return true;
    }
    return false;
  }

  void absorb(Cluster& cluster, Cluster& other) {
    cluster.nodes.insert(cluster.nodes.end(), other.nodes.begin(), other.nodes.end());
    std::sort(cluster.nodes.begin(), cluster.nodes.end());
    if (other.weight != Weight::light) cluster.weight = other.weight;
    cluster.is_elementwise = cluster.is_elementwise && other.is_elementwise;
    cluster.has_contraction = cluster.has_contraction || other.has_contraction;
    cluster.takes_strides = cluster.takes_strides || other.takes_strides;
    cluster.only_moves = cluster.only_moves && other.only_moves;
    cluster.is_at_load = cluster.is_at_load || other.is_at_load;
    other.is_absorbed = true;
  }

  // The cluster that a node is in.
  int cluster_of(int node) const {
    for (size_t sink = static_cast<size_t>(node); sink < clusters_.size(); ++sink) {
      const Cluster& cluster = clusters_[sink];
      if (!cluster.is_absorbed && std::binary_search(cluster.nodes.begin(), cluster.nodes.end(), node))
        return static_cast<int>(sink);
    }
    return -1;
  }

  // Whether the node takes one of several equal parts, of this shape, along the last axis of its input: more than a
  // column, of which vectors are made.
  bool is_part(int index, const std::vector<Expr>& shape) const {
    const Node& node = graph_.nodes[index];
    if (!is_strided(graph_, node) || !is_same_shape(graph_.values[node.outputs[0]].type.shape, shape)) return false;
    const auto uses = axes_of(graph_, node)[0];
    const auto extent = as_int(shape.back()), whole = as_int(graph_.values[node.inputs[0]].type.shape.back());
    for (size_t d = 0; d + 1 < uses.size(); ++d)
      if (!uses[d].is_same(static_cast<int>(d))) return false;
    const AxisUse& last = uses.back();
    return last.kind == AxisUse::Kind::runs && last.axis + 1 == static_cast<int>(uses.size()) &&
           last.runs.size() == 1 && last.runs[0].step == 1 && extent.value_or(1) > 1 && whole &&
           *whole % *extent == 0 && last.runs[0].from % *extent == 0;
  }

  // A product of f32 with weights, whose columns are the last axis of both.  (Those of fewer bits are made by other
  // instructions, whose tiles hold no parts.)
  bool has_columns(const Cluster& cluster) const {
    if (cluster.weight != Weight::anchored || !cluster.has_contraction) return false;
    const Node& node = graph_.nodes[*std::find_if(cluster.nodes.begin(), cluster.nodes.end(), [&](int index) {
      return graph_.nodes[index].op->kind == OpKind::contraction;
    })];
    const auto linear = linear_of(graph_, node);
    return linear && linear->groups == 1 && !linear->has_window && linear->filter_axis >= 0 &&
           graph_.is_constant(node.inputs[1]) &&
           linear->result_axis + 1 == graph_.values[node.outputs[0]].type.rank() &&
           graph_.values[node.inputs[0]].type.dtype == f32 && graph_.values[node.inputs[1]].type.dtype == f32;
  }

  // Works element by element on values of this shape, wherever they lie, and on parts of this value.
  bool combines_parts(const Cluster& cluster, ValueId whole, const std::vector<Expr>& shape) const {
    return cluster.weight == Weight::light && !cluster.is_absorbed &&
           std::all_of(cluster.nodes.begin(), cluster.nodes.end(), [&](int index) {
             const Node& node = graph_.nodes[index];
             const bool is_moved = is_strided(graph_, node);
             if (is_moved && node.inputs[0] == whole) return is_part(index, shape);
             return (is_moved || node.op->kind == OpKind::elementwise) &&
                    is_same_shape(graph_.values[node.outputs[0]].type.shape, shape);
           });
  }

  // The product of which a node of the cluster, or a view that it reads, is a part.
  ValueId whole_of_parts(const Cluster& cluster, const std::vector<Expr>& shape) const {
    const auto is_of_product = [&](int index) {
      if (index < 0 || !is_part(index, shape)) return false;
      const int product = uses_.producer[graph_.nodes[index].inputs[0]];
      return product >= 0 && !clusters_[product].is_absorbed && has_columns(clusters_[product]);
    };
    for (const int index : cluster.nodes) {
      if (is_of_product(index)) return graph_.nodes[index].inputs[0];
      for (const ValueId input : graph_.nodes[index].inputs) {
        const int producer = input == no_value ? -1 : uses_.producer[input];
        if (is_of_product(producer)) return graph_.nodes[producer].inputs[0];
      }
    }
    return no_value;
  }

  // The product of whose parts the sink is made, and what else is made of them.
  void absorb_parts(int sink) {
    Cluster& cluster = clusters_[sink];
    if (cluster.weight != Weight::light || cluster.is_absorbed || graph_.nodes[sink].outputs.size() != 1) return;
    const std::vector<Expr> shape = graph_.values[graph_.nodes[sink].outputs[0]].type.shape;
    const ValueId whole = shape.empty() ? no_value : whole_of_parts(cluster, shape);
    if (whole == no_value || uses_.is_output[whole]) return;
    Cluster& product = clusters_[uses_.producer[whole]];
    if (product.reads_overwritten) return;
    std::set<int> together{sink}, views;
    for (const int user : uses_.users[whole]) {
      if (!is_part(user, shape)) return;
      if (!is_view(static_cast<size_t>(user))) {
        together.insert(cluster_of(user));
        continue;
      }
      if (uses_.is_output[graph_.nodes[user].outputs[0]]) return;
      views.insert(user);
      for (const int reader : uses_.users[graph_.nodes[user].outputs[0]]) together.insert(cluster_of(reader));
    }
    size_t count = product.nodes.size() + views.size();
    for (const int other : together) {
      if (other < 0 || other > sink || clusters_[other].reads_overwritten) return;
      if (!combines_parts(clusters_[other], whole, shape)) return;
      count += clusters_[other].nodes.size();
    }
    if (count > max_group_nodes) return;
    std::vector<ValueId> made;
    for (const int other : together) {
      if (other == sink) continue;
      made.push_back(graph_.nodes[other].outputs[0]);
      for (const int user : uses_.users[made.back()])
        if (user < sink && together.count(cluster_of(user)) == 0) return;
    }
    for (const int view : views) absorb(cluster, clusters_[view]);
    absorb(cluster, product);
    for (const int other : together)
      if (other != sink) absorb(cluster, clusters_[other]);
    for (const ValueId id : made) {
      const auto& users = uses_.users[id];
      const bool is_inside = std::all_of(users.begin(), users.end(), [&](int user) {
        return std::binary_search(cluster.nodes.begin(), cluster.nodes.end(), user);
      });
      if (uses_.is_output[id] || !is_inside) cluster.exports.push_back(id);
    }
  }

  Group make_group(const Cluster& cluster) const {
    std::string name;
    for (size_t i = 0; i < cluster.nodes.size() && i < 3; ++i) {
      name += (i ? "+" : "") + graph_.nodes[cluster.nodes[i]].name;
    }
    if (cluster.nodes.size() > 3) name += "+" + std::to_string(cluster.nodes.size() - 3);
    Group group = group_of(graph_, cluster.nodes, name);
    group.outputs.insert(group.outputs.end(), cluster.exports.begin(), cluster.exports.end());
    return group;
  }

  const Graph& graph_;
  const Uses uses_;
  const std::vector<ValueId> viewed_;
  std::set<ValueId> overwritten_;  // values that are no views
  std::vector<Cluster> clusters_;  // by sink
};

}  // namespace

std::vector<Group> fuse(const Graph& graph, const std::set<std::string>& unfused) {
  return Fuser(graph, unfused).run();
}

Group group_of(const Graph& graph, std::vector<int> nodes, std::string name) {
  Group group{std::move(nodes), {}, {}, {}, std::move(name)};
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

const Node* control_of(const Graph& graph, const Group& group) {
  if (group.nodes.size() != 1) return nullptr;
  const Node& node = graph.nodes[group.nodes[0]];
  return node.regions.empty() && !is_item(node) && !node.op->is_on_host ? nullptr : &node;
}

}  // namespace tw::relay
