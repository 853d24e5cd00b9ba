// What is quantised is moved as codes, of a quarter of the bytes.  d(x) = (x - zero point) · scale, as DequantizeLinear
// is imported, and q(x) = cast(clip(round(x / scale) + zero point)):
//
//   y = transpose(d(x))          ⇒   y = d(transpose(x))             scales of channels with them
//   y = concat(d(a), d(b))       ⇒   y = d(concat(a, b))             of one scale
//   y = q(reshape(x))            ⇒   y = reshape(q(x))               and so of concat(d(a), d(b)) of several
//   y = q(d(x)), with one scale  ⇒   y = x
//
// The same of max_pool of integers: the larger number has the larger code.  Of floats of 8 bits, which have no zero
// point, q(x) = cast(clip(x / scale)).  For targets that multiply such codes.
#include <algorithm>
#include <cmath>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/passes/quantised.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

// q(x).
struct Quantisation {
  ValueId x = no_value;
  const Node *scaled = nullptr, *round = nullptr, *shifted = nullptr, *clip = nullptr,
             *last = nullptr;  // round: null of floats; shifted: or null
  double scale = 0, zero_point = 0;
};

class Mover {
 public:
  Mover(const Graph& graph, const Target& target) : target_(target), uses_(graph), copy_(graph) {}

  Graph run() {
    static const RulesByOp<Rule> rules = {{"cast", &Mover::quantised}};
    return copy_.rewrite([&](const Node& node) {
      if (node.outputs.size() != 1) return no_value;
      if (const Rule* rule = rules.find(node)) return (this->**rule)(node);
      return moves(node) ? dequantised(node) : no_value;
    });
  }

 private:
  using Rule = ValueId (Mover::*)(const Node&);

  const Graph& from() const { return copy_.from(); }
  Graph& to() { return copy_.to(); }
  DType dtype_of(ValueId now) { return to().values[now].type.dtype; }
  std::optional<double> number(ValueId now) { return uniform_number(to(), now); }

  bool moves(const Node& node) const {
    return node.outputs.size() == 1 && node.op->facts.rounding == Rounding::moves &&
           from().values[node.outputs[0]].type.dtype == f32;
  }
  static size_t operands_of(const Node& node) {
    return std::min(node.inputs.size(), static_cast<size_t>(node.op->facts.operands));
  }

  ValueId add(const Node& node, const char* op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return to().add_node(op, std::move(inputs), std::move(attributes), node.name + "." + op)[0];
  }
  ValueId moved(const Node& node, const std::vector<ValueId>& inputs) {
    return to().add_node(*node.op, inputs, node.attributes, node.name + ".codes")[0];
  }

  // ---------------------------------------------------------------------------------------------------------------
  // Of what was quantised

  ValueId dequantised(const Node& node) {
    std::vector<ValueId> inputs = copy_.inputs_of(node);
    std::optional<Quantised> all;
    for (size_t i = 0; i < operands_of(node); ++i) {
      const auto own = find_quantised(copy_, inputs[i]);
      if (!own || !is_movable(node, *own) || (all && !is_same_scale(*own, *all))) return no_value;
      all = own;
      inputs[i] = own->codes;
    }
    if (!all) return no_value;
    all->scale = beside(node, all->scale), all->zero_point = beside(node, all->zero_point);
    ValueId whole = moved(node, inputs);
    if (!is_float8(dtype_of(all->codes))) whole = add(node, "cast", {whole}, attributes_of({{"to", "i32"}}));
    if (all->zero_point != no_value) whole = add(node, "subtract", {whole, all->zero_point});
    const NodeAttributes to_f32 = attributes_of({{"to", "f32"}});
    if (all->scale == no_value) return copy_.add(node, "cast", {whole}, to_f32)[0];
    return copy_.add(node, "multiply", {add(node, "cast", {whole}, to_f32), all->scale})[0];
  }

  // Codes of 8 bits that the target multiplies.
  bool is_movable(const Node& node, const Quantised& x) {
    if (!takes(node, dtype_of(x.codes))) return false;
    const bool is_scalar = has_one_scale(to(), x) && (x.scale == no_value || to().values[x.scale].type.rank() == 0);
    if (!is_scalar) return is_permutation(from(), node);
    if (x.scale == no_value) return true;
    return node.op->kind != OpKind::reduction || number(x.scale).value_or(0) > 0;
  }

  bool takes(const Node& node, DType codes) const {
    return code_product_rate(codes, target_) >= 1 && (node.op->takes_narrow || !codes.is_narrow());
  }

  // A scale or zero point for what is moved: with axes in another order where it has axes.
  ValueId beside(const Node& node, ValueId parameter) {
    if (parameter == no_value || to().values[parameter].type.rank() == 0) return parameter;
    std::vector<Expr> shape = to().values[parameter].type.shape;
    const int rank = from().values[node.inputs[0]].type.rank();
    shape.insert(shape.begin(), static_cast<size_t>(rank) - shape.size(), Expr(1));
    const ValueId whole = add(node, "reshape", {parameter}, attributes_of({{"shape", shape}}));
    return to().add_node(*node.op, {whole}, node.attributes, node.name + ".scale")[0];
  }

