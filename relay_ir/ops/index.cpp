// Operators whose reads depend on data: gathers, and gather-like reorderings.  No index reads foreign memory: those
// outside are moved to the nearest element.
#include <algorithm>

#include "relay_ir/in_place.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/ops/loops.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

void require_indices(const OpCall& c, const TensorType& type) {
  c.require(type.dtype == i32 || type.dtype == i64, "indices are i32 or i64");
}

// Where there may be nothing to select from, there may be no index either: what is read all the same is 0.
Expr selected(const te::Tensor& x, const te::Indices& at) {
  Expr has_some = bool_imm(true);
  for (const Expr& extent : x.shape())
    if (!can_prove(extent > 0)) has_some = has_some && extent > 0;
  return loaded_where(has_some, x, at);
}

const AttributeDef select_axis{"axis", 0, false, "the axis that indices select from"};

OpDef op_with_indices(const char* name, AxesFunction axes, Rounding rounding, const char* doc) {
  OpDef op;
  op.name = name;
  op.kind = OpKind::injective;
  op.doc = doc;
  op.input_names = {"x", "indices"};
  op.facts = plain_facts(axes, rounding, 1);
  return op;
}
AxisUses gather_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  const int axis = normal_axis(c, c.attributes.get_int("axis"), c.inputs[0].rank()), count = c.inputs[1].rank();
  for (int d = 0; d < axis; ++d) uses[0][d] = same_axis(d);
  for (int d = axis + 1; d < c.inputs[0].rank(); ++d) uses[0][d + count - 1] = same_axis(d);
  return uses;
}

OpDef gather_op() {
  OpDef op = op_with_indices("gather", gather_axes, Rounding::moves,
                             "Slices of x along an axis, by index; negative indices count from the end.");
  op.takes_narrow = true;
  op.attributes = {select_axis};
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &indices = c.inputs[1];
    require_indices(c, indices);
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    TensorType y{x.dtype, {x.shape.begin(), x.shape.begin() + axis}};
    y.shape.insert(y.shape.end(), indices.shape.begin(), indices.shape.end());
    y.shape.insert(y.shape.end(), x.shape.begin() + axis + 1, x.shape.end());
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor &x = in[0], &indices = in[1];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank()), count = indices.rank();
    return {te::compute("gather", c.outputs[0].shape, in, [&](const te::Indices& s) {
      te::Indices i(s.begin(), s.begin() + axis);
      const te::Indices at(s.begin() + axis, s.begin() + axis + count);
      i.push_back(data_index(indices(at), x.shape()[axis]));
      i.insert(i.end(), s.begin() + axis + count, s.end());
      return selected(x, i);
    })};
  };
  op.examples = {{{tensor_type(f32, {4, 3}), tensor_type(i64, {2, 2})},
                  attributes_of({{"axis", 0}}),
                  {NDArray(), int_array({0, 3, -1, 2}).reshape({2, 2})}},
                 {{tensor_type(f16, {2, 5}), tensor_type(i32, {})},
                  attributes_of({{"axis", 1}}),
                  {NDArray(), int_array({4}, i32).reshape({})}}};
  return op;
}

OpDef gather_elements_op() {
  OpDef op = op_with_indices("gather_elements", unknown_axes, Rounding::exact,
                             "y[i, j …] = x[indices[i, j …], j …], the index replacing that of the axis.");
  op.attributes = {select_axis};
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &indices = c.inputs[1];
    require_indices(c, indices);
    const int axis = normal_axis(c, c.attributes.get_int("axis"), x.rank());
    c.require(x.rank() == indices.rank(), "x and indices have one rank");
    for (int d = 0; d < x.rank(); ++d)
      if (d != axis) c.require_at_most(indices.shape[d], x.shape[d], "indices reach outside x");
    return {{x.dtype, indices.shape}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const int axis = normal_axis(c, c.attributes.get_int("axis"), in[0].rank());
    return {te::compute("gather_elements", c.outputs[0].shape, in, [&](const te::Indices& s) {
      te::Indices i = s;
      i[axis] = data_index(in[1](s), in[0].shape()[axis]);
      return selected(in[0], i);
    })};
  };
  op.examples = {{{tensor_type(f32, {3, 2}), tensor_type(i64, {2, 2})},
                  attributes_of({{"axis", 0}}),
                  {NDArray(), int_array({0, 2, -1, 1}).reshape({2, 2})}}};
  return op;
}

OpDef gather_nd_op() {
  OpDef op =
      op_with_indices("gather_nd", unknown_axes, Rounding::exact,
                      "The last dimension of indices holds coordinates into x, after `batch_dims` common dimensions.");
  op.attributes = {{"batch_dims", 0, false, "leading dimensions that x and indices share"}};
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &indices = c.inputs[1];
    require_indices(c, indices);
    const int64_t batch = c.attributes.get_int("batch_dims");
    c.require(indices.rank() >= 1 && batch >= 0 && batch < indices.rank() && batch <= x.rank(), "batch_dims fits both");
    const auto depth = as_int(indices.shape.back());
    c.require(depth.has_value() && batch + *depth <= x.rank(), "coordinates are at most as long as x has dimensions");
    for (int64_t d = 0; d < batch; ++d) c.require_equal(indices.shape[d], x.shape[d], "batch dimensions are equal");
    TensorType y{x.dtype, {indices.shape.begin(), indices.shape.end() - 1}};
    y.shape.insert(y.shape.end(), x.shape.begin() + batch + *depth, x.shape.end());
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor &x = in[0], &indices = in[1];
    const int64_t batch = c.attributes.get_int("batch_dims"), depth = *as_int(indices.shape().back());
    const int lead = indices.rank() - 1;
    return {te::compute("gather_nd", c.outputs[0].shape, in, [&](const te::Indices& s) {
      te::Indices i(s.begin(), s.begin() + batch);
      for (int64_t k = 0; k < depth; ++k) {
        te::Indices at(s.begin(), s.begin() + lead);
        at.emplace_back(k);
        i.push_back(data_index(indices(at), x.shape()[batch + k]));
      }
      i.insert(i.end(), s.begin() + lead, s.end());
      return selected(x, i);
    })};
  };
  op.examples = {{{tensor_type(f32, {2, 3, 4}), tensor_type(i64, {2, 1})},
                  attributes_of({{"batch_dims", 1}}),
                  {NDArray(), int_array({2, -1}).reshape({2, 1})}}};
  return op;
}

