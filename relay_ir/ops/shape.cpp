// Operators that move elements: reshape, transpose, broadcast, concat, slice, pad.  Each has affine reads, so that
// fusion can take any of them into a neighbour.
#include <algorithm>
#include <functional>

#include "relay_ir/in_place.h"
#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

// total / part where both are products: common factors go.
Expr quotient(const Expr& total, const Expr& part) {
  std::vector<Expr> factors;
  std::function<void(const Expr&)> collect = [&](const Expr& e) {
    const auto* product = e.as<Binary>();
    if (product && product->op == BinaryOp::mul) {
      collect(product->a);
      collect(product->b);
    } else if (!as_int(e)) {
      factors.push_back(e);
    }
  };
  collect(part);
  Expr above = total, below = part;
  for (const Expr& factor : factors) {
    const Expr without = simplify(floor_div(above, factor));
    if (!is_known_equal(without * factor, above)) continue;
    above = without;
    below = simplify(floor_div(below, factor));
  }
  return simplify(floor_div(above, below));
}

// Where a dimension d is asked for as d // n, n divides it: what is left of it is n.
void divide_as_asked(const OpCall& c, std::vector<Expr>& rest, const std::vector<Expr>& known) {
  for (const Expr& part : known) {
    const auto* quotient = part.as<Binary>();
    if (!quotient || quotient->op != BinaryOp::floor_div || !as_int(quotient->b)) continue;
    const auto whole =
        std::find_if(rest.begin(), rest.end(), [&](const Expr& dim) { return is_same_dim(dim, quotient->a); });
    if (whole == rest.end()) continue;
    const Expr parts = simplify(part * quotient->b);
    c.require_equal(*whole, parts, "the elements do not divide into this shape");
    *whole = parts;
  }
}

// -1 once: what is left; -2: the input's dimension at that place.
std::vector<Expr> wanted_shape(const OpCall& c) {
  const std::vector<Expr>& from = c.inputs[0].shape;
  std::vector<Expr> shape, known;
  int open = -1;
  for (const Expr& dim : c.attributes.get_dims("shape")) {
    const size_t i = shape.size();
    if (is_const_int(dim, -1)) {
      c.require(open < 0, "one dimension may be -1");
      open = static_cast<int>(i);
      shape.emplace_back(1);
    } else if (is_const_int(dim, -2)) {
      c.require(i < from.size(), "the input has no dimension to keep there");
      shape.push_back(from[i]);
    } else {
      c.require(as_int(dim).value_or(0) >= 0, "dimensions are not negative");
      shape.push_back(dim);
    }
    if (open != static_cast<int>(i)) known.push_back(shape.back());
  }
  c.require(open < 0 || !is_const_int(product_of(known), 0), "a dimension of -1 beside one of 0");
  // Open dimensions that stay need no arithmetic.
  std::vector<Expr> rest = from;
  std::erase_if(known, [&](const Expr& dim) {
    const auto same = std::find_if(rest.begin(), rest.end(),
                                   [&](const Expr& other) { return !as_int(dim) && is_same_dim(dim, other); });
    if (same == rest.end()) return false;
    rest.erase(same);
    return true;
  });
  if (open >= 0) divide_as_asked(c, rest, known);
  const Expr total = simplify(product_of(rest)), part = simplify(product_of(known));
  if (open >= 0) {
    shape[open] = quotient(total, part);
    c.require_equal(total, simplify(shape[open] * part), "the elements do not divide into this shape");
  } else {
    c.require_equal(total, part, "the new shape has another number of elements");
  }
  return shape;
}

OpDef reshape_op() {
  OpDef op;
  op.name = "reshape";
  op.takes_narrow = true;
  op.kind = OpKind::view;
  op.doc = "The same elements in the same order under another shape.";
  op.input_names = {"x"};
  op.attributes = {
      {"shape", std::vector<Expr>{}, true, "new dimensions; one -1: what is left; -2: as in x at that place"}};
  op.facts = plain_facts(unknown_axes, Rounding::moves);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> { return {{c.inputs[0].dtype, wanted_shape(c)}}; };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const std::vector<Expr>& shape = c.outputs[0].shape;
    return {te::compute("reshape", shape, in,
                        [&](const te::Indices& s) { return in[0](reshape_index(s, shape, in[0].shape())); })};
  };
  op.examples = {{{tensor_type(f32, {2, 3, 4})}, attributes_of({{"shape", Ints{6, 4}}})},
                 {{tensor_type(u8, {2, 3, 4})}, attributes_of({{"shape", Ints{4, -1}}})},
                 {{tensor_type(f32, {2, 12})}, attributes_of({{"shape", Ints{-2, 3, 4}}})},
                 {{tensor_type(f32, {1})}, attributes_of({{"shape", Ints{}}})}};
  return op;
}

