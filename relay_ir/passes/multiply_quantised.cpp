// Products of quantised data as products of their codes, which tensor cores and dot products of bytes multiply.
// d(x) = (x - zero point) · scale, as DequantizeLinear is imported:
//
//   y = conv(d(x), d(w))         ⇒   y = f32(conv(x, w): i32 - zero point of x · Σ w) · (scale of x · scales of w)
//   y = matmul(d(a), d(b))       ⇒   y = f32(matmul(a, b): i32 - …) · (…)
//   (f32(sum) · s + b + d(x)) / t  ⇒   f32(sum) · (s / t) + b / t + …   as it is quantised again: no run divides
//
// Sums of floats of 8 bits are f32, and theirs are products that f32 holds: y = conv(x, w): f32 · (scale of x · scales
// of w), where such codes, be they scaled or not, have no zero points.  So are products of what they are in f16 or
// bf16.
//
// Where each channel is a group of its own, CPUs have no dot products, and add faster in f32 what it holds exactly:
//
//   y = conv(d(x), d(w))         ⇒   y = (conv(x, f32(w)): f32 - zero point of x · Σ w) · (scale of x · scales of w)
//
// Data has one scale, weights one or one a filter.  Zero points of both leave the sums: Σ (a - z)(b - v) =
// Σ a·b - z · Σ b - v · Σ a + K·z·v, of which what is known is folded.  i32 holds the sums: products of so many terms
// that it might not are left alone.  Where dot products take codes of other signs, these are shifted by 128, and so are
// their zero points.  Results differ from those in f32 by rounding only: theirs of the sum, and ours of s / t and b /
// t.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/passes/code_sums.h"
#include "relay_ir/passes/padding.h"
#include "relay_ir/passes/quantised.h"
#include "relay_ir/pattern.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

class Multiplier {
 public:
  Multiplier(const Graph& graph, const PassContext& context) : copy_(graph), context_(context) {}

  Graph run() {
    static const RulesByOp<Rule> rules = {{"divide", &Multiplier::quotient}};
    return copy_.rewrite([&](const Node& node) {
      if (node.outputs.size() != 1 || is_named(node, context_.kept_nodes)) return no_value;
      const Rule* rule = rules.find(node);
      return rule ? (this->**rule)(node) : product(node);
    });
  }

 private:
  using Rule = ValueId (Multiplier::*)(const Node&);

  Graph& to() { return copy_.to(); }
  const TensorType& type(ValueId id) { return to().values[id].type; }
  std::optional<double> number(ValueId id) { return uniform_number(to(), id); }
  bool is_one(ValueId id) { return is_const_int(simplify(product_of(type(id).shape)), 1); }

  ValueId add(const Node& node, const std::string& op, std::vector<ValueId> inputs, NodeAttributes attributes = {}) {
    return to().add_node(op, std::move(inputs), std::move(attributes), node.name + "." + op)[0];
  }
  ValueId cast(const Node& node, ValueId x, DType dtype) {
    return type(x).dtype == dtype ? x : add(node, "cast", {x}, attributes_of({{"to", to_string(dtype)}}));
  }
  ValueId reshape(const Node& node, ValueId x, const std::vector<Expr>& shape) {
    return is_same_shape(type(x).shape, shape) ? x : add(node, "reshape", {x}, attributes_of({{"shape", shape}}));
  }

  // ---------------------------------------------------------------------------------------------------------------
  // Scales

  ValueId quotient(const Node& node) {
    const ValueId x = copy_[node.inputs[0]], by = copy_[node.inputs[1]];
    const bool is_scalar = type(by).rank() == 0 && type(by).dtype == f32 && number(by).value_or(0) > 0;
    return is_scalar && !to().is_constant(x) && is_scaled(x) ? divided(node, x, by) : no_value;
  }

  bool is_known(ValueId id) {
    if (to().is_constant(id)) return true;
    for (const char* op : {"multiply", "divide", "reshape"})
      if (const Node* made = copy_.made_by(id, op))
        return std::all_of(made->inputs.begin(), made->inputs.end(), [&](ValueId in) { return is_known(in); });
    return false;
  }

  // Integers times what is known, and sums of such.
  bool is_scaled(ValueId id) {
    if (is_known(id)) return true;
    if (const Node* made = copy_.made_by(id, "multiply")) {
      if (sums_.contains(made->inputs[0])) return is_known(made->inputs[1]);
      const Node* whole = copy_.made_by(made->inputs[0], "cast");
      return whole && type(whole->inputs[0]).dtype == i32 && is_known(made->inputs[1]);
    }
    for (const char* op : {"add", "relu"})
      if (const Node* made = copy_.made_by(id, op)) {
        const std::vector<ValueId> inputs = made->inputs;
        return std::all_of(inputs.begin(), inputs.end(), [&](ValueId in) { return is_scaled(in); });
      }
    return false;
  }

