#include "frontends/linear_attention.h"

#include "frontends/control.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends {
namespace {

using Dims = std::vector<Expr>;

// One step, of the parts of q, k, v, decay and beta that are its own: the state after it and its results
// [batch, query heads, values].
struct StateAndResult {
  ValueId state, result;
};

StateAndResult linear_step(Builder& b, const LinearAttention& own, ValueId state) {
  const Dims q = b.type(own.q).shape, k = b.type(own.k).shape, v = b.type(own.v).shape;
  if (own.decay != no_value) {
    const ValueId factor = b.emit("exp", {own.decay});
    state = b.emit("multiply", {state, emit_new_axis(b, factor, 3)});
  }
  ValueId value = emit_new_axis(b, own.v, 2);
  if (own.beta != no_value) {
    const ValueId known = b.emit("matmul", {emit_new_axis(b, own.k, 2), state});
    value = b.emit("multiply", {emit_new_axis(b, own.beta, 3), b.emit("subtract", {value, known})});
  }
  state = b.emit("add", {state, b.emit("multiply", {emit_new_axis(b, own.k, 3), value})});
  const Expr group = simplify(floor_div(q[1], k[1]));
  const ValueId queries = emit_reshape_open(b, own.q, {q[0], k[1], group, q[2]});
  return {state, emit_reshape_open(b, b.emit("matmul", {queries, state}), {q[0], q[1], v[2]})};
}

}  // namespace

std::vector<ValueId> emit_linear_attention(Builder& b, const LinearAttention& attention) {
  const Dims k = b.type(attention.k).shape, v = b.type(attention.v).shape;
  const DType dtype = dtype_of(b, attention.q);
  const Expr steps = k[2];
  ValueId state = attention.state;
  if (state == no_value) state = emit_broadcast_open(b, emit_scalar(b, dtype, 0), {k[0], k[1], k[3], v[3]});
  LinearAttention all = attention;
  all.q = b.emit("multiply", {attention.q, emit_scalar(b, dtype, attention.scale)});
  const auto parts_at = [&](const Expr& step, const std::function<ValueId(ValueId)>& here) {
    LinearAttention own = all;
    for (ValueId* part : {&own.q, &own.k, &own.v, &own.decay, &own.beta})
      if (*part != no_value) *part = emit_pick(b, here(*part), 2, step);
    return own;
  };
  if (is_const_int(steps, 1)) {
    const auto [after, result] = linear_step(b, parts_at(Expr(0), [](ValueId id) { return id; }), state);
    return {emit_new_axis(b, result, 2), after};
  }
  const std::vector<ValueId> results =
      emit_loop(b, steps, no_value, {state}, {false},
                [&](Region& region, const Var& step, const std::vector<ValueId>& before) -> LoopStep {
                  const LinearAttention own = parts_at(step, [&](ValueId id) { return region.capture(id); });
                  const auto [after, result] = linear_step(b, own, before[0]);
                  return {.condition = no_value, .carried = {after}, .kept = {result}};
                });
  return {emit_transpose(b, results[1], {1, 2, 0, 3}), results[0]};
}

}  // namespace tw::frontends