OpDef transpose_op() {
  OpDef op;
  op.name = "transpose";
  op.takes_narrow = true;
  op.kind = OpKind::injective;
  op.doc = "Dimensions in another order: result dimension i is dimension perm[i] of x.";
  op.input_names = {"x"};
  op.attributes = {{"perm", Ints{}, true, "a permutation of the axes"}};
  op.facts = plain_facts(
      [](const OpCall& c) {
        AxisUses uses = unknown_axes(c);
        const Ints& perm = c.attributes.get_ints("perm");
        for (size_t d = 0; d < perm.size(); ++d) uses[0][d] = same_axis(normal_axis(c, perm[d], c.inputs[0].rank()));
        return uses;
      },
      Rounding::moves);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const std::vector<int> sorted = normal_axes(c, c.attributes.get_ints("perm"), c.inputs[0].rank());
    c.require(static_cast<int>(sorted.size()) == c.inputs[0].rank(), "perm names each axis once");
    TensorType y{c.inputs[0].dtype, {}};
    for (const int64_t axis : c.attributes.get_ints("perm")) {
      y.shape.push_back(c.inputs[0].shape[normal_axis(c, axis, c.inputs[0].rank())]);
    }
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const Ints& perm = c.attributes.get_ints("perm");
    return {te::compute("transpose", c.outputs[0].shape, in, [&](const te::Indices& s) {
      te::Indices indices(s.size());
      for (size_t i = 0; i < perm.size(); ++i) indices[normal_axis(c, perm[i], in[0].rank())] = s[i];
      return in[0](indices);
    })};
  };
  op.examples = {{{tensor_type(f32, {2, 3, 4})}, attributes_of({{"perm", Ints{2, 0, 1}}})},
                 {{tensor_type(boolean, {2, 3})}, attributes_of({{"perm", Ints{1, 0}}})}};
  return op;
}

OpDef broadcast_op() {
  OpDef op;
  op.name = "broadcast_to";
  op.takes_narrow = true;
  op.kind = OpKind::injective;
  op.doc = "x repeated along its dimensions of extent 1 and along new ones in front.";
  op.input_names = {"x"};
  op.attributes = {{"shape", std::vector<Expr>{}, true, "of the result; -2: as in x"}};
  op.facts = plain_facts(broadcast_axes, Rounding::moves);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const std::vector<Expr>&shape = c.attributes.get_dims("shape"), &from = c.inputs[0].shape;
    c.require(shape.size() >= from.size(), "the new shape has at least as many dimensions");
    TensorType y{c.inputs[0].dtype, {}};
    const size_t skip = shape.size() - from.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      if (is_const_int(shape[i], -2)) {
        c.require(i >= skip, "there is no dimension to keep");
        y.shape.push_back(from[i - skip]);
        continue;
      }
      c.require(as_int(shape[i]).value_or(0) >= 0, "dimensions are not negative");
      y.shape.push_back(shape[i]);
      if (i >= skip) {
        if (!is_const_int(from[i - skip], 1))
          c.require_equal(from[i - skip], shape[i], "a dimension is neither 1 nor the wanted one");
      }
    }
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {te::compute("broadcast_to", c.outputs[0].shape, in,
                        [&](const te::Indices& s) { return broadcast_read(in[0], s, c.outputs[0].shape); })};
  };
  op.examples = {{{tensor_type(f32, {3, 1})}, attributes_of({{"shape", Ints{2, 3, 4}}})},
                 {{tensor_type(i64, {})}, attributes_of({{"shape", Ints{2}}})}};
  return op;
}
AxisUses concat_axes(const OpCall& c) {
  const int axis = normal_axis(c, c.attributes.get_int("axis"), c.inputs[0].rank());
  AxisUses uses = unknown_axes(c);
  std::optional<int64_t> to = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    for (int d = 0; d < c.inputs[i].rank(); ++d) uses[i][d] = same_axis(d);
    uses[i][axis] = {.kind = AxisUse::Kind::runs, .axis = axis};
    const auto count = as_int(c.inputs[i].shape[axis]);
    if (to && count) uses[i][axis].runs = {{.to = *to, .from = 0, .count = *count}};
    to = to && count ? std::optional(*to + *count) : std::nullopt;
  }
  return uses;
}

