// Leading dimensions as one where some are open or the last of them is short: what works on rows of [batch, sequence,
// k] works on those of [batch · sequence, k].  Tiles of rows then run across batches, and one number tells a row's
// place. A sequence that comes before a batch of one ([197, 1, 768]) would have tiles of one row.
//
//   y = matmul(x, w): f32[b, s, n]         x' = reshape(x): f32[b * s, k]
//   z = add(y, bias): f32[b, s, n]    ⇒    y' = matmul(x', w): f32[b * s, n]
//                                          z' = add(y', bias); z = reshape(z'): f32[b, s, n]
//
// Products with one matrix, normalisations and softmax begin it; what works element by element carries it on.
#include <algorithm>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

class Flattener {
 public:
  explicit Flattener(const Graph& graph) : graph_(graph), copy_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes) {
      if (!flatten(node)) {
        for (const ValueId id : node.inputs) restore(id);
        copy_.copy(node);
      }
    }
    for (const ValueId id : graph_.outputs) restore(id);
    return copy_.finish();
  }

 private:
  const TensorType& type(ValueId id) const { return graph_.values[id].type; }

  // Several dimensions before the last one, some of them open, or the last of them shorter than tiles of rows are.
  bool has_loose_rows(ValueId id) const {
    constexpr int64_t short_rows = 8;
    const std::vector<Expr>& shape = type(id).shape;
    if (shape.size() < 3) return false;
    const auto is_one = [](const Expr& e) { return is_const_int(e, 1); };
    const Expr& last = shape[shape.size() - 2];
    const bool has_outer = !std::all_of(shape.begin(), shape.end() - 2, is_one);
    if (as_int(last).value_or(short_rows) < short_rows) return has_outer;
    return has_outer && !is_one(last) &&
           std::any_of(shape.begin(), shape.end() - 1, [](const Expr& e) { return !as_int(e); });
  }

  static std::vector<Expr> rows(const std::vector<Expr>& shape) {
    return {simplify(product_of({shape.begin(), shape.end() - 1})), shape.back()};
  }

  ValueId reshaped(ValueId now, const std::vector<Expr>& shape, const std::string& name) {
    return copy_.to().add_node("reshape", {now}, attributes_of({{"shape", shape}}), name)[0];
  }

  // The value as rows.
  ValueId flat(ValueId id) {
    const auto found = flat_.find(id);
    if (found != flat_.end()) return found->second;
    return flat_[id] = reshaped(copy_[id], rows(type(id).shape), graph_.values[id].name + ".rows");
  }

  // The value in its own shape, where a node has made rows of it.
  void restore(ValueId id) {
    if (id == no_value || !made_.erase(id)) return;
    copy_.set(id, reshaped(flat_.at(id), type(id).shape, graph_.values[id].name));
  }

  bool flatten(const Node& node) {
    if (node.outputs.size() != 1 || !has_loose_rows(node.outputs[0])) return false;
    std::vector<ValueId> inputs;
    if (!operands(node, inputs)) return false;
    const ValueId out = node.outputs[0];
    NodeAttributes attributes = node.attributes;
    if (attributes.has("axis")) attributes.set("axis", int64_t{1});
    flat_[out] = copy_.to().add_node(*node.op, inputs, attributes, node.name)[0];
    made_.insert(out);
    return true;
  }

  bool operands(const Node& node, std::vector<ValueId>& inputs) {
    if (works_on_rows(node)) {
      inputs = {flat(node.inputs[0])};
      for (size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(at(node.inputs[i]));
      return true;
    }
    if (node.op->kind != OpKind::elementwise || node.op->states_shapes) return false;
    const bool has_rows = std::any_of(node.inputs.begin(), node.inputs.end(),
                                      [&](ValueId id) { return id != no_value && made_.count(id); });
    if (!has_rows || node.attributes.has("axis")) return false;
    for (const ValueId id : node.inputs) {
      if (id != no_value && !is_row(id) && !is_same_shape(type(id).shape, type(node.outputs[0]).shape)) return false;
    }
    for (const ValueId id : node.inputs) {
      if (id == no_value) {
        inputs.push_back(id);
      } else if (!is_row(id)) {
        inputs.push_back(flat(id));
      } else {
        const bool is_long = type(id).rank() > 2;
        inputs.push_back(is_long ? reshaped(at(id), {type(id).shape.back()}, graph_.values[id].name + ".row") : at(id));
      }
    }
    return true;
  }

  // A product with one matrix, a normalisation or a softmax of rows: what is beside the rows is the same for all.
  bool works_on_rows(const Node& node) const {
    if (node.op->kind != OpKind::contraction && node.op->kind != OpKind::composite) return false;
    const AxisUses uses = axes_of(graph_, node);
    for (size_t i = 0; i < uses.size(); ++i) {
      if (i > 0 && node.inputs[i] != no_value && type(node.inputs[i]).rank() > 2) return false;
      for (size_t d = 0; d + 1 < uses[i].size(); ++d)
        if (i == 0 ? !uses[i][d].is_same(static_cast<int>(d)) : uses[i][d].kind != AxisUse::Kind::fixed) return false;
    }
    const AxisUse::Kind along = uses[0].back().kind;  // all of the row
    return along == AxisUse::Kind::whole || along == AxisUse::Kind::fixed;
  }

  // The same for every row.
  bool is_row(ValueId id) const {
    const std::vector<Expr>& shape = type(id).shape;
    return shape.empty() ||
           std::all_of(shape.begin(), shape.end() - 1, [](const Expr& e) { return is_const_int(e, 1); });
  }

  ValueId at(ValueId id) {
    restore(id);
    return copy_[id];
  }

  const Graph& graph_;
  GraphCopy copy_;
  std::unordered_map<ValueId, ValueId> flat_;  // old value → new one, as rows
  std::set<ValueId> made_;                     // those that exist as rows only, so far
};

}  // namespace

Graph flatten_rows(const Graph& graph) {
  return Flattener(graph).run();
}

}  // namespace tw::relay