  // What is scaled, with its scales divided.
  ValueId divided(const Node& node, ValueId id, ValueId by) {
    if (is_known(id)) return add(node, "divide", {id, by});
    const auto named = [&](const char* op, std::vector<ValueId> inputs) {
      return copy_.add(node, op, std::move(inputs))[0];
    };
    if (const Node* made = copy_.made_by(id, "multiply")) {
      const ValueId whole = made->inputs[0], scale = made->inputs[1];
      return named("multiply", {whole, add(node, "divide", {scale, by})});
    }
    const Node* sum = copy_.made_by(id, "add");
    std::vector<ValueId> inputs = sum ? sum->inputs : copy_.made_by(id, "relu")->inputs;
    for (ValueId& in : inputs) in = divided(node, in, by);
    return named(sum ? "add" : "relu", inputs);
  }

  // ---------------------------------------------------------------------------------------------------------------
  // Products

  ValueId product(const Node& node) {
    const auto form = linear_of(copy_.from(), node);
    if (!form || !node.attributes.has("result") || !node.attributes.get_string("result").empty()) return no_value;
    auto data = operand(copy_[node.inputs[0]]), weights = operand(copy_[node.inputs[1]]);
    if (!data || !weights || type(data->codes).dtype.bits != 8 || !has_one_scale(to(), *data)) return no_value;
    const int axis = form->filter_axis;
    if (!is_along(weights->scale, weights->codes, axis) || !is_along(weights->zero_point, weights->codes, axis))
      return no_value;
    if (is_float8(type(data->codes).dtype) || is_float8(type(weights->codes).dtype))
      return product_of_floats(node, *form, *data, *weights);
    const bool is_centred = weights->zero_point == no_value || fits_when_centred(*weights, axis);
    if (!is_centred && (form->groups > 1 || type(weights->codes).dtype.bits != 8)) return no_value;
    const Expr terms = terms_of(weights->codes, *form);
    constexpr int64_t most_of_data = 255, most_of_weights = 128;
    const int64_t largest_term = most_of_data * (is_centred ? most_of_weights : most_of_data);
    if (!can_prove(terms <= Expr(std::numeric_limits<int32_t>::max() / largest_term))) return no_value;
    if (!is_centred && data->zero_point != no_value && !as_int(terms)) return no_value;
    if (is_centred) centre(node, *weights);
    const auto [of_data, of_weights] =
        factors_for(type(data->codes).dtype, type(weights->codes).dtype, context_.target);
    const DType type_of_sum = is_centred && is_for_floats(node, *form, *data, terms) ? f32 : i32;
    if (type_of_sum == i32) shift(node, *data, of_data), shift(node, *weights, of_weights);
    const ValueId sum = cast(node, sum_of_codes(node, *form, *data, *weights, terms, type_of_sum), f32);
    sums_.insert(sum);
    return scaled(node, sum, scale_of(node, *form, *data, *weights));
  }

  // Of the product, beside its result; no_value: 1.
  ValueId scale_of(const Node& node, const Linear& form, const Quantised& data, const Quantised& weights) {
    const ValueId of_data = data.scale == no_value ? no_value : reshape(node, data.scale, {});
    if (weights.scale == no_value) return of_data;
    const ValueId of_weights = CodeSums(copy_, node, form).filters_beside(weights.scale);
    return of_data == no_value ? of_weights : add(node, "multiply", {of_data, of_weights});
  }
  ValueId scaled(const Node& node, ValueId sum, ValueId scale) {
    return scale == no_value ? sum : copy_.add(node, "multiply", {sum, scale})[0];
  }

  // What a product multiplies: dequantised, or codes of floats as they are.
  std::optional<Quantised> operand(ValueId now) {
    const Node* wide = copy_.made_by(now, "cast");
    if (!wide || !is_half(type(now).dtype) || !is_float8(type(wide->inputs[0]).dtype))
      return find_quantised(copy_, now);
    return Quantised{.codes = wide->inputs[0]};
  }

  ValueId product_of_floats(const Node& node, const Linear& form, const Quantised& data, const Quantised& weights) {
    for (const ValueId codes : {data.codes, weights.codes})
      if (!is_float8(type(codes).dtype) || code_product_rate(type(codes).dtype, context_.target) < 1) return no_value;
    NodeAttributes attributes = node.attributes;
    attributes.set("result", "f32");
    const DType result = copy_.from().values[node.outputs[0]].type.dtype;
    const std::vector<ValueId> codes = {data.codes, weights.codes};
    if (data.scale == no_value && weights.scale == no_value && result == f32)
      return copy_.add(node, *node.op, codes, attributes)[0];
    const ValueId sum = to().add_node(*node.op, codes, attributes, node.name)[0];
    if (data.scale == no_value && weights.scale == no_value)
      return copy_.add(node, "cast", {sum}, attributes_of({{"to", to_string(result)}}))[0];
    sums_.insert(sum);
    return scaled(node, sum, scale_of(node, form, data, weights));
  }

  // Without a zero point.
  void centre(const Node& node, Quantised& weights) {
    if (weights.zero_point != no_value)
      weights.codes = add(node, "subtract", {cast(node, weights.codes, i32), weights.zero_point});
    if (weights.zero_point != no_value || type(weights.codes).dtype.bits != 8)
      weights.codes = cast(node, weights.codes, i8);
    weights.zero_point = no_value;
  }