OpDef concat_op() {
  OpDef op;
  op.name = "concat";
  op.takes_narrow = true;
  op.kind = OpKind::injective;
  op.doc = "Inputs one after the other along an axis.";
  op.input_names = {"inputs"};
  op.takes_any_number = true;
  op.attributes = {{"axis", 0, true, "the axis that grows"}};
  op.decisions = {in_place_decision()};
  op.facts = plain_facts(concat_axes, Rounding::moves);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    TensorType y = c.inputs[0];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), y.rank());
    for (size_t i = 1; i < c.inputs.size(); ++i) {
      const TensorType& x = c.inputs[i];
      c.require(x.dtype == y.dtype && x.rank() == y.rank(), "inputs have one element type and rank");
      for (int d = 0; d < y.rank(); ++d) {
        if (d == axis)
          y.shape[d] = simplify(y.shape[d] + x.shape[d]);
        else
          c.require_equal(x.shape[d], y.shape[d], "other dimensions than the axis differ");
      }
    }
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const int axis = normal_axis(c, c.attributes.get_int("axis"), in[0].rank());
    return {te::compute("concat", c.outputs[0].shape, in, [&](const te::Indices& s) {
      std::vector<Expr> ends;
      Expr end(0);
      for (const te::Tensor& part : in) ends.push_back(end = simplify(end + part.shape()[axis]));
      Expr result;
      for (size_t i = in.size(); i-- > 0;) {
        if (is_const_int(in[i].shape()[axis], 0)) continue;
        te::Indices indices = s;
        if (i > 0) indices[axis] = s[axis] - ends[i - 1];
        Expr here = bool_imm(true);
        if (i > 0) here = here && s[axis] >= ends[i - 1];
        if (i + 1 < in.size()) here = here && s[axis] < ends[i];
        const bool is_all = as_int(here).has_value();
        const Expr value = is_all ? in[i](indices) : load(in[i].buffer(), indices, here);
        result = result.is_defined() ? select(s[axis] < ends[i], value, result) : value;
      }
      return result.is_defined() ? result : zero_of(in[0].dtype());
    })};
  };
  op.examples = {
      {{tensor_type(f32, {2, 3}), tensor_type(f32, {2, 1}), tensor_type(f32, {2, 2})}, attributes_of({{"axis", -1}})},
      {{tensor_type(i64, {1}), tensor_type(i64, {3})}, attributes_of({{"axis", 0}})}};
  return op;
}
AxisUses slice_axes(const OpCall& c) {
  const Ints &axes = c.attributes.get_ints("axes"), &steps = c.attributes.get_ints("steps");
  const std::vector<Expr>& starts = c.attributes.get_dims("starts");
  AxisUses uses = aligned_axes(c);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = normal_axis(c, axes[i], c.inputs[0].rank());
    uses[0][axis] = {.kind = AxisUse::Kind::runs, .axis = axis};
    const auto size = as_int(c.outputs[0].shape[axis]), start = as_int(starts[i]);
    if (size && start) uses[0][axis].runs = {{.from = *start, .count = *size, .step = steps.empty() ? 1 : steps[i]}};
  }
  return uses;
}

