// Operators of a user's own, whose mathematics a node brings along.
//
//   map_expression  element by element, like any elementwise operator
//   expression      anything that tensor expressions say: reductions, several stages, several results
//   update          the first input but for some elements, which loops write in order; in its place where that is asked
//   host_call       a function of the host computes it (runtime/host_function.h): it is not scheduled or fused, runs on
//                   one thread, and its result depends on its inputs and attributes alone
//
// An expression is a Func in its text form, of the types that the node has: its buffers are the inputs, then the
// results, and its parameters stand for the sizes that the attribute `parameters` gives.  So is an update, whose Func
// writes the changed elements alone.  `schedule` names who is asked first to schedule kernels that the node is in.
#include <algorithm>

#include "relay_ir/in_place.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/ops/loops.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/parser.h"

namespace tw::relay {
namespace {

using Dims = std::vector<Expr>;
using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

struct Expression {
  Func func;
  Substitution sizes;  // of its parameters
};

Func func_of(const OpCall& c) {
  try {
    return parse_func(c.attributes.get_string("func"), c.op.name);
  } catch (const Error& error) {
    c.fail(std::string("its attribute is no Func: ") + error.message());
  }
}

Expression expression_of(const OpCall& c) {
  Expression result{func_of(c), {}};
  const Dims& sizes = c.attributes.get_dims("parameters");
  c.require(sizes.size() == result.func.parameters.size(), "each parameter of the Func has one size");
  for (size_t i = 0; i < sizes.size(); ++i) result.sizes[result.func.parameters[i]] = sizes[i];
  return result;
}

TensorType type_of(const Buffer& buffer, const Substitution& sizes) {
  TensorType type{buffer->dtype, {}};
  for (const Expr& dim : buffer->shape) type.shape.push_back(substitute(dim, sizes));
  return type;
}

std::vector<TensorType> infer_expression(const OpCall& c) {
  const auto [func, sizes] = expression_of(c);
  const size_t inputs = func.buffers.size() - static_cast<size_t>(func.output_count);
  c.require(c.inputs.size() == inputs, "the Func reads " + std::to_string(inputs) + " buffers");
  for (size_t i = 0; i < inputs; ++i) {
    const TensorType wanted = type_of(func.buffers[i], sizes);
    c.require(c.has_input(i) && wanted.dtype == c.inputs[i].dtype && wanted.rank() == c.inputs[i].rank(),
              "the Func reads " + to_string(wanted) + " as input " + std::to_string(i));
    for (int d = 0; d < wanted.rank(); ++d)
      c.require_equal(wanted.shape[d], c.inputs[i].shape[d], "input " + std::to_string(i) + " of the Func");
  }
  std::vector<TensorType> types;
  for (size_t i = inputs; i < func.buffers.size(); ++i) types.push_back(type_of(func.buffers[i], sizes));
  return types;
}

std::vector<te::Tensor> compute_expression(const OpCall& c, const std::vector<te::Tensor>& in) {
  const auto [func, sizes] = expression_of(c);
  return te::inlined(func, in, sizes);
}

OpDef expression_op(std::string name, OpKind kind, AxesFunction axes) {
  OpDef op;
  op.name = std::move(name);
  op.kind = kind;
  op.input_names = {"inputs"};
  op.takes_any_number = true;
  op.states_shapes = true;
  op.attributes = {
      {"func", std::string(), true, "a Func, as text"},
      {"parameters", Dims{}, false, "what its parameters are"},
      {"schedule", std::string(), false, "a name of the caller's: who schedules its kernels; empty: nobody"}};
  op.facts = plain_facts(axes, Rounding::exact);
  op.infer = infer_expression;
  op.compute = compute_expression;
  return op;
}

OpDef map_expression_op() {
  OpDef op = expression_op("map_expression", OpKind::elementwise, broadcast_axes);
  op.doc = "An expression of a user's own, element by element.";
  const std::string scaled = R"(func scaled(x: f32[2, 3], w: f32[3]) -> (y: f32[2, 3]) {
  for i in 0..2 {
    for j in 0..3 {
      block b(spatial vi: 2 = i, spatial vj: 3 = j) {
        y[vi, vj] = x[vi, vj] * w[vj]
      }
    }
  }
})";
  op.examples = {{{tensor_type(f32, {2, 3}), tensor_type(f32, {3})}, attributes_of({{"func", scaled}})}};
  return op;
}