  bool is_same_scale(const Quantised& a, const Quantised& b) {
    const auto is_same = [&](ValueId p, ValueId q) {
      return p == q || (p != no_value && q != no_value && number(p) && number(p) == number(q));
    };
    return dtype_of(a.codes) == dtype_of(b.codes) && is_same(a.scale, b.scale) && is_same(a.zero_point, b.zero_point);
  }

  // ---------------------------------------------------------------------------------------------------------------
  // Of what will be

  ValueId quantised(const Node& node) {
    const auto q = find_quantisation(node);
    if (!q) return no_value;
    const ValueId own = codes_of(q->x, *q);
    return own != no_value ? own : is_moved(q->x, *q) ? quantised(q->x, *q) : no_value;
  }

  // By one positive scale, to all codes of a byte.
  std::optional<Quantisation> find_quantisation(const Node& node) const {
    Quantisation q{.last = &node};
    const DType dtype = from().values[node.outputs[0]].type.dtype;
    if (code_product_rate(dtype, target_) < 1) return std::nullopt;
    q.clip = made_by(from(), uses_, node.inputs[0], "clip");
    if (!q.clip) return std::nullopt;
    const auto [low, high] = limits_of_codes(dtype);
    if (q.clip->attributes.get_float("low") != low || q.clip->attributes.get_float("high") != high) return std::nullopt;
    ValueId rounded = q.clip->inputs[0];
    if (!is_float8(dtype)) {
      q.shifted = made_by(from(), uses_, rounded, "add");
      const auto zero_point = q.shifted ? uniform_number(from(), q.shifted->inputs[1]) : 0;
      q.round = made_by(from(), uses_, (q.shifted ? q.shifted : q.clip)->inputs[0], "round");
      if (!q.round || !zero_point) return std::nullopt;
      q.zero_point = *zero_point;
      rounded = q.round->inputs[0];
    }
    const Node* divided = made_by(from(), uses_, rounded, "divide");
    q.scaled = divided ? divided : made_by(from(), uses_, rounded, "multiply");
    const ValueId factor = q.scaled ? q.scaled->inputs[1] : no_value;
    const bool is_single = q.scaled && from().is_constant(factor) && from().values[factor].type.rank() == 0;
    if (!is_single) return std::nullopt;
    const double number = *uniform_number(from(), factor);
    q.x = q.scaled->inputs[0], q.scale = divided ? number : 1 / number;
    constexpr double least = 1e-30, most = 1e30;  // products with a code are neither subnormal nor infinite
    return q.scale >= least && q.scale <= most ? std::optional(q) : std::nullopt;
  }

  // The codes of which x was made, where they are those that q makes of it.
  ValueId codes_of(ValueId x, const Quantisation& q) {
    const auto own = find_quantised(copy_, copy_[x]);
    const DType dtype = from().values[q.last->outputs[0]].type.dtype;
    // Infinity of f8e5m2 would become a number.
    if (!own || dtype_of(own->codes) != dtype || dtype == f8e5m2) return no_value;
    const auto zero_point = own->zero_point == no_value ? 0 : number(own->zero_point);
    const auto scale = own->scale == no_value ? 1 : number(own->scale);
    return scale == q.scale && zero_point == q.zero_point ? own->codes : no_value;
  }

  // By an operator that moves elements for q alone.
  bool is_moved(ValueId x, const Quantisation& q) const {
    const int maker = uses_.producer[x];
    if (maker < 0 || !uses_.is_used_once(x)) return false;
    const Node& node = from().nodes[static_cast<size_t>(maker)];
    return moves(node) && takes(node, from().values[q.last->outputs[0]].type.dtype);
  }

  ValueId quantised(ValueId x, const Quantisation& q) {
    if (const ValueId own = codes_of(x, q); own != no_value) return own;
    if (is_moved(x, q)) {
      const Node& node = from().nodes[static_cast<size_t>(uses_.producer[x])];
      std::vector<ValueId> inputs = copy_.inputs_of(node);
      for (size_t i = 0; i < operands_of(node); ++i) inputs[i] = quantised(node.inputs[i], q);
      return moved(node, inputs);
    }
    ValueId y = to().add_node(*q.scaled->op, {copy_[x], copy_[q.scaled->inputs[1]]}, {}, q.scaled->name)[0];
    if (q.round) y = add(*q.last, "round", {y});
    if (q.shifted) y = add(*q.last, "add", {y, copy_[q.shifted->inputs[1]]});
    y = add(*q.last, "clip", {y}, q.clip->attributes);
    return add(*q.last, "cast", {y}, q.last->attributes);
  }

  const Target& target_;
  const Uses uses_;
  GraphCopy copy_;
};

}  // namespace

Graph move_codes(const Graph& graph, const PassContext& context) {
  return code_product_rate(u8, context.target) >= 1 ? Mover(graph, context.target).run() : graph;
}

}  // namespace tw::relay