OpDef slice_op() {
  OpDef op;
  op.name = "slice";
  op.takes_narrow = true;
  op.kind = OpKind::injective;
  op.doc = "Along each of some axes, `size` elements from `start` on in steps, which may be negative.";
  op.input_names = {"x"};
  op.attributes = {{"axes", Ints{}, true, "the axes that are cut"},
                   {"starts", std::vector<Expr>{}, true, "first element of each, not negative"},
                   {"sizes", std::vector<Expr>{}, true, "number of elements of each"},
                   {"steps", Ints{}, false, "step of each; empty: 1"}};
  op.facts = plain_facts(slice_axes, Rounding::moves);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    TensorType y = c.inputs[0];
    const Ints& axes = c.attributes.get_ints("axes");
    const std::vector<Expr>&starts = c.attributes.get_dims("starts"), &sizes = c.attributes.get_dims("sizes");
    Ints steps = c.attributes.get_ints("steps");
    if (steps.empty()) steps.assign(axes.size(), 1);
    normal_axes(c, axes, y.rank());
    c.require(starts.size() == axes.size() && sizes.size() == axes.size() && steps.size() == axes.size(),
              "axes, starts, sizes and steps are as many");
    for (size_t i = 0; i < axes.size(); ++i) {
      Expr& dim = y.shape[normal_axis(c, axes[i], y.rank())];
      const auto size = as_int(sizes[i]), known = as_int(dim), start = as_int(starts[i]);
      c.require(size.value_or(0) >= 0, "sizes are not negative");
      if (size && known && start && *size > 0) {
        const int64_t last = *start + (*size - 1) * steps[i];
        c.require(*start >= 0 && last >= 0 && *start < std::max<int64_t>(*known, 1) && last < *known,
                  "the slice reaches outside");
      } else if (size.value_or(1) > 0) {
        const std::string message = "the slice may reach outside of `" + to_text(dim) + "`";
        c.require(steps[i] != 0, message);
        c.require_at_most(Expr(0), starts[i], message);
        // So many there are from the first on.
        const int64_t stride = std::abs(steps[i]);
        const Expr room = steps[i] > 0 ? dim - starts[i] : starts[i] + 1;
        if (steps[i] < 0) c.require_at_most(simplify(starts[i] + 1), dim, message);
        c.require_at_most(sizes[i], simplify(floor_div(room + (stride - 1), stride)), message);
      }
      dim = sizes[i];
    }
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const Ints &axes = c.attributes.get_ints("axes"), &steps = c.attributes.get_ints("steps");
    const std::vector<Expr>& starts = c.attributes.get_dims("starts");
    return {te::compute("slice", c.outputs[0].shape, in, [&](const te::Indices& s) {
      te::Indices indices = s;
      for (size_t i = 0; i < axes.size(); ++i) {
        Expr& index = indices[normal_axis(c, axes[i], in[0].rank())];
        index = index * (steps.empty() ? 1 : steps[i]) + starts[i];
      }
      return in[0](indices);
    })};
  };
  op.examples = {
      {{tensor_type(f32, {4, 5})}, attributes_of({{"axes", Ints{1}}, {"starts", Ints{1}}, {"sizes", Ints{3}}})},
      {{tensor_type(i32, {4, 5})},
       attributes_of({{"axes", Ints{0, 1}}, {"starts", Ints{3, 0}}, {"sizes", Ints{2, 3}}, {"steps", Ints{-2, 2}}})}};
  return op;
}

// Index into x for the modes that read x again outside it.
Expr folded_index(const std::string& mode, const Expr& index, const Expr& extent) {
  if (mode == "edge") return min(max(index, Expr(0)), extent - 1);
  if (mode == "wrap") return floor_mod(index, extent);
  // reflect: a period of 2·(extent - 1)
  if (is_const_int(extent, 1)) return Expr(0);
  const Expr twice = (extent - 1) * 2, period = can_prove(extent > 1) ? twice : max(twice, Expr(1));
  const Expr phase = floor_mod(index, period);
  return min(phase, period - phase);
}
AxisUses pad_axes(const OpCall& c) {
  const std::vector<Expr>& pads = c.attributes.get_dims("pads");
  const int rank = c.inputs[0].rank();
  AxisUses uses = aligned_axes(c);
  for (int d = 0; d < rank; ++d) {
    if (!is_const_int(pads[d], 0) || !is_const_int(pads[rank + d], 0))
      uses[0][d] = {.kind = AxisUse::Kind::window, .axis = d};
  }
  return uses;
}