OpDef any_expression_op() {
  OpDef op = expression_op("expression", OpKind::composite, unknown_axes);
  op.doc = "An expression of a user's own.";
  const std::string sums = R"(func sums(x: f32[4, 6]) -> (total: f32[4], largest: f32[4]) {
  for i in 0..4 {
    for r in 0..6 {
      block b0(spatial vi: 4 = i, reduce vr: 6 = r) {
        init {
          total[vi] = 0.0f
        }
        total[vi] = total[vi] + x[vi, vr]
      }
    }
  }
  for i in 0..4 {
    block b1(spatial vi: 4 = i) {
      largest[vi] = max(total[vi], x[vi, 0])
    }
  }
})";
  op.examples = {{{tensor_type(f32, {4, 6})}, attributes_of({{"func", sums}})}};
  return op;
}

// The Func reads its first buffer as far as it has not changed it: that is the result.
Stmt update(const OpCall& c, const std::vector<te::Tensor>& in, const Buffer& result) {
  const auto [func, sizes] = expression_of(c);
  Stmt body = substitute(with_fresh_names(func.body), sizes);
  for (size_t i = 1; i < in.size(); ++i) body = replace_buffer(body, func.buffers[i], in[i].buffer());
  return replace_buffer(replace_buffer(body, func.buffers[0], result), func.buffers.back(), result);
}

OpDef update_op() {
  OpDef op;
  op.name = "update";
  op.kind = OpKind::opaque;
  op.doc = "The first input but for the elements that a user's own loops write, one after the other.";
  op.input_names = {"inputs"};
  op.takes_any_number = true;
  op.attributes = {{"func", std::string(), true, "a Func, as text, that writes the changed elements"},
                   {"parameters", Dims{}, false, "what its parameters are"}};
  op.decisions = {in_place_decision()};
  op.facts = updated_facts(update, all_inputs);
  op.infer = [](const OpCall& c) {
    const std::vector<TensorType> types = infer_expression(c);
    c.require(types.size() == 1 && types[0] == c.inputs[0], "the result has the type of the first input");
    return types;
  };
  op.compute = copied_and_updated("update", update);
  const std::string put = R"(func put(x: f32[6, 2], at: i64[1], rows: f32[3, 2]) -> (y: f32[6, 2]) {
  for i in 0..3 {
    for j in 0..2 {
      if 0 <= at[0] + i && at[0] + i < 6 {
        y[at[0] + i, j] = y[at[0] + i, j] + rows[i, j]
      }
    }
  }
})";
  op.examples = {{{tensor_type(f32, {6, 2}), tensor_type(i64, {1}), tensor_type(f32, {3, 2})},
                  attributes_of({{"func", put}}),
                  {NDArray(), int_array({4})}}};
  return op;
}

OpDef host_call_op() {
  OpDef op;
  op.name = "host_call";
  op.kind = OpKind::opaque;
  op.doc = "What a function of the host makes of its inputs.";
  op.input_names = {"inputs"};
  op.takes_any_number = true;
  op.is_on_host = true;
  op.takes_narrow = true;
  op.attributes = {
      {"function", std::string(), true, "its name"},
      {"library", std::string(), false, "the shared library that has it; empty: who runs the model gives it"},
      {"attributes", std::string(), false, "JSON, for the function"},
      {"dtypes", Strings{}, true, "element types of the results"},
      {"ranks", Ints{}, true, "their ranks"},
      {"dims", Dims{}, false, "their dimensions, one result's after the other's"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) {
    const auto& dtypes = std::get<Strings>(c.attributes.all().at("dtypes"));
    const Ints& ranks = c.attributes.get_ints("ranks");
    const Dims& dims = c.attributes.get_dims("dims");
    c.require(!c.attributes.get_string("function").empty(), "the function has a name");
    c.require(!dtypes.empty() && dtypes.size() == ranks.size(), "each result has an element type and a rank");
    for (size_t i = 0; i < c.present.size(); ++i) c.require(c.present[i], "every input is there");
    std::vector<TensorType> types;
    size_t at = 0;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      const auto dtype = parse_element_type(dtypes[i]);
      c.require(dtype.has_value(), "there is no element type " + dtypes[i]);
      c.require(ranks[i] >= 0 && static_cast<size_t>(ranks[i]) <= dims.size() - at, "a rank is not that of the dims");
      types.push_back({*dtype, {dims.begin() + at, dims.begin() + at + ranks[i]}});
      at += static_cast<size_t>(ranks[i]);
      for (const Expr& dim : types.back().shape) c.require(as_int(dim).value_or(0) >= 0, "dimensions are not negative");
    }
    c.require(at == dims.size(), "all dims are of a result");
    return types;
  };
  return op;
}

}  // namespace

std::vector<OpDef> custom_family() {
  return {map_expression_op(), any_expression_op(), update_op(), host_call_op()};
}

}  // namespace tw::relay
