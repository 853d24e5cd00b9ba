// Bytes are stored, and what they are widened to is computed where it is read: by each reader for itself.
//
//   d = multiply(cast(cast(x: u8): i32): f32, scale)        c = conv(x, w)
//   c = conv(x, w)                                     ⇒    d = … cast(x) {to = "i32"} decided "at_load=1" …
//   y = add(…, d); p = reduce_mean(d)                       y = add(…, d)
//                                                           d' = … cast(x) {to = "i32"} decided "at_load=1" …
//                                                           p = reduce_mean(d')
//
// Readers are operators element by element and reductions, into whose loops fusion then takes it.  Where others want
// the larger elements in memory, all read these.  Bytes that nobody else reads are better not stored at all: the last
// made operand of an operator stays with what makes it.
#include <algorithm>
#include <set>

#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

class Widener {
 public:
  Widener(const Graph& graph, const Target& target)
      : graph_(graph),
        target_(target),
        uses_(graph),
        copy_(graph),
        bytes_(graph.values.size(), no_value),
        readers_(graph.values.size()) {
    for (const Node& node : graph.nodes)
      if (const ValueId bytes = widened_by(node); bytes != no_value) bytes_[node.outputs[0]] = bytes;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (is_link(graph.nodes[i])) continue;
      for (const ValueId id : graph.nodes[i].inputs) add_reader(id, static_cast<int>(i));
    }
    for (const ValueId id : graph.outputs) add_reader(id, -1);
  }

  Graph run() {
    for (const Node& node : graph_.nodes) {
      if (is_link(node)) continue;  // made for who reads them
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(is_at_load(node, id) ? widened(id, true) : shared(id));
      copy_.copy(node, std::move(inputs));
    }
    for (const ValueId id : graph_.outputs) shared(id);
    return copy_.finish();
  }

 private:
  bool is_link(const Node& node) const { return node.outputs.size() == 1 && bytes_[node.outputs[0]] != no_value; }
  ValueId bytes_of(ValueId id) const { return bytes_[id] == no_value ? id : bytes_[id]; }
  bool takes_loads(const Node& node) const {
    return node.op->kind == OpKind::reduction || node.op->kind == OpKind::elementwise;
  }
  void add_reader(ValueId id, int reader) {
    if (id == no_value) return;
    readers_[bytes_of(id)].insert(reader);
    const bool takes_load = reader >= 0 && takes_loads(graph_.nodes[static_cast<size_t>(reader)]);
    if (bytes_[id] != no_value && !takes_load) is_stored_wide_.insert(bytes_[id]);
  }
  int maker_of(ValueId id) const { return uses_.producer[bytes_of(id)]; }

  // The bytes of which a conversion, a shift or a scale by what is known makes larger elements; no_value: of none.
  ValueId widened_by(const Node& node) const {
    enum class Link { conversion, shift, scale };
    static const RulesByOp<Link> links = {
        {"cast", Link::conversion}, {"add", Link::shift}, {"subtract", Link::shift}, {"multiply", Link::scale}};
    const Link* link = links.find(node);
    if (!link) return no_value;
    ValueId data = no_value;
    for (const ValueId id : node.inputs) {
      if (graph_.is_constant(id)) continue;
      if (data != no_value) return no_value;
      data = id;
    }
    if (data == no_value) return no_value;
    const TensorType &from = graph_.values[data].type, &to = graph_.values[node.outputs[0]].type;
    if (!is_same_shape(from.shape, to.shape) || to.dtype.bytes() == 1) return no_value;
    if (bytes_[data] != no_value) return bytes_[data];
    const bool is_first = *link == Link::conversion && code_product_rate(from.dtype, target_) > 0;
    return is_first ? data : no_value;
  }

  bool is_at_load(const Node& node, ValueId id) const {
    if (id == no_value || bytes_[id] == no_value || !takes_loads(node) || is_stored_wide_.contains(bytes_[id]))
      return false;
    if (node.op->kind == OpKind::reduction || readers_[bytes_[id]].size() > 1 || maker_of(id) < 0) return true;
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId other) { return other != no_value && maker_of(other) > maker_of(id); });
  }

  // The value for all who read it as it is.
  ValueId shared(ValueId id) {
    if (id == no_value || bytes_[id] == no_value) return copy_[id];
    if (!made_.contains(id)) made_.insert(id), copy_.set(id, widened(id, false));
    return copy_[id];
  }

  ValueId widened(ValueId id, bool is_at_load) {
    const Node& node = graph_.nodes[uses_.producer[id]];
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      const bool is_made = bytes_[input] != no_value;
      inputs.push_back(!is_made ? copy_[input] : is_at_load ? widened(input, true) : shared(input));
    }
    const ValueId result = copy_.add(node, *node.op, std::move(inputs), node.attributes)[0];
    if (is_at_load && bytes_[id] == node.inputs[0]) copy_.to().nodes.back().decisions["at_load"] = {1};
    return result;
  }

  const Graph& graph_;
  const Target& target_;
  const Uses uses_;
  GraphCopy copy_;
  std::vector<ValueId> bytes_;          // by ValueId: what it is widened from, or no_value
  std::vector<std::set<int>> readers_;  // by ValueId of bytes: nodes that read them or what they are widened to
  std::set<ValueId> is_stored_wide_;    // of bytes: what they are widened to is wanted in memory
  std::set<ValueId> made_;
};

}  // namespace

Graph widen_at_loads(const Graph& graph, const PassContext& context) {
  return Widener(graph, context.target).run();
}

}  // namespace tw::relay