OpDef pad_op() {
  OpDef op;
  op.name = "pad";
  op.takes_narrow = true;
  op.kind = OpKind::injective;
  op.doc =
      "x with rows before and after each dimension, which hold `value` (an input, otherwise 0) or x again; negative "
      "pads "
      "cut rows away.";
  op.input_names = {"x", "value"};
  op.optional_inputs = 1;
  op.attributes = {{"pads", std::vector<Expr>{}, true, "rows before each dimension, then after each"},
                   {"mode", "constant", false, "constant, edge, reflect or wrap"}};
  op.facts = plain_facts(pad_axes, Rounding::exact, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    TensorType y = c.inputs[0];
    const std::vector<Expr>& pads = c.attributes.get_dims("pads");
    const std::string& mode = c.attributes.get_string("mode");
    c.require(mode == "constant" || mode == "edge" || mode == "reflect" || mode == "wrap", "no such mode: " + mode);
    c.require(static_cast<int>(pads.size()) == 2 * y.rank(), "pads has two numbers for each dimension");
    if (c.has_input(1)) {
      c.require(c.inputs[1].dtype == y.dtype && c.inputs[1].rank() == 0, "value is a scalar of x's type");
    }
    for (int d = 0; d < y.rank(); ++d) {
      const Expr total = simplify(pads[d] + pads[y.rank() + d]);
      if (mode != "constant" && !is_const_int(total, 0))
        c.require_at_most(Expr(1), y.shape[d], "an empty dimension cannot be repeated");
      y.shape[d] = simplify(y.shape[d] + total);
      c.require_at_most(Expr(0), y.shape[d], "pads cut away more than there is");
    }
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const int rank = x.rank();
    const std::vector<Expr>& pads = c.attributes.get_dims("pads");
    const std::string& mode = c.attributes.get_string("mode");
    std::vector<te::Tensor> uses{x};
    if (c.has_input(1)) uses.push_back(in[1]);
    return {te::compute("pad", c.outputs[0].shape, uses, [&](const te::Indices& s) {
      te::Indices indices = s;
      Expr inside = bool_imm(true);
      for (int d = 0; d < rank; ++d) {
        if (is_const_int(pads[d], 0) && is_const_int(pads[rank + d], 0)) continue;
        indices[d] = s[d] - pads[d];
        if (mode != "constant") {
          indices[d] = folded_index(mode, indices[d], x.shape()[d]);
          continue;
        }
        if (as_int(pads[d]).value_or(1) > 0) inside = inside && indices[d] >= 0;
        if (as_int(pads[rank + d]).value_or(1) > 0) inside = inside && indices[d] < x.shape()[d];
      }
      if (as_int(inside)) return x(indices);
      const Expr value = load(x.buffer(), indices, inside);
      return c.has_input(1) ? select(inside, value, in[1](te::Indices{})) : value;
    })};
  };
  for (const char* mode : {"constant", "edge", "reflect", "wrap"}) {
    op.examples.push_back({{tensor_type(f32, {3, 4})}, attributes_of({{"pads", Ints{1, 2, 0, 1}}, {"mode", mode}})});
  }
  op.examples.push_back(
      {{tensor_type(i32, {3, 4}), tensor_type(i32, {})}, attributes_of({{"pads", Ints{1, -1, 0, 2}}})});
  return op;
}

OpDef range_op() {
  OpDef op;
  op.name = "range";
  op.kind = OpKind::injective;
  op.doc = "start, start + step, start + 2·step …: numbers that may depend on open dimensions.";
  op.attributes = {{"count", std::vector<Expr>{}, true, "one number: how many"},
                   {"start", std::vector<Expr>{Expr(0)}, false, "one number: the first"},
                   {"step", std::vector<Expr>{Expr(1)}, false, "one number: from each to the next"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    for (const char* name : {"count", "start", "step"})
      c.require(c.attributes.get_dims(name).size() == 1, std::string(name) + " is one number");
    const Expr& count = c.attributes.get_dims("count")[0];
    c.require(as_int(count).value_or(0) >= 0, "count is not negative");
    return {{i64, {count}}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>&) -> std::vector<te::Tensor> {
    const Expr &start = c.attributes.get_dims("start")[0], &step = c.attributes.get_dims("step")[0];
    return {te::compute("range", c.outputs[0].shape, {}, [&](const te::Indices& s) { return start + s[0] * step; })};
  };
  op.examples = {
      {{}, attributes_of({{"count", std::vector<Expr>{5}}})},
      {{},
       attributes_of(
           {{"count", std::vector<Expr>{3}}, {"start", std::vector<Expr>{7}}, {"step", std::vector<Expr>{-2}}})}};
  return op;
}

OpDef sizes_op() {
  OpDef op;
  op.name = "sizes";
  op.kind = OpKind::injective;
  op.doc = "Numbers that depend on open dimensions, as a tensor: what a model does with the shape of an input.";
  op.attributes = {{"values", std::vector<Expr>{}, true, "the elements"}, {"shape", Ints{}, true, "of the result"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType type = tensor_type(i64, c.attributes.get_ints("shape"));
    c.require(element_count(*static_shape(type)) == static_cast<int64_t>(c.attributes.get_dims("values").size()),
              "the shape has as many elements");
    return {type};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>&) -> std::vector<te::Tensor> {
    const std::vector<Expr>& values = c.attributes.get_dims("values");
    return {te::compute("sizes", c.outputs[0].shape, {}, [&](const te::Indices& s) {
      const Expr at = flatten_index(s, c.outputs[0].shape);
      Expr result = values.empty() ? Expr(0) : values.back();
      for (size_t i = values.size(); i-- > 1;)
        result = select(at < Expr(static_cast<int64_t>(i)), values[i - 1], result);
      return result;
    })};
  };
  op.examples = {{{}, attributes_of({{"values", std::vector<Expr>{3, 5}}, {"shape", Ints{2}}})}};
  return op;
}

}  // namespace

std::vector<OpDef> shape_family() {
  return {reshape_op(), transpose_op(), broadcast_op(), concat_op(), slice_op(), pad_op(), range_op(), sizes_op()};
}

}  // namespace tw::relay