OpDef reverse_sequence_op() {
  OpDef op;
  op.name = "reverse_sequence";
  op.kind = OpKind::injective;
  op.doc =
      "The first lengths[b] elements along the time axis in reverse, for each b of the batch axis; the rest stays.";
  op.input_names = {"x", "lengths"};
  op.attributes = {{"time_axis", 0, false, "the axis that is reversed"},
                   {"batch_axis", 1, false, "the axis that lengths belongs to"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType& x = c.inputs[0];
    require_indices(c, c.inputs[1]);
    const int time = normal_axis(c, c.attributes.get_int("time_axis"), x.rank());
    const int batch = normal_axis(c, c.attributes.get_int("batch_axis"), x.rank());
    c.require(time != batch, "time and batch are different axes");
    c.require(c.inputs[1].rank() == 1, "lengths are a list");
    c.require_equal(c.inputs[1].shape[0], x.shape[batch], "a length for each of the batch");
    return {x};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const int time = normal_axis(c, c.attributes.get_int("time_axis"), in[0].rank());
    const int batch = normal_axis(c, c.attributes.get_int("batch_axis"), in[0].rank());
    return {te::compute("reverse_sequence", c.outputs[0].shape, in, [&](const te::Indices& s) {
      const Expr length = min(cast(i64, in[1]({s[batch]})), in[0].shape()[time]);
      te::Indices i = s;
      i[time] = select(s[time] < length, max(length - 1 - s[time], Expr(0)), s[time]);
      return in[0](i);
    })};
  };
  op.examples = {{{tensor_type(f32, {4, 2}), tensor_type(i64, {2})}, {}, {NDArray(), int_array({3, 1})}}};
  return op;
}
Stmt update_cache(const OpCall& c, const std::vector<te::Tensor>& in, const Buffer& result) {
  const te::Tensor& update = in[1];
  const int axis = normal_axis(c, c.attributes.get_int("axis"), result.rank());
  const Expr& rows = result->shape[axis];
  return loops_over(update.shape(), [&](const te::Indices& i) -> Stmt {
    te::Indices to = i;
    if (c.has_input(2)) to[axis] = to[axis] + cast(i64, in[2]({i[0]}));
    if (c.attributes.get_int("circular") != 0) {
      to[axis] = floor_mod(to[axis], rows);
      return store(result, to, update(i));
    }
    return make_stmt<If>(in_bounds(to[axis], rows), store(result, to, update(i)), Stmt());
  });
}

OpDef tensor_scatter_op() {
  OpDef op;
  op.name = "cache_update";
  op.kind = OpKind::injective;
  op.doc =
      "past with a run of rows along an axis replaced by update, from positions[b] on for each b of the first "
      "dimension "
      "(0 without positions); circular: rows past the end go on at the front.";
  op.input_names = {"past", "update", "positions"};
  op.optional_inputs = 1;
  op.attributes = {{"axis", -2, false, "the axis of the rows"}, {"circular", 0, false, "1: wrap around"}};
  op.decisions = {in_place_decision()};
  op.facts = updated_facts(update_cache, 2);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &past = c.inputs[0], &update = c.inputs[1];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), past.rank());
    c.require(axis > 0, "the first dimension is the batch");
    c.require(past.dtype == update.dtype && past.rank() == update.rank(), "past and update have one type and rank");
    for (int d = 0; d < past.rank(); ++d)
      if (d != axis) c.require_equal(past.shape[d], update.shape[d], "other dimensions than the axis differ");
    c.require_at_most(update.shape[axis], past.shape[axis], "update is longer than past");
    if (c.has_input(2)) {
      require_indices(c, c.inputs[2]);
      c.require(c.inputs[2].rank() == 1, "positions are a list");
      c.require_equal(c.inputs[2].shape[0], past.shape[0], "a position for each of the batch");
    }
    return {past};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor &past = in[0], &update = in[1];
    const int axis = normal_axis(c, c.attributes.get_int("axis"), past.rank());
    std::vector<te::Tensor> uses{past, update};
    if (c.has_input(2)) uses.push_back(in[2]);
    return {te::compute("cache_update", past.shape(), uses, [&](const te::Indices& s) {
      Expr row = s[axis];
      if (c.has_input(2)) row = row - cast(i64, in[2]({s[0]}));
      if (c.attributes.get_int("circular") != 0) row = floor_mod(row, past.shape()[axis]);
      te::Indices i = s;
      i[axis] = row;
      const Expr is_new = in_bounds(row, update.shape()[axis]);
      return select(is_new, load(update.buffer(), i, is_new), past(s));
    })};
  };
  op.examples = {{{tensor_type(f32, {2, 4, 3}), tensor_type(f32, {2, 2, 3}), tensor_type(i64, {2})},
                  attributes_of({{"circular", 1}}),
                  {NDArray(), NDArray(), int_array({1, 3})}}};
  return op;
}

}  // namespace

std::vector<OpDef> index_family() {
  return {gather_op(), gather_elements_op(), gather_nd_op(), reverse_sequence_op(), tensor_scatter_op()};
}

}  // namespace tw::relay