  // To codes of the other sign: so many above or below, as is their zero point.
  void shift(const Node& node, Quantised& x, DType to_type) {
    if (type(x.codes).dtype == to_type) return;
    x.codes = with_other_sign(copy_, node, x.codes);
    const ValueId by = add_number(to(), node.name + ".shift", sign_shift(to_type));
    x.zero_point = x.zero_point == no_value ? by : add(node, "add", {x.zero_point, by});
  }

  // Whether f32 adds these products as well as i32, and faster: of one channel a group, whose few sums it holds
  // exactly.  There is no dot product for them, and each element is widened once for all products that it is in.
  bool is_for_floats(const Node& node, const Linear& form, const Quantised& data, const Expr& terms) {
    constexpr int64_t largest_sum = int64_t{1} << 24, largest_term = 255 * 128, fewest_products = 4;
    if (form.groups == 1 || !is_const_int(type(data.codes).shape[1], form.groups)) return false;
    int64_t elements = 1;  // of the data that a result comes with
    for (const int64_t stride : node.attributes.get_ints("strides")) elements *= stride;
    return context_.target.tensor_core_rate == 0 && can_prove(terms <= Expr(largest_sum / largest_term)) &&
           can_prove(terms >= Expr(fewest_products * elements));
  }

  ValueId sum_of_codes(const Node& node, const Linear& form, const Quantised& data, const Quantised& weights,
                       const Expr& terms, DType result) {
    CodeSums sums(copy_, node, form);
    NodeAttributes attributes = node.attributes;
    attributes.set("result", to_string(result));
    const ValueId zero = data.zero_point == no_value ? no_value : reshape(node, data.zero_point, {});
    ValueId x = data.codes;
    if (zero != no_value && form.has_window) x = padded(to(), x, attributes, cast(node, zero, type(x).dtype));
    const ValueId factors = result == f32 ? cast(node, weights.codes, f32) : weights.codes;
    ValueId sum = to().add_node(*node.op, {x, factors}, attributes, node.name)[0];
    if (zero != no_value) sum = add(node, "subtract", {sum, cast(node, sums.of_filters(weights.codes, zero), result)});
    if (weights.zero_point == no_value) return sum;
    ValueId rows = sums.of_rows(data.codes, weights.codes, zero);
    if (zero != no_value) {
      const ValueId count = add_number(to(), node.name + ".terms", *as_int(terms));
      rows = add(node, "subtract", {rows, add(node, "multiply", {zero, count})});
    }
    return add(node, "subtract", {sum, sums.beside(rows, sums.filters_beside(weights.zero_point))});
  }

  // How many terms a sum has.
  Expr terms_of(ValueId weights, const Linear& form) {
    const std::vector<Expr>& shape = type(weights).shape;
    if (!form.has_window) return shape[static_cast<size_t>(form.weight_axis)];
    std::vector<Expr> others = shape;
    others.erase(others.begin() + form.filter_axis);
    return simplify(product_of(others));
  }

  // One number, or one a position of `axis` of x; absent ones are.
  bool is_along(ValueId parameter, ValueId x, int axis) {
    if (parameter == no_value || is_one(parameter)) return true;
    const std::vector<Expr>& shape = type(parameter).shape;
    const int skip = type(x).rank() - static_cast<int>(shape.size());
    for (int d = 0; d < static_cast<int>(shape.size()); ++d)
      if (!is_const_int(shape[static_cast<size_t>(d)], 1) && d + skip != axis) return false;
    return skip >= 0;
  }

  // Whether all codes less their zero points are of 8 bits and signed.
  bool fits_when_centred(const Quantised& x, int axis) {
    const auto fits = [](int64_t low, int64_t high) {
      return low >= limits_of_codes(i8).first && high <= limits_of_codes(i8).second;
    };
    const auto [low, high] = limits_of_codes(type(x.codes).dtype);
    if (const auto zero = number(x.zero_point)) {
      const auto z = static_cast<int64_t>(*zero);
      if (fits(low - z, high - z)) return true;
    }
    if (!to().is_constant(x.codes) || !to().is_constant(x.zero_point)) return false;
    const NDArray &codes = *to().values[x.codes].constant, &zeros = *to().values[x.zero_point].constant;
    const Shape& shape = codes.shape();
    int64_t inner = 1;
    for (size_t d = static_cast<size_t>(axis) + 1; d < shape.size(); ++d) inner *= shape[d];
    for (int64_t i = 0; i < codes.size(); ++i) {
      const int64_t filter = zeros.size() == 1 ? 0 : i / inner % shape[static_cast<size_t>(axis)];
      const int64_t centred = codes.get_int(i) - zeros.get_int(filter);
      if (!fits(centred, centred)) return false;
    }
    return true;
  }

  GraphCopy copy_;
  const PassContext& context_;
  std::set<ValueId> sums_;  // of codes, in f32
};

}  // namespace

Graph multiply_quantised(const Graph& graph, const PassContext& context) {
  return code_product_rate(u8, context.target) >= 1 ? Multiplier(graph, context).run() : graph;
}

}  // namespace tw::relay
